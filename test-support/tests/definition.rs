//! The definitions, by values worked out by hand.
use ember_test_support::definition::{attend, dot, product, q8_0, q8_0_bytes, rms_norm, rotate};
use half::f16;

#[test]
fn products_are_sums_of_products() {
    assert_eq!(dot(&[1.0f32, 2.0], &[3.0f64, -4.0]), -5.0);
    // Two rows of x, three rows of weights.
    let x = [1.0f32, 2.0, 0.5, -1.0];
    let weights = [1.0f32, 0.0, 0.0, 1.0, 2.0, 2.0];
    assert_eq!(product(&x, &weights, 2), [1.0, 2.0, 6.0, 0.5, -1.0, -1.0]);
}

#[test]
fn rows_are_normalised_each_by_itself() {
    // Mean squares of 12.5 and 0, to which 3.5 is added.
    let y = rms_norm(&[3.0f32, 4.0, 0.0, 0.0], &[1.0, 10.0], 3.5);
    assert_eq!(y, [0.75, 10.0, 0.0, 0.0]);
}

#[test]
fn pairs_are_rotated_and_the_rest_stays() {
    let head = [1.0, 2.0, 3.0, 4.0, 5.0];
    // A quarter turn, and none.
    let (cos, sin) = ([0.0, 1.0], [1.0, 0.0]);
    let mut neighbours = head;
    rotate(&mut neighbours, &cos, &sin, true);
    assert_eq!(neighbours, [-2.0, 1.0, 3.0, 4.0, 5.0]);
    let mut halves = head;
    rotate(&mut halves, &cos, &sin, false);
    assert_eq!(halves, [-3.0, 2.0, 1.0, 4.0, 5.0]);
}

#[test]
fn attention_weighs_values_by_the_exponential_of_scores() {
    let keys = [[2.0f32, 0.0], [0.0, 7.0]];
    let values = [[1.0f32, 0.0], [0.0, 4.0]];
    let entries = [(&keys[0][..], &values[0][..]), (&keys[1], &values[1])];
    // Scores of ln 3 and 0: weights of 3/4 and 1/4.
    let out = attend(&[1.0, 0.0], &entries, 3f32.ln() / 2.0);
    assert!((out[0] - 0.75).abs() < 1e-7 && (out[1] - 1.0).abs() < 1e-7, "{out:?}");
    assert_eq!(attend(&[1.0, 0.0], &[], 1.0), [0.0, 0.0]);
}

#[test]
fn q8_0_keeps_steps_of_the_largest_magnitude_over_127() {
    let mut values = [0.0; 64];
    (values[0], values[1], values[2], values[3]) = (-254.0, 3.0, 2.9, -1.1);
    let blocks = q8_0(&values);
    assert_eq!((blocks[0].0, &blocks[0].1[..5]), (f16::from_f32(2.0), &[-127, 2, 1, -1, 0][..]));
    assert_eq!(blocks[1], (f16::ZERO, [0; 32]));
    let bytes = q8_0_bytes(&values);
    assert_eq!((bytes.len(), &bytes[..5]), (68, &[0x00, 0x40, 0x81, 2, 1][..]));
}

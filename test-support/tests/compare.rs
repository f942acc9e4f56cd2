//! Comparisons measure what they say, and nothing that is not a number passes them.
use ember_test_support::{
    cosine, distance, lowest_cosine, max_difference, max_relative, max_relative_by_row,
};
use std::panic::catch_unwind;

type Comparison = fn(&[f32], &[f64]) -> f64;

const COMPARISONS: [(&str, Comparison); 6] = [
    ("max_difference", |a, e| max_difference(a, e)),
    ("max_relative", |a, e| max_relative(a, e)),
    ("distance", |a, e| distance(a, e)),
    ("cosine", |a, e| cosine(a, e)),
    ("max_relative_by_row", |a, e| max_relative_by_row(a, e, 2)),
    ("lowest_cosine", |a, e| lowest_cosine(a, e, 2)),
];

/// The message with which a comparison fails.
fn failure(comparison: Comparison, actual: &[f32], expected: &[f64]) -> String {
    let failed = catch_unwind(|| comparison(actual, expected)).expect_err("it passes");
    *failed.downcast::<String>().expect("a formatted message")
}

#[test]
fn every_comparison_measures_what_its_name_says() {
    let (actual, expected) = ([3.0, 4.0, 0.5, 0.0], [3.0, 4.0, 0.0, 0.5]);
    let found = COMPARISONS.map(|(_, comparison)| comparison(&actual, &expected));
    let rows_apart = 0.5;
    assert_eq!(found[0], rows_apart);
    assert_eq!(found[1], rows_apart / 4.0);
    assert!((found[2] - (0.5f64 / 25.25).sqrt()).abs() < 1e-15);
    assert!((found[3] - 25.0 / 25.25).abs() < 1e-15);
    assert_eq!(found[4], 1.0, "the second row by its own magnitude");
    assert_eq!(found[5], 0.0, "the second row is at a right angle");
}

#[test]
fn what_is_not_finite_fails_every_comparison() {
    let good = [1.0, -2.0, 3.0, 4.0];
    for (name, comparison) in COMPARISONS {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in 0..4 {
                let mut values = good;
                values[at] = bad;
                let message = failure(comparison, &values, &good.map(f64::from));
                assert!(message.contains(&format!("is {bad}, expected ")), "{name}: {message}");
                let message = failure(comparison, &good, &values.map(f64::from));
                assert!(message.contains(&format!("expected {bad}: not finite")), "{name}: {message}");
            }
            failure(comparison, &[bad; 4], &[f64::from(bad); 4]);
        }
    }
}

#[test]
fn lengths_that_differ_fail_every_comparison() {
    for (name, comparison) in COMPARISONS {
        for (actual, expected) in [(&[1.0f32; 4][..], &[1.0f64; 2][..]), (&[1.0; 2], &[1.0; 4])] {
            let message = failure(comparison, actual, expected);
            assert!(message.contains("lengths differ"), "{name}: {message}");
        }
        let failed = catch_unwind(|| comparison(&[], &[])).expect_err("nothing was compared");
        assert_eq!(failed.downcast_ref(), Some(&"there is nothing to compare"), "{name}");
    }
    assert!(failure(|a, e| max_relative_by_row(a, e, 3), &[1.0; 4], &[1.0; 4]).contains("rows of 3"));
    assert!(failure(|a, e| lowest_cosine(a, e, 3), &[1.0; 4], &[1.0; 4]).contains("rows of 3"));
}

#[test]
fn zeros_are_equal_to_zeros_only() {
    let zeros = [0.0f64; 2];
    assert_eq!((max_relative(&[0.0f32; 2], &zeros), distance(&[0.0f32; 2], &zeros)), (0.0, 0.0));
    assert_eq!(max_relative(&[0.0f32, 1e-30], &zeros), f64::INFINITY);
    assert_eq!(distance(&[0.0f32, 1e-30], &zeros), f64::INFINITY);
    catch_unwind(|| cosine(&[1.0f32; 2], &[0.0f64; 2])).expect_err("zeros have no direction");
}

//! RMSNorm.
use crate::device::{gpu, upload};
use ember_kernels_cubecl::norm;
use ember_test_support::{definition, distance, random};

const EPS: f32 = 1e-3;

#[test]
fn rows_of_any_width_are_normalised() {
    let gpu = gpu();
    for (rows, dim) in [(1, 1), (3, 64), (2, 200), (5, 1024), (1, 5120)] {
        let (x, weight) = (random(1, rows * dim), random(2, dim));
        let y = norm::rms_norm(&gpu, &upload(&gpu, &x), &upload(&gpu, &weight), EPS);
        let error = distance(&gpu.read_f32(&y).unwrap(), &definition::rms_norm(&x, &weight, EPS));
        assert!(error < 1e-6, "{rows} x {dim}: {error}");
    }
}

#[test]
fn the_sum_is_kept_and_normalised() {
    let gpu = gpu();
    let (rows, dim) = (4, 300);
    let (x, residual, weight) = (random(1, rows * dim), random(2, rows * dim), random(3, dim));
    let (sum, y) =
        norm::add_rms_norm(&gpu, &upload(&gpu, &residual), &upload(&gpu, &x), &upload(&gpu, &weight), EPS);
    let added: Vec<f32> = x.iter().zip(&residual).map(|(x, r)| x + r).collect();
    assert_eq!(gpu.read_f32(&sum).unwrap(), added);
    assert!(distance(&gpu.read_f32(&y).unwrap(), &definition::rms_norm(&added, &weight, EPS)) < 1e-6);
}

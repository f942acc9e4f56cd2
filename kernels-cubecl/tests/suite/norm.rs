//! RMSNorm.
use crate::device::{gpu, random, relative_error, upload};
use ember_kernels_cubecl::norm;

const EPS: f32 = 1e-3;

fn expected(x: &[f32], weight: &[f32]) -> Vec<f64> {
    x.chunks_exact(weight.len())
        .flat_map(|row| {
            let mean = row.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / row.len() as f64;
            let scale = (mean + f64::from(EPS)).sqrt().recip();
            row.iter().zip(weight).map(move |(&x, &w)| f64::from(x) * scale * f64::from(w))
        })
        .collect()
}

#[test]
fn rows_of_any_width_are_normalised() {
    let gpu = gpu();
    for (rows, dim) in [(1, 1), (3, 64), (2, 200), (5, 1024), (1, 5120)] {
        let (x, weight) = (random(rows * dim, 1), random(dim, 2));
        let y = norm::rms_norm(&gpu, &upload(&gpu, &x), &upload(&gpu, &weight), EPS);
        let error = relative_error(&gpu.read_f32(&y).unwrap(), &expected(&x, &weight));
        assert!(error < 1e-6, "{rows} x {dim}: {error}");
    }
}

#[test]
fn the_sum_is_kept_and_normalised() {
    let gpu = gpu();
    let (rows, dim) = (4, 300);
    let (x, residual, weight) = (random(rows * dim, 1), random(rows * dim, 2), random(dim, 3));
    let (sum, y) =
        norm::add_rms_norm(&gpu, &upload(&gpu, &residual), &upload(&gpu, &x), &upload(&gpu, &weight), EPS);
    let added: Vec<f32> = x.iter().zip(&residual).map(|(x, r)| x + r).collect();
    assert_eq!(gpu.read_f32(&sum).unwrap(), added);
    assert!(relative_error(&gpu.read_f32(&y).unwrap(), &expected(&added, &weight)) < 1e-6);
}

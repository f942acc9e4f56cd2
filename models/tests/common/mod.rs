//! Shared by the test targets: seeded numbers and comparisons.
#![allow(dead_code, reason = "every test target uses its own part of this module")]
pub mod golden;
pub mod invariance;
pub mod synthetic;
pub mod vision;

use burn::tensor::{Tensor, TensorData, backend::Backend};

/// Seeded values in [-1, 1): a 64-bit linear congruential generator is plenty for test inputs.
pub fn random(seed: u64, n: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// A tensor of seeded values.
pub fn tensor<B: Backend, const D: usize>(seed: u64, shape: [usize; D], device: &B::Device) -> Tensor<B, D> {
    Tensor::from_data(TensorData::new(random(seed, shape.iter().product()), shape), device)
}

/// Row-major elements.
pub fn values<B: Backend, const D: usize>(x: Tensor<B, D>) -> Vec<f32> {
    x.into_data().convert::<f32>().into_vec().expect("converted to f32")
}

/// Largest difference relative to the largest magnitude of `b`.
pub fn max_relative(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let largest = b.iter().fold(0f32, |m, v| m.max(v.abs()));
    a.iter().zip(b).fold(0f32, |m, (a, b)| m.max((a - b).abs())) / largest
}

/// Cosine of the angle between two vectors.
pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

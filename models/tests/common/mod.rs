//! Shared by the test targets: models and comparisons.
#![allow(dead_code, reason = "every test target uses its own part of this module")]
pub mod broken;
pub mod golden;
pub mod invariance;
pub mod synthetic;
pub mod vision;

use burn::tensor::{Tensor, backend::Backend};

/// Row-major elements.
pub fn values<B: Backend, const D: usize>(x: Tensor<B, D>) -> Vec<f32> {
    x.into_data().convert::<f32>().into_vec().expect("converted to f32")
}

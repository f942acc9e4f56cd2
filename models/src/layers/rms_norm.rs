//! Root-mean-square normalisation.
use crate::backend::Backend;
use burn::module::{Module, Param};
use burn::tensor::Tensor;

/// `x / sqrt(mean(x²) + eps) * weight` over the last dimension.
#[derive(Module, Debug)]
pub struct RmsNorm<B: Backend> {
    /// `[dim]`.
    pub weight: Param<Tensor<B, 1>>,
    eps: f32,
}

impl<B: Backend> RmsNorm<B> {
    /// A norm over vectors as long as `weight`.
    pub fn new(weight: Param<Tensor<B, 1>>, eps: f32) -> Self {
        Self { weight, eps }
    }

    /// # Shapes
    /// `[n, dim]` to `[n, dim]`.
    pub fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        B::rms_norm(x, self.weight.val(), self.eps)
    }

    /// Added to the mean square.
    pub fn eps(&self) -> f32 {
        self.eps
    }

    /// `residual + x` and its norm.
    ///
    /// # Shapes
    /// All `[n, dim]`.
    pub fn add_forward(&self, residual: Tensor<B, 2>, x: Tensor<B, 2>) -> (Tensor<B, 2>, Tensor<B, 2>) {
        B::add_rms_norm(residual, x, self.weight.val(), self.eps)
    }
}

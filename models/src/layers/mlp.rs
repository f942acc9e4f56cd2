//! The gated feed-forward network.
use super::Linear;
use crate::backend::Backend;
use crate::error::ModelError;
use crate::weights::Weights;
use burn::module::Module;
use burn::tensor::Tensor;
use ember_loaders::projector::Activation;

/// Rows that are run at once. A large image has 12 100 patches, and gate and up are eight times as wide as a patch.
const MAX_ROWS: usize = 2048;

/// `ffn_down(activation(ffn_gate(x)) * ffn_up(x))`.
#[derive(Module, Debug)]
pub struct Mlp<B: Backend> {
    /// `[ffn, hidden]`.
    pub ffn_gate: Linear<B>,
    /// `[ffn, hidden]`.
    pub ffn_up: Linear<B>,
    /// `[hidden, ffn]`.
    pub ffn_down: Linear<B>,
    activation: Activation,
}

impl<B: Backend> Mlp<B> {
    /// Makes the layer of `PREFIX.ffn_{gate,up,down}`.
    ///
    /// # Errors
    /// If a tensor is missing.
    pub fn load(weights: &Weights<'_, B>, activation: Activation, prefix: &str) -> Result<Self, ModelError> {
        let [ffn_gate, ffn_up] = weights.linear_group(prefix, ["ffn_gate", "ffn_up"])?;
        Ok(Self { ffn_gate, ffn_up, ffn_down: weights.linear(&format!("{prefix}.ffn_down"))?, activation })
    }

    /// # Shapes
    /// `[t, hidden]` to `[t, hidden]`.
    pub fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let [t, _] = x.dims();
        if t <= MAX_ROWS {
            return self.forward_rows(x);
        }
        let pieces = x.split(MAX_ROWS, 0).into_iter().map(|rows| self.forward_rows(rows));
        Tensor::cat(pieces.collect(), 0)
    }

    fn forward_rows(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let [gate, up] = Linear::forward_group([&self.ffn_gate, &self.ffn_up], x);
        self.ffn_down.forward(match self.activation {
            Activation::Silu => B::swiglu(gate, up),
            Activation::Gelu => B::geglu(gate, up),
        })
    }
}

//! The gated feed-forward network.
use super::Linear;
use crate::backend::Backend;
use crate::error::ModelError;
use crate::weights::Weights;
use burn::module::Module;
use burn::tensor::Tensor;

/// `ffn_down(silu(ffn_gate(x)) * ffn_up(x))`.
#[derive(Module, Debug)]
pub struct Mlp<B: Backend> {
    /// `[ffn, hidden]`.
    pub ffn_gate: Linear<B>,
    /// `[ffn, hidden]`.
    pub ffn_up: Linear<B>,
    /// `[hidden, ffn]`.
    pub ffn_down: Linear<B>,
}

impl<B: Backend> Mlp<B> {
    /// Reads `blk.N.ffn_{gate,up,down}` of block `prefix`.
    ///
    /// # Errors
    /// When a tensor is missing.
    pub fn load(weights: &Weights<'_, B>, prefix: &str) -> Result<Self, ModelError> {
        let [ffn_gate, ffn_up] = weights.linear_group(prefix, ["ffn_gate", "ffn_up"])?;
        Ok(Self { ffn_gate, ffn_up, ffn_down: weights.linear(&format!("{prefix}.ffn_down"))? })
    }

    /// # Shapes
    /// `[t, hidden]` to `[t, hidden]`.
    pub fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let [gate, up] = Linear::forward_group([&self.ffn_gate, &self.ffn_up], x);
        self.ffn_down.forward(B::swiglu(gate, up))
    }
}

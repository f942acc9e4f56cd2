//! The pre-norm block of the text decoders and of the vision tower.
use super::{Attention, Mlp, RmsNorm};
use crate::backend::Backend;
use crate::error::ModelError;
use crate::kv_cache::KvCache;
use crate::step::Step;
use crate::weights::Weights;
use burn::module::Module;
use burn::tensor::Tensor;
use ember_loaders::checkpoint::ModelConfig;
use ember_loaders::projector::{Activation, PixtralConfig};

/// `x += attention(attn_norm(x)); x += mlp(ffn_norm(x))`.
#[derive(Module, Debug)]
pub struct Block<B: Backend> {
    /// `[hidden]`.
    pub attn_norm: RmsNorm<B>,
    /// Grouped-query attention.
    pub attention: Attention<B>,
    /// `[hidden]`.
    pub ffn_norm: RmsNorm<B>,
    /// Gated feed-forward network.
    pub mlp: Mlp<B>,
}

/// Properties of a block that its tensors do not say.
#[derive(Clone, Copy, Debug)]
pub struct BlockShape {
    /// Width of a head.
    pub head_dim: usize,
    /// Factor of the attention scores.
    pub score_scale: f32,
    /// Epsilon of every norm.
    pub norm_eps: f32,
    /// Gate of the feed-forward network.
    pub activation: Activation,
}

impl From<&ModelConfig> for BlockShape {
    fn from(config: &ModelConfig) -> Self {
        Self {
            head_dim: config.head_dim,
            score_scale: config.score_scale(),
            norm_eps: config.norm_eps,
            activation: Activation::Silu,
        }
    }
}

impl From<&PixtralConfig> for BlockShape {
    fn from(config: &PixtralConfig) -> Self {
        Self {
            head_dim: config.head_dim,
            score_scale: 1.0 / (config.head_dim as f32).sqrt(),
            norm_eps: config.norm_eps,
            activation: config.activation,
        }
    }
}

impl<B: Backend> Block<B> {
    /// Makes a block of the tensors `PREFIX.*`.
    ///
    /// # Errors
    /// If a tensor is missing.
    pub fn load(weights: &Weights<'_, B>, shape: &BlockShape, prefix: &str) -> Result<Self, ModelError> {
        Ok(Self {
            attn_norm: weights.rms_norm(&format!("{prefix}.attn_norm"), shape.norm_eps)?,
            attention: Attention::load(weights, shape, prefix)?,
            ffn_norm: weights.rms_norm(&format!("{prefix}.ffn_norm"), shape.norm_eps)?,
            mlp: Mlp::load(weights, shape.activation, prefix)?,
        })
    }

    /// Runs blocks one after the other; each addition of a residual is done with the norm that follows it.
    ///
    /// # Shapes
    /// `[t, hidden]` to `[t, hidden]`.
    ///
    /// # Panics
    /// If there is a cache but the step is not over pages, or the other way round.
    pub fn forward_all(
        blocks: &[Self],
        x: Tensor<B, 2>,
        step: &Step<'_, B>,
        mut cache: Option<&mut KvCache>,
    ) -> Tensor<B, 2> {
        assert_eq!(step.has_pages(), cache.is_some(), "a step over pages comes with their cache");
        let mut residual = x;
        let mut update: Option<Tensor<B, 2>> = None;
        for (i, block) in blocks.iter().enumerate() {
            let (sum, normed) = match update {
                Some(update) => block.attn_norm.add_forward(residual, update),
                None => (residual.clone(), block.attn_norm.forward(residual)),
            };
            let mixed = block.attention.forward(normed, i, step, cache.as_deref_mut());
            let (sum, normed) = block.ffn_norm.add_forward(sum, mixed);
            (residual, update) = (sum, Some(block.mlp.forward(normed)));
        }
        match update {
            Some(update) => residual + update,
            None => residual,
        }
    }
}

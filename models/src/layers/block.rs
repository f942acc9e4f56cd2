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

    /// Runs blocks one after the other.
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
        let mut x = Residual::new(x);
        for (i, block) in blocks.iter().enumerate() {
            x = block.attend(x, i, step, cache.as_deref_mut());
            x = block.feed_forward(x);
        }
        x.into_sum()
    }

    /// The first half, of layer `layer`: `x += attention(attn_norm(x))`.
    ///
    /// # Panics
    /// As [`forward_all`](Self::forward_all).
    pub fn attend(
        &self,
        x: Residual<B>,
        layer: usize,
        step: &Step<'_, B>,
        cache: Option<&mut KvCache>,
    ) -> Residual<B> {
        assert_eq!(step.has_pages(), cache.is_some(), "a step over pages comes with their cache");
        let (sum, normed) = x.normed(&self.attn_norm);
        Residual { sum, update: Some(self.attention.forward(normed, layer, step, cache)) }
    }

    /// The first half with `attention` in the place of [`Attention::forward`], over the normalised hidden states.
    pub(crate) fn attend_with(
        &self,
        x: Residual<B>,
        attention: impl FnOnce(&Attention<B>, Tensor<B, 2>) -> Result<Tensor<B, 2>, ModelError>,
    ) -> Result<Residual<B>, ModelError> {
        let (sum, normed) = x.normed(&self.attn_norm);
        Ok(Residual { sum, update: Some(attention(&self.attention, normed)?) })
    }

    /// The second half: `x += mlp(ffn_norm(x))`.
    pub fn feed_forward(&self, x: Residual<B>) -> Residual<B> {
        let (sum, normed) = x.normed(&self.ffn_norm);
        Residual { sum, update: Some(self.mlp.forward(normed)) }
    }
}

/// The hidden states between two halves of blocks, `[t, hidden]`, whose last addition is still to be done: together with
/// the norm that follows it.
#[derive(Clone, Debug)]
pub struct Residual<B: Backend> {
    sum: Tensor<B, 2>,
    update: Option<Tensor<B, 2>>,
}

impl<B: Backend> Residual<B> {
    /// Hidden states to which nothing is to be added.
    pub fn new(x: Tensor<B, 2>) -> Self {
        Self { sum: x, update: None }
    }

    /// The hidden states.
    pub fn into_sum(self) -> Tensor<B, 2> {
        match self.update {
            Some(update) => self.sum + update,
            None => self.sum,
        }
    }

    /// The hidden states and their norm.
    fn normed(self, norm: &RmsNorm<B>) -> (Tensor<B, 2>, Tensor<B, 2>) {
        match self.update {
            Some(update) => norm.add_forward(self.sum, update),
            None => (self.sum.clone(), norm.forward(self.sum)),
        }
    }
}

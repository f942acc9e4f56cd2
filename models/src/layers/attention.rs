//! Grouped-query attention, over the paged cache or over the rows themselves.
use super::{BlockShape, Linear, RmsNorm};
use crate::backend::{Backend, HeadInput, HeadNorms, default};
use crate::error::ModelError;
use crate::kv_cache::KvCache;
use crate::step::Step;
use crate::weights::Weights;
use burn::module::Module;
use burn::tensor::Tensor;

/// Query, key, value and output projections of one block, and the norms between them.
#[derive(Module, Debug)]
pub struct Attention<B: Backend> {
    /// `[heads * head_dim, hidden]`.
    pub attn_q: Linear<B>,
    /// `[kv_heads * head_dim, hidden]`.
    pub attn_k: Linear<B>,
    /// `[kv_heads * head_dim, hidden]`.
    pub attn_v: Linear<B>,
    /// `[hidden, heads * head_dim]`.
    pub attn_output: Linear<B>,
    /// `[head_dim]`, Qwen3 only.
    pub attn_q_norm: Option<RmsNorm<B>>,
    /// `[head_dim]`, Qwen3 only.
    pub attn_k_norm: Option<RmsNorm<B>>,
    head_dim: usize,
    scale: f32,
}

impl<B: Backend> Attention<B> {
    /// Makes the layer of `PREFIX.attn_*`.
    ///
    /// # Errors
    /// If a tensor is missing.
    pub fn load(weights: &Weights<'_, B>, shape: &BlockShape, prefix: &str) -> Result<Self, ModelError> {
        let head_norm = |name: &str| weights.opt_rms_norm(&format!("{prefix}.{name}"), shape.norm_eps);
        let [attn_q, attn_k, attn_v] = weights.linear_group(prefix, ["attn_q", "attn_k", "attn_v"])?;
        Ok(Self {
            attn_q,
            attn_k,
            attn_v,
            attn_output: weights.linear(&format!("{prefix}.attn_output"))?,
            attn_q_norm: head_norm("attn_q_norm")?,
            attn_k_norm: head_norm("attn_k_norm")?,
            head_dim: shape.head_dim,
            scale: shape.score_scale,
        })
    }

    /// Attention of the step's rows over each other, or over the pages of `layer` once the rows are written there.
    ///
    /// # Shapes
    /// `[t, hidden]` to `[t, hidden]`.
    pub fn forward(
        &self,
        x: Tensor<B, 2>,
        layer: usize,
        step: &Step<'_, B>,
        cache: Option<&mut KvCache>,
    ) -> Tensor<B, 2> {
        self.mix(self.project(x), layer, step, cache)
    }

    /// Queries, keys and values of the rows `x`, `[t, hidden]`.
    pub(crate) fn project(&self, x: Tensor<B, 2>) -> HeadInput<B> {
        let [t, _] = x.dims();
        let layers = [&self.attn_q, &self.attn_k, &self.attn_v];
        let [q, k, v] = Linear::forward_group(layers, x);
        let heads = |x: Tensor<B, 2>| {
            let n = x.dims()[1] / self.head_dim;
            x.reshape([t, n, self.head_dim])
        };
        HeadInput { q: heads(q), k: heads(k), v: heads(v), norms: self.head_norms() }
    }

    /// What follows the projections, as in [`forward`](Self::forward).
    pub(crate) fn mix(
        &self,
        heads: HeadInput<B>,
        layer: usize,
        step: &Step<'_, B>,
        cache: Option<&mut KvCache>,
    ) -> Tensor<B, 2> {
        let mixed = match cache {
            None => {
                let [q, k, v] = default::rotate(heads, step);
                B::unpaged_attention(q, k, v, &step.visible, self.scale)
            }
            Some(cache) => {
                let pages = cache.layer_mut(layer);
                let q = B::rotate_and_write(heads, pages, step);
                B::paged_attention(q, pages, step, self.scale)
            }
        };
        let [t, heads, _] = mixed.dims();
        self.attn_output.forward(mixed.reshape([t, heads * self.head_dim]))
    }

    fn head_norms(&self) -> Option<HeadNorms<B>> {
        let (q, k) = (self.attn_q_norm.as_ref()?, self.attn_k_norm.as_ref()?);
        Some(HeadNorms { q: q.weight.val(), k: k.weight.val(), eps: q.eps() })
    }
}

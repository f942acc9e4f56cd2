//! Grouped-query attention, over the paged cache or over the rows themselves.
use super::rope::RopeTable;
use super::{BlockShape, Linear, RmsNorm};
use crate::backend::{Backend, HeadInput, HeadNorms, default};
use crate::batch::StepPlan;
use crate::error::ModelError;
use crate::kv_cache::KvCache;
use crate::weights::Weights;
use burn::module::Module;
use burn::tensor::Tensor;
use std::ops::Range;

/// Query, key, value and output projections of one block, with what the architecture puts between them.
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

/// What one step's rows need besides their hidden states, the same for all layers.
pub struct AttentionInput<'a, B: Backend> {
    /// Angles of the rows.
    pub rope: RopeTable<B>,
    /// Mistral 3's multiplier of each row's queries, when any differs from one.
    pub query_scale: Option<Vec<f32>>,
    /// Where keys and values come from.
    pub keys: Keys<'a>,
}

/// Where a block's keys and values come from.
pub enum Keys<'a> {
    /// The rows themselves: row `i` attends to the rows `visible[i]`. Differentiable.
    Rows {
        /// One range per row.
        visible: &'a [Range<u32>],
    },
    /// The paged cache, into which the rows are written first.
    Paged {
        /// The pools of all layers.
        cache: &'a mut KvCache,
        /// Slots and sequences of the batch.
        plan: StepPlan<'a>,
    },
}

impl<B: Backend> Attention<B> {
    /// Reads `PREFIX.attn_*`.
    ///
    /// # Errors
    /// When a tensor is missing.
    pub fn load(weights: &Weights<'_, B>, shape: &BlockShape, prefix: &str) -> Result<Self, ModelError> {
        let head_norm = |name: &str| {
            let norm = || weights.rms_norm(&format!("{prefix}.{name}"), shape.norm_eps);
            shape.qk_norm.then(norm).transpose()
        };
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

    /// # Shapes
    /// `[t, hidden]` to `[t, hidden]`.
    pub fn forward(&self, x: Tensor<B, 2>, layer: usize, input: &mut AttentionInput<'_, B>) -> Tensor<B, 2> {
        let [t, _] = x.dims();
        let layers = [&self.attn_q, &self.attn_k, &self.attn_v];
        let [q, k, v] = Linear::forward_group(layers, x);
        let heads = |x: Tensor<B, 2>| {
            let n = x.dims()[1] / self.head_dim;
            x.reshape([t, n, self.head_dim])
        };
        let heads = HeadInput {
            q: heads(q),
            k: heads(k),
            v: heads(v),
            norms: self.head_norms(),
            rope: &input.rope,
            query_scale: input.query_scale.as_deref(),
        };
        let mixed = match &mut input.keys {
            Keys::Rows { visible } => {
                let [q, k, v] = default::rotate(heads);
                B::dense_attention(q, k, v, visible, self.scale)
            }
            Keys::Paged { cache, plan } => {
                let layout = cache.layout();
                let pages = cache.layer_mut(layer);
                let q = B::rotate_and_write(heads, pages, layout, plan);
                B::paged_attention(q, pages, layout, plan, self.scale)
            }
        };
        let width = mixed.dims()[1] * self.head_dim;
        self.attn_output.forward(mixed.reshape([t, width]))
    }

    fn head_norms(&self) -> Option<HeadNorms<B>> {
        let (q, k) = (self.attn_q_norm.as_ref()?, self.attn_k_norm.as_ref()?);
        Some(HeadNorms { q: q.weight.val(), k: k.weight.val(), eps: q.eps() })
    }
}

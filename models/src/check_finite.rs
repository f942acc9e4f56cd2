//! Steps that look for the first number that is not finite, part by part.
use crate::backend::{Backend, default, read};
use crate::batch::Batch;
use crate::error::ModelError;
use crate::kv_cache::KvCache;
use crate::layers::{Block, Residual};
use crate::step::Step;
use burn::tensor::Tensor;
use ember_formats::KvType;
use half::{bf16, f16};
use std::fmt;

/// A part of a step, in the order in which they are computed. Layers count from 0, as in the names of tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepPart {
    /// The embeddings of tokens and images.
    Embeddings,
    /// The keys of a layer, as the KV cache holds them.
    Keys(usize),
    /// The values of a layer, as the KV cache holds them.
    Values(usize),
    /// The hidden states after a layer's attention was added.
    Attention(usize),
    /// The hidden states after a layer's feed-forward network was added.
    FeedForward(usize),
    /// The final norm and the head.
    Head,
}

impl fmt::Display for StepPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embeddings => f.write_str("the embeddings"),
            Self::Keys(layer) => write!(f, "layer {layer} (keys in the KV cache)"),
            Self::Values(layer) => write!(f, "layer {layer} (values in the KV cache)"),
            Self::Attention(layer) => write!(f, "layer {layer} (attention output)"),
            Self::FeedForward(layer) => write!(f, "layer {layer} (feed-forward output)"),
            Self::Head => f.write_str("the output head"),
        }
    }
}

/// Runs blocks as [`Block::forward_all`] does, and reads back what each half of them leaves.
pub(crate) fn forward_all<B: Backend>(
    blocks: &[Block<B>],
    x: Tensor<B, 2>,
    batch: &Batch,
    step: &Step<'_, B>,
    cache: &mut KvCache,
) -> Result<Tensor<B, 2>, ModelError> {
    check(StepPart::Embeddings, x.clone(), batch, f32::is_finite)?;
    let ty = cache.layout().ty;
    let fits = |value| fits(ty, value);
    let mut x = Residual::new(x);
    for (i, block) in blocks.iter().enumerate() {
        x = block.attend_with(x, |attention, normed| {
            let heads = attention.project(normed);
            let [_, keys, values] = default::rotate(heads.clone(), step);
            check(StepPart::Keys(i), keys, batch, fits)?;
            check(StepPart::Values(i), values, batch, fits)?;
            Ok(attention.mix(heads, i, step, Some(cache)))
        })?;
        check(StepPart::Attention(i), x.clone().into_sum(), batch, f32::is_finite)?;
        x = block.feed_forward(x);
        check(StepPart::FeedForward(i), x.clone().into_sum(), batch, f32::is_finite)?;
    }
    Ok(x.into_sum())
}

/// True if the cache holds `value`, or a block with it as its largest, as a finite number.
fn fits(ty: KvType, value: f32) -> bool {
    match ty {
        KvType::F32 => value.is_finite(),
        KvType::F16 => f16::from_f32(value).is_finite(),
        KvType::BF16 => bf16::from_f32(value).is_finite(),
        KvType::Q8_0 => f16::from_f32(value / 127.0).is_finite(),
    }
}

fn check<B: Backend, const D: usize>(
    part: StepPart,
    x: Tensor<B, D>,
    batch: &Batch,
    is_good: impl Fn(f32) -> bool,
) -> Result<(), ModelError> {
    let values = read(x)?;
    match values.iter().position(|&value| !is_good(value)) {
        Some(at) => {
            let row = at / (values.len() / batch.len());
            let position = batch.positions[row] as usize;
            Err(ModelError::BreakDown { part, value: values[at], row, position })
        }
        None => Ok(()),
    }
}

//! Hyperparameters of a checkpoint, the same for GGUF files and HF folders.

use super::arch::{Arch, DECODER};
use super::error::CheckpointError;
use super::query_scale::QueryScale;
use super::rope::RopeConfig;
use super::tensors::TensorSpec;
use std::fmt;

/// Hyperparameters, checked: no size is 0, every division is exact, and every tensor has the shape they give.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// The architecture that serves the checkpoint.
    pub arch: Arch,
    /// `general.name`, or the HF folder's name.
    pub name: Option<String>,
    /// Decoder blocks.
    pub n_layers: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width inside the feed-forward block.
    pub ffn_size: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key/value heads; divides `n_heads`.
    pub n_kv_heads: usize,
    /// Width of a head; not always `hidden_size / n_heads`. Even.
    pub head_dim: usize,
    /// Rows of the embedding and of the head.
    pub vocab_size: usize,
    /// Context that the checkpoint states, in tokens; see [`context_limit`](Self::context_limit).
    pub context_length: usize,
    /// Epsilon of every RMSNorm.
    pub norm_eps: f32,
    /// Rotary positions.
    pub rope: RopeConfig,
    /// Position-dependent scale of the queries, when the checkpoint asks for it.
    pub query_scale: Option<QueryScale>,
    /// Factor of the attention scores when it is not `1 / sqrt(head_dim)`.
    pub attention_scale: Option<f32>,
    /// True if each head of Q and K has an RMSNorm (`attn_q_norm`, `attn_k_norm`).
    pub qk_norm: bool,
    /// True if Q, K and V have biases.
    pub qkv_bias: bool,
    /// True if the head is the embedding (there is no `output.weight`).
    pub tied_embeddings: bool,
    /// The file's own architecture label when it differs from `arch`: Mistral Small 3.x labelled `llama`.
    pub relabelled_from: Option<String>,
}

impl ModelConfig {
    /// Factor of the attention scores.
    pub fn score_scale(&self) -> f32 {
        self.attention_scale.unwrap_or_else(|| 1.0 / (self.head_dim as f32).sqrt())
    }

    /// The longest context that the model may be given.
    pub fn context_limit(&self) -> ContextLimit {
        ContextLimit { stated: self.context_length, yarn: self.rope.yarn_stretch() }
    }

    /// Rows of `attn_q.weight` and columns of `attn_output.weight`.
    pub fn q_size(&self) -> usize {
        self.n_heads * self.head_dim
    }

    /// Rows of `attn_k.weight` and of `attn_v.weight`.
    pub fn kv_size(&self) -> usize {
        self.n_kv_heads * self.head_dim
    }

    /// Every tensor of a checkpoint with these hyperparameters, in the order of a file.
    pub fn tensors(&self) -> Vec<TensorSpec> {
        DECODER.tensors(self, self.n_layers)
    }

    /// Checks that the numbers agree with each other; sizes themselves are checked where they are read.
    ///
    /// # Errors
    /// [`CheckpointError::Inconsistent`] naming the first contradiction.
    pub fn check(&self) -> Result<(), CheckpointError> {
        let problem = if !self.n_heads.is_multiple_of(self.n_kv_heads) {
            format!(
                "{} attention heads are not a multiple of {} key/value heads (attention.head_count, \
                 attention.head_count_kv)",
                self.n_heads, self.n_kv_heads
            )
        } else if !self.head_dim.is_multiple_of(2) {
            format!(
                "the head dimension {} (attention.key_length) is odd and cannot be rotated",
                self.head_dim
            )
        } else if self.rope.dim != self.head_dim {
            format!(
                "rope.dimension_count is {} but the head dimension is {}; {} rotates whole heads",
                self.rope.dim, self.head_dim, self.arch
            )
        } else if self.rope.freq_base <= 1.0 {
            format!("rope.freq_base is {}; it must be greater than 1", self.rope.freq_base)
        } else if !self.rope.is_finite() {
            "the rotary frequencies overflow; rope.scaling.* or rope.freq_base is damaged".to_owned()
        } else {
            return Ok(());
        };
        Err(CheckpointError::Inconsistent(problem))
    }
}

/// The longest context of a model, and what it follows from.
///
/// Qwen documents YaRN as a factor over the pretraining's 32768 tokens, beside a context length that still says 40960:
/// the larger of the two is what the frequencies are made for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContextLimit {
    /// The context length that the checkpoint states.
    pub stated: usize,
    /// The original context and the factor of YaRN, when the checkpoint has it.
    pub yarn: Option<(usize, f32)>,
}

impl ContextLimit {
    /// The limit.
    pub fn tokens(&self) -> usize {
        self.stated.max(self.stretched().unwrap_or(0))
    }

    fn stretched(&self) -> Option<usize> {
        let (original, factor) = self.yarn?;
        Some((original as f64 * f64::from(factor)).min(limits::CONTEXT as f64) as usize)
    }
}

impl fmt::Display for ContextLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} that the model allows", self.tokens())?;
        match (self.yarn, self.stretched()) {
            (Some((original, factor)), Some(stretched)) => write!(
                f,
                " (its context length is {}, and YaRN stretches {original} by {factor} to {stretched})",
                self.stated
            ),
            _ => Ok(()),
        }
    }
}

/// Checks a count or width that came from `key`: from 1 to `max`.
pub(crate) fn checked_size(key: &str, value: usize, max: usize) -> Result<usize, CheckpointError> {
    match value {
        0 => Err(CheckpointError::bad_value(key, "must not be 0")),
        value if value > max => {
            Err(CheckpointError::bad_value(key, format!("{value} is absurd (at most {max} is accepted)")))
        }
        value => Ok(value),
    }
}

/// Upper bounds of sizes, far above any real model: a larger value is a damaged or hostile file, and products of
/// values below them fit in a `usize`.
pub(crate) mod limits {
    pub const LAYERS: usize = 1 << 10;
    pub const WIDTH: usize = 1 << 22;
    pub const HEADS: usize = 1 << 16;
    pub const HEAD_DIM: usize = 1 << 14;
    pub const VOCAB: usize = 1 << 26;
    /// Positions are `u32`.
    pub const CONTEXT: usize = 1 << 31;
}

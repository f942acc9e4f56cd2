//! Qwen2 and Qwen2.5, the models from 0.5B to 72B that have no experts.
//!
//! A pre-norm decoder as [`Llama`](crate::Llama) ([`Decoder`] has the equations), with two differences:
//!
//! ```text
//! q, k, v = attn_q(y) + bias, attn_k(y) + bias, attn_v(y) + bias          y = attn_norm(x)
//! ```
//!
//! - **Biases on Q, K and V**, and on no other matrix. A checkpoint read without them would answer noise, so they are
//!   required. Qwen3 has norms of Q and K instead.
//! - **Rotation of `(i, i + head_dim / 2)`** (NeoX, Hugging Face's "rotate half"), with base 1 000 000: rows of Q and K are
//!   stored as trained.
//!
//! config.json names a sliding window that the models do not use unless `use_sliding_window` says so.
//!
//! Tensors, `[out, in]` as Burn sees them (GGUF writes sizes the other way round), with `h` query and `g` key/value heads
//! of width `d`:
//!
//! | tensor | shape |
//! |---|---|
//! | `token_embd`, `output` (absent when tied) | `[vocab, hidden]` |
//! | `output_norm`, `blk.N.attn_norm`, `blk.N.ffn_norm` | `[hidden]` |
//! | `blk.N.attn_q` | `[h * d, hidden]`, bias `[h * d]` |
//! | `blk.N.attn_k`, `blk.N.attn_v` | `[g * d, hidden]`, bias `[g * d]` |
//! | `blk.N.attn_output` | `[hidden, h * d]` |
//! | `blk.N.ffn_gate`, `blk.N.ffn_up` | `[ffn, hidden]` |
//! | `blk.N.ffn_down` | `[hidden, ffn]` |
//!
//! The definition is Hugging Face's `Qwen2ForCausalLM`.
use crate::backend::Backend;
use crate::{Decoder, ModelError, WeightFormat};
use burn::config::Config;
use burn::module::Module;
use burn::tensor::{Int, Tensor};
use ember_loaders::checkpoint::{Arch, Checkpoint, ModelConfig, Pairing, RopeConfig, RopeScaling};
use ember_loaders::gguf::Gguf;

/// Hyperparameters of a Qwen2 model; [`new`](Self::new) gives those of Qwen2.5-0.5B.
#[derive(Config, Debug, PartialEq)]
pub struct Qwen2Config {
    /// Rows of the embedding.
    #[config(default = 151936)]
    pub vocab_size: usize,
    /// Width of the residual stream.
    #[config(default = 896)]
    pub hidden_size: usize,
    /// Width of the feed-forward network.
    #[config(default = 4864)]
    pub ffn_size: usize,
    /// Blocks.
    #[config(default = 24)]
    pub n_layers: usize,
    /// Query heads.
    #[config(default = 14)]
    pub n_heads: usize,
    /// Key/value heads; divides `n_heads`.
    #[config(default = 2)]
    pub n_kv_heads: usize,
    /// Width of a head; even.
    #[config(default = 64)]
    pub head_dim: usize,
    /// Longest context in tokens.
    #[config(default = 32768)]
    pub context_length: usize,
    /// Epsilon of every RMSNorm.
    #[config(default = 1e-6)]
    pub norm_eps: f32,
    /// Base of the rotary frequencies.
    #[config(default = 1e6)]
    pub rope_freq_base: f32,
    /// The head is the embedding.
    #[config(default = true)]
    pub tied_embeddings: bool,
}

impl From<&Qwen2Config> for ModelConfig {
    fn from(config: &Qwen2Config) -> Self {
        Self {
            arch: Arch::Qwen2,
            name: None,
            n_layers: config.n_layers,
            hidden_size: config.hidden_size,
            ffn_size: config.ffn_size,
            n_heads: config.n_heads,
            n_kv_heads: config.n_kv_heads,
            head_dim: config.head_dim,
            vocab_size: config.vocab_size,
            context_length: config.context_length,
            norm_eps: config.norm_eps,
            rope: RopeConfig {
                dim: config.head_dim,
                freq_base: config.rope_freq_base,
                pairing: Pairing::Half,
                scaling: RopeScaling::None,
            },
            query_scale: None,
            attention_scale: None,
            qk_norm: false,
            qkv_bias: true,
            tied_embeddings: config.tied_embeddings,
            relabelled_from: None,
        }
    }
}

impl Qwen2Config {
    /// A model of random weights; see [`Decoder::init`].
    ///
    /// # Panics
    /// If the sizes contradict each other.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Qwen2<B> {
        Qwen2 { decoder: Decoder::init(self.into(), device) }
    }
}

/// A Qwen2 model.
#[derive(Module, Debug)]
pub struct Qwen2<B: Backend> {
    /// The decoder, every block with biases on `attn_q`, `attn_k` and `attn_v`.
    pub decoder: Decoder<B>,
}

impl<B: Backend> Qwen2<B> {
    /// Loads a GGUF file, its weights left in their blocks.
    ///
    /// # Errors
    /// If the file is of another architecture or lacks a tensor.
    pub fn from_gguf(gguf: Gguf, device: &B::Device) -> Result<Self, ModelError> {
        Self::from_checkpoint(&Checkpoint::from_gguf(gguf)?, WeightFormat::Packed, device)
    }

    /// Loads any checkpoint, with weights packed or as parameters.
    ///
    /// # Errors
    /// If the checkpoint is of another architecture or lacks a tensor.
    pub fn from_checkpoint(
        checkpoint: &Checkpoint,
        format: WeightFormat,
        device: &B::Device,
    ) -> Result<Self, ModelError> {
        ModelError::check_family(checkpoint, Arch::Qwen2, "Qwen2")?;
        Ok(Self { decoder: Decoder::load(checkpoint, format, device)? })
    }

    /// Logits of every position, without a cache; see [`Decoder::forward`].
    ///
    /// # Shapes
    /// `[batch, seq]` to `[batch, seq, vocab]`.
    pub fn forward(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        self.decoder.forward(tokens)
    }
}

//! Llama: the plain decoder (Llama 2 and 3, SmolLM2, Mistral 7B, Mistral Nemo and their relatives).
//!
//! This is [`Decoder`]'s equations with nothing added; the other families are told as differences from it.
//!
//! ```text
//! q, k, v = rope(attn_q(y)), rope(attn_k(y)), attn_v(y)          y = attn_norm(x)
//! x += attn_output(softmax(q · kᵀ / sqrt(head_dim)) · v)
//! ```
//!
//! - **Rotation of adjacent pairs `(2i, 2i + 1)`.** Hugging Face's weights are made for `(i, i + head_dim / 2)`; GGUF's
//!   converter permutes the rows of Q and K of each head so that adjacent elements meet, and so does Ember with HF folders.
//!   Both give the same scores: a permutation of a head's elements, the same in Q and in K, leaves their product alone.
//! - **Llama 3.1 and later stretch low frequencies** by factors that come as a tensor, `rope_freqs.weight`, and divide the
//!   frequencies. A model made of a configuration has none.
//! - **Grouped-query attention** where there are fewer key/value heads than query heads; Llama 2 has as many.
//! - Some relatives have biases on Q, K and V; they are read when the checkpoint has them.
//!
//! Tensors, `[out, in]` as Burn sees them (GGUF writes sizes the other way round), with `h` query and `g` key/value heads
//! of width `d`:
//!
//! | tensor | shape |
//! |---|---|
//! | `token_embd`, `output` (absent when tied) | `[vocab, hidden]` |
//! | `output_norm`, `blk.N.attn_norm`, `blk.N.ffn_norm` | `[hidden]` |
//! | `blk.N.attn_q` | `[h * d, hidden]` |
//! | `blk.N.attn_k`, `blk.N.attn_v` | `[g * d, hidden]` |
//! | `blk.N.attn_output` | `[hidden, h * d]` |
//! | `blk.N.ffn_gate`, `blk.N.ffn_up` | `[ffn, hidden]` |
//! | `blk.N.ffn_down` | `[hidden, ffn]` |
//! | `rope_freqs` (Llama 3.1 and later) | `[d / 2]` |
//!
//! The definition is Hugging Face's `LlamaForCausalLM`.
use crate::backend::Backend;
use crate::{Decoder, ModelError, WeightFormat};
use burn::config::Config;
use burn::module::Module;
use burn::tensor::{Int, Tensor};
use ember_loaders::checkpoint::{Arch, Checkpoint, ModelConfig, Pairing, RopeConfig, RopeScaling};
use ember_loaders::gguf::Gguf;

/// Hyperparameters of a Llama model; [`new`](Self::new) gives those of SmolLM2-135M.
#[derive(Config, Debug, PartialEq)]
pub struct LlamaConfig {
    /// Rows of the embedding.
    #[config(default = 49152)]
    pub vocab_size: usize,
    /// Width of the residual stream.
    #[config(default = 576)]
    pub hidden_size: usize,
    /// Width of the feed-forward network.
    #[config(default = 1536)]
    pub ffn_size: usize,
    /// Blocks.
    #[config(default = 30)]
    pub n_layers: usize,
    /// Query heads.
    #[config(default = 9)]
    pub n_heads: usize,
    /// Key/value heads; divides `n_heads`.
    #[config(default = 3)]
    pub n_kv_heads: usize,
    /// Width of a head; even.
    #[config(default = 64)]
    pub head_dim: usize,
    /// Longest context in tokens.
    #[config(default = 8192)]
    pub context_length: usize,
    /// Epsilon of every RMSNorm.
    #[config(default = 1e-5)]
    pub norm_eps: f32,
    /// Base of the rotary frequencies.
    #[config(default = 1e5)]
    pub rope_freq_base: f32,
    /// The head is the embedding.
    #[config(default = true)]
    pub tied_embeddings: bool,
}

impl From<&LlamaConfig> for ModelConfig {
    fn from(config: &LlamaConfig) -> Self {
        Self {
            arch: Arch::Llama,
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
                pairing: Pairing::Adjacent,
                scaling: RopeScaling::None,
            },
            query_scale: None,
            attention_scale: None,
            qk_norm: false,
            qkv_bias: false,
            tied_embeddings: config.tied_embeddings,
            relabelled_from: None,
        }
    }
}

impl LlamaConfig {
    /// A model of random weights; see [`Decoder::init`].
    ///
    /// # Panics
    /// If the sizes contradict each other.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Llama<B> {
        Llama { decoder: Decoder::init(self.into(), device) }
    }
}

/// A Llama model.
#[derive(Module, Debug)]
pub struct Llama<B: Backend> {
    /// The decoder.
    pub decoder: Decoder<B>,
}

impl<B: Backend> Llama<B> {
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
        ModelError::check_family(checkpoint, Arch::Llama, "Llama")?;
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

//! Qwen3, the models from 0.6B to 32B that have no experts.
//!
//! A pre-norm decoder with grouped-query attention and SwiGLU ([`Decoder`] has the equations). Against the plain decoder
//! of [`Llama`](crate::Llama) it differs in attention only:
//!
//! ```text
//! q, k, v = attn_q(y), attn_k(y), attn_v(y)          y = attn_norm(x); no biases, unlike Qwen2
//! q = rope(rms_norm(q) * attn_q_norm)                over each head, before the rotation
//! k = rope(rms_norm(k) * attn_k_norm)
//! x += attn_output(softmax(q · kᵀ / sqrt(head_dim)) · v)
//! ```
//!
//! - **RMSNorm of every head of Q and K.** One weight of `head_dim` values is shared by all heads of a layer. It bounds
//!   the scores whatever the projections do, and replaces the biases of Qwen2. It comes before the rotation: afterwards its
//!   weight would scale the two elements of a pair differently, and the angle would no longer be the position's.
//! - **Rotation of `(i, i + head_dim / 2)`** (NeoX, Hugging Face's "rotate half"), with base 1 000 000. Rows of Q and K are
//!   stored as trained; Llama's are permuted for adjacent pairs.
//! - **Heads are wider than their share** of the hidden size: 16 heads of 128 on a hidden size of 1024 in the 0.6B model.
//! - **The head is the embedding** up to 4B, a matrix of its own above.
//! - YaRN for contexts beyond 40 960 is a setting of the checkpoint, and none by default.
//!
//! Tensors, `[out, in]` as Burn sees them (GGUF writes sizes the other way round), with `h` query and `g` key/value heads
//! of width `d`:
//!
//! | tensor | shape |
//! |---|---|
//! | `token_embd`, `output` | `[vocab, hidden]` |
//! | `output_norm`, `blk.N.attn_norm`, `blk.N.ffn_norm` | `[hidden]` |
//! | `blk.N.attn_q` | `[h * d, hidden]` |
//! | `blk.N.attn_k`, `blk.N.attn_v` | `[g * d, hidden]` |
//! | `blk.N.attn_q_norm`, `blk.N.attn_k_norm` | `[d]` |
//! | `blk.N.attn_output` | `[hidden, h * d]` |
//! | `blk.N.ffn_gate`, `blk.N.ffn_up` | `[ffn, hidden]` |
//! | `blk.N.ffn_down` | `[hidden, ffn]` |
//!
//! The definition is Hugging Face's `Qwen3ForCausalLM`.
use crate::backend::Backend;
use crate::{Decoder, ModelError, WeightFormat};
use burn::config::Config;
use burn::module::Module;
use burn::tensor::{Int, Tensor};
use ember_loaders::checkpoint::{Arch, Checkpoint, ModelConfig, Pairing, RopeConfig, RopeScaling};
use ember_loaders::gguf::Gguf;

/// Hyperparameters of a Qwen3 model; [`new`](Self::new) gives those of Qwen3-0.6B.
#[derive(Config, Debug, PartialEq)]
pub struct Qwen3Config {
    /// Rows of the embedding.
    #[config(default = 151936)]
    pub vocab_size: usize,
    /// Width of the residual stream.
    #[config(default = 1024)]
    pub hidden_size: usize,
    /// Width of the feed-forward network.
    #[config(default = 3072)]
    pub ffn_size: usize,
    /// Blocks.
    #[config(default = 28)]
    pub n_layers: usize,
    /// Query heads.
    #[config(default = 16)]
    pub n_heads: usize,
    /// Key/value heads; divides `n_heads`.
    #[config(default = 8)]
    pub n_kv_heads: usize,
    /// Width of a head; even.
    #[config(default = 128)]
    pub head_dim: usize,
    /// Longest context in tokens.
    #[config(default = 40960)]
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

impl From<&Qwen3Config> for ModelConfig {
    fn from(config: &Qwen3Config) -> Self {
        Self {
            arch: Arch::Qwen3,
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
            qk_norm: true,
            qkv_bias: false,
            tied_embeddings: config.tied_embeddings,
            relabelled_from: None,
        }
    }
}

impl Qwen3Config {
    /// A model of random weights; see [`Decoder::init`].
    ///
    /// # Panics
    /// If the sizes contradict each other.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Qwen3<B> {
        Qwen3 { decoder: Decoder::init(self.into(), device) }
    }
}

/// A Qwen3 model.
#[derive(Module, Debug)]
pub struct Qwen3<B: Backend> {
    /// The decoder, every block with `attn_q_norm` and `attn_k_norm`.
    pub decoder: Decoder<B>,
}

impl<B: Backend> Qwen3<B> {
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
        ModelError::check_family(checkpoint, Arch::Qwen3, "Qwen3")?;
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

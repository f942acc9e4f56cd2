//! Mistral 3: Ministral 3 (3B, 8B, 14B) and the text model of Mistral Small 3.x (24B).
//!
//! A pre-norm decoder as [`Llama`](crate::Llama) ([`Decoder`] has the equations), with adjacent pairs `(2i, 2i + 1)` rotated
//! and no norms of Q and K. Ministral 3 adds two things for contexts far beyond the 16 384 tokens of its pretraining;
//! Mistral Small 3.x has neither, but a rotary base of 1e9.
//!
//! ```text
//! q, k = rope(attn_q(y)), rope(attn_k(y))            y = attn_norm(x); frequencies by YaRN
//! q = q * s(position)                                after the rotation
//! s(position) = 1 + beta * ln(1 + floor(position / original_context))
//! ```
//!
//! - **YaRN.** The pairs that turn often within the original context keep their frequency, those that turn less than once
//!   have it divided by the factor (16), and a linear ramp over the pair's index lies between:
//!
//!   ```text
//!   pair(n)  = head_dim * ln(original_context / (2π n)) / (2 ln base)      the pair that turns n times
//!   low      = floor(pair(beta_fast)), high = ceil(pair(beta_slow))        20 and 37 in Ministral 3
//!   keep(i)  = 1 - clamp((i - low) / (high - low), 0, 1)
//!   freq(i)  = base^(-2i / head_dim) * (keep(i) + (1 - keep(i)) / factor)
//!   ```
//!
//!   The ramp is over the index, not over the wavelength as in Llama 3: the two differ by up to 67 % in the middle. YaRN's
//!   multiplier of cosine and sine, `1 + 0.1 ln factor`, is cancelled here by `log_multiplier` 1: the next point replaces it.
//! - **A query scale that grows with the position** (`attention.temperature_scale`, `beta` 0.1; Hugging Face's
//!   `llama_4_scaling_beta`). Softmax over more keys is flatter; the scale sharpens it again, in steps of whole original
//!   contexts, so that it is one within the first. It depends on the query's position alone and so leaves cached keys valid.
//!   A checkpoint without the key has no scale: it is never on by default.
//! - **Heads narrower than their share** in Mistral Small: 32 heads of 128 on a hidden size of 5120.
//!
//! Images enter as embeddings made by [`Pixtral`](crate::Pixtral), instead of those of `[IMG]` tokens; the text model attends to
//! them causally like to any other row.
//!
//! Tensors, `[out, in]` as Burn sees them (GGUF writes sizes the other way round), with `h` query and `g` key/value heads
//! of width `d`:
//!
//! | tensor | shape |
//! |---|---|
//! | `token_embd`, `output` (absent when tied, in the 3B model) | `[vocab, hidden]` |
//! | `output_norm`, `blk.N.attn_norm`, `blk.N.ffn_norm` | `[hidden]` |
//! | `blk.N.attn_q` | `[h * d, hidden]` |
//! | `blk.N.attn_k`, `blk.N.attn_v` | `[g * d, hidden]` |
//! | `blk.N.attn_output` | `[hidden, h * d]` |
//! | `blk.N.ffn_gate`, `blk.N.ffn_up` | `[ffn, hidden]` |
//! | `blk.N.ffn_down` | `[hidden, ffn]` |
//!
//! The definitions are Hugging Face's `Ministral3ForCausalLM` and `Mistral3ForConditionalGeneration`.
use crate::backend::Backend;
use crate::{Decoder, ModelError, WeightFormat};
use burn::config::Config;
use burn::module::Module;
use burn::tensor::{Int, Tensor};
use ember_loaders::checkpoint::{
    Arch, Checkpoint, ModelConfig, Pairing, QueryScale, RopeConfig, RopeScaling,
};
use ember_loaders::gguf::Gguf;

/// Hyperparameters of a Mistral 3 model; [`new`](Self::new) gives those of Ministral 3 3B.
#[derive(Config, Debug, PartialEq)]
pub struct Mistral3Config {
    /// Rows of the embedding.
    #[config(default = 131072)]
    pub vocab_size: usize,
    /// Width of the residual stream.
    #[config(default = 3072)]
    pub hidden_size: usize,
    /// Width of the feed-forward network.
    #[config(default = 9216)]
    pub ffn_size: usize,
    /// Blocks.
    #[config(default = 26)]
    pub n_layers: usize,
    /// Query heads.
    #[config(default = 32)]
    pub n_heads: usize,
    /// Key/value heads; divides `n_heads`.
    #[config(default = 8)]
    pub n_kv_heads: usize,
    /// Width of a head; even.
    #[config(default = 128)]
    pub head_dim: usize,
    /// Longest context in tokens.
    #[config(default = 262144)]
    pub context_length: usize,
    /// Epsilon of every RMSNorm.
    #[config(default = 1e-5)]
    pub norm_eps: f32,
    /// Base of the rotary frequencies.
    #[config(default = 1e6)]
    pub rope_freq_base: f32,
    /// YaRN; `None` leaves the frequencies as they are.
    #[config(default = "Some(YarnConfig::new())")]
    pub yarn: Option<YarnConfig>,
    /// Strength of the query scale; `None` switches it off.
    #[config(default = "Some(0.1)")]
    pub query_scale_beta: Option<f32>,
    /// Context length of the pretraining in tokens, on which YaRN and the query scale are based.
    #[config(default = 16384)]
    pub original_context: usize,
    /// The head is the embedding.
    #[config(default = true)]
    pub tied_embeddings: bool,
}

/// The settings of YaRN; [`new`](Self::new) gives Ministral 3's.
#[derive(Config, Debug, PartialEq)]
pub struct YarnConfig {
    /// Ratio of the longest context to the original one.
    #[config(default = 16.0)]
    pub factor: f32,
    /// Pairs that turn at least this often within the original context keep their frequency.
    #[config(default = 32.0)]
    pub beta_fast: f32,
    /// Pairs that turn at most this often are fully interpolated.
    #[config(default = 1.0)]
    pub beta_slow: f32,
    /// `mscale_all_dim`: 1 cancels YaRN's multiplier of cosine and sine, 0 leaves it.
    #[config(default = 1.0)]
    pub log_multiplier: f32,
}

impl YarnConfig {
    fn scaling(&self, original_context: usize) -> RopeScaling {
        RopeScaling::Yarn {
            factor: self.factor,
            original_context,
            beta_fast: self.beta_fast,
            beta_slow: self.beta_slow,
            ext_factor: 1.0,
            attn_factor: 1.0,
            log_multiplier: self.log_multiplier,
        }
    }
}

impl From<&Mistral3Config> for ModelConfig {
    fn from(config: &Mistral3Config) -> Self {
        let original_context = config.original_context;
        let yarn = config.yarn.as_ref();
        Self {
            arch: Arch::Mistral3,
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
                scaling: yarn.map_or(RopeScaling::None, |yarn| yarn.scaling(original_context)),
            },
            query_scale: config.query_scale_beta.map(|beta| QueryScale { beta, original_context }),
            attention_scale: None,
            qk_norm: false,
            qkv_bias: false,
            tied_embeddings: config.tied_embeddings,
            relabelled_from: None,
        }
    }
}

impl Mistral3Config {
    /// A model of random weights; see [`Decoder::init`].
    ///
    /// # Panics
    /// If the sizes contradict each other.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Mistral3<B> {
        Mistral3 { decoder: Decoder::init(self.into(), device) }
    }
}

/// A Mistral 3 model.
#[derive(Module, Debug)]
pub struct Mistral3<B: Backend> {
    /// The decoder; YaRN and the query scale are in its configuration.
    pub decoder: Decoder<B>,
}

impl<B: Backend> Mistral3<B> {
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
        ModelError::check_family(checkpoint, Arch::Mistral3, "Mistral 3")?;
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

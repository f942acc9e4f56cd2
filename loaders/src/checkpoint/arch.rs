//! The supported text architectures: one entry each, and the tensors of the decoder that they share.

use std::fmt;

use super::config::ModelConfig;
use super::tensors::{Condition, Conditions, Description, Part, TensorRole};
use ember_formats::Pairing;

/// An architecture that can be loaded. All are pre-norm decoders with RMSNorm, rotary positions and SwiGLU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arch {
    /// Qwen3, dense: RMSNorm on each head of Q and K.
    Qwen3,
    /// Mistral Small 3.x and Ministral 3.
    Mistral3,
    /// Llama 2 and 3, SmolLM2, Mistral 7B, Nemo and other dense relatives.
    Llama,
    /// Qwen2 and Qwen2.5: biases on Q, K and V.
    Qwen2,
}

/// Everything in which one architecture's checkpoints differ from another's.
struct Entry {
    arch: Arch,
    /// The name used in `general.architecture`.
    name: &'static str,
    /// Values of `model_type` and of `architectures` in config.json that mean it.
    hf_labels: &'static [&'static str],
    pairing: Pairing,
    qk_norm: bool,
    qkv_bias: QkvBias,
    /// The checkpoint may have frequency factors (`rope_freqs.weight`).
    rope_factors: bool,
    /// The default of `head_dim` in config.json; `None` is `hidden_size / num_attention_heads`.
    hf_head_dim: Option<usize>,
    /// `sliding_window` in config.json counts only with `use_sliding_window`.
    hf_window_switch: bool,
    /// Conditions on a file, for error messages.
    requirements: &'static str,
}

/// Biases on Q, K and V.
#[derive(Clone, Copy)]
enum QkvBias {
    Never,
    Always,
    /// On all three if on any.
    IfStored,
}

/// The architectures, in the order of [`Arch`].
static ENTRIES: [Entry; 4] = [
    Entry {
        arch: Arch::Qwen3,
        name: "qwen3",
        hf_labels: &["qwen3", "Qwen3ForCausalLM"],
        pairing: Pairing::Half,
        qk_norm: true,
        qkv_bias: QkvBias::Never,
        rope_factors: false,
        hf_head_dim: Some(128),
        hf_window_switch: true,
        requirements: "qwen3: dense, with attn_q_norm and attn_k_norm, no biases",
    },
    Entry {
        arch: Arch::Mistral3,
        name: "mistral3",
        hf_labels: &["ministral3", "Ministral3ForCausalLM"],
        pairing: Pairing::Adjacent,
        qk_norm: false,
        qkv_bias: QkvBias::IfStored,
        rope_factors: true,
        hf_head_dim: Some(128),
        hf_window_switch: false,
        requirements: "mistral3: dense, no Q/K norms (also under the label llama, when the tokenizer is tekken with \
                       [INST], [/INST], [SYSTEM_PROMPT] and [/SYSTEM_PROMPT])",
    },
    Entry {
        arch: Arch::Llama,
        name: "llama",
        // Mistral 7B and Nemo are plain llamas, and llama.cpp's converter labels them so.
        hf_labels: &["llama", "LlamaForCausalLM", "mistral", "MistralForCausalLM"],
        pairing: Pairing::Adjacent,
        qk_norm: false,
        qkv_bias: QkvBias::IfStored,
        rope_factors: true,
        hf_head_dim: None,
        hf_window_switch: false,
        requirements: "llama: dense, no Q/K norms, rope_freqs.weight allowed",
    },
    Entry {
        arch: Arch::Qwen2,
        name: "qwen2",
        hf_labels: &["qwen2", "Qwen2ForCausalLM"],
        pairing: Pairing::Half,
        qk_norm: false,
        qkv_bias: QkvBias::Always,
        rope_factors: false,
        hf_head_dim: None,
        hf_window_switch: true,
        requirements: "qwen2: dense, with biases on attn_q, attn_k and attn_v",
    },
];

type TextPart = Part<ModelConfig>;

/// The tensors of every dense decoder, under their GGUF and Hugging Face names.
pub(crate) static DECODER: Description<ModelConfig> = Description {
    before: &[TextPart::new(TensorRole::Embedding, "token_embd", "embed_tokens", |c| {
        vec![c.hidden_size, c.vocab_size]
    })],
    block_prefix: "blk.",
    block: &[
        TextPart::norm("attn_norm", "input_layernorm", |c| vec![c.hidden_size]),
        TextPart::matrix("attn_q", "self_attn.q_proj", |c| vec![c.hidden_size, c.q_size()])
            .biased(Condition::QkvBias),
        TextPart::matrix("attn_k", "self_attn.k_proj", |c| vec![c.hidden_size, c.kv_size()])
            .biased(Condition::QkvBias),
        TextPart::matrix("attn_v", "self_attn.v_proj", |c| vec![c.hidden_size, c.kv_size()])
            .biased(Condition::QkvBias),
        TextPart::norm("attn_q_norm", "self_attn.q_norm", |c| vec![c.head_dim]).when(Condition::QkNorm),
        TextPart::norm("attn_k_norm", "self_attn.k_norm", |c| vec![c.head_dim]).when(Condition::QkNorm),
        TextPart::matrix("attn_output", "self_attn.o_proj", |c| vec![c.q_size(), c.hidden_size]),
        TextPart::norm("ffn_norm", "post_attention_layernorm", |c| vec![c.hidden_size]),
        TextPart::matrix("ffn_gate", "mlp.gate_proj", |c| vec![c.hidden_size, c.ffn_size]),
        TextPart::matrix("ffn_up", "mlp.up_proj", |c| vec![c.hidden_size, c.ffn_size]),
        TextPart::matrix("ffn_down", "mlp.down_proj", |c| vec![c.ffn_size, c.hidden_size]),
    ],
    after: &[
        TextPart::norm("output_norm", "norm", |c| vec![c.hidden_size]),
        TextPart::new(TensorRole::RopeFactors, "rope_freqs", "rope_freqs", |c| vec![c.rope.dim / 2])
            .when(Condition::RopeFactors),
        TextPart::new(TensorRole::Head, "output", "lm_head", |c| vec![c.hidden_size, c.vocab_size])
            .when(Condition::Untied),
    ],
};

impl Conditions for ModelConfig {
    fn holds(&self, condition: Condition) -> bool {
        match condition {
            Condition::Always | Condition::IfStored => true,
            Condition::Never | Condition::Merger => false,
            Condition::Untied => !self.tied_embeddings,
            Condition::QkNorm => self.qk_norm,
            Condition::QkvBias => self.qkv_bias,
            Condition::RopeFactors => self.arch.takes_rope_factors(),
        }
    }
}

impl Arch {
    /// Every supported architecture.
    pub const ALL: [Arch; 4] = [Arch::Qwen3, Arch::Mistral3, Arch::Llama, Arch::Qwen2];

    fn entry(self) -> &'static Entry {
        &ENTRIES[self as usize]
    }

    /// The name used in `general.architecture`.
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    /// The elements of a head that rotate together.
    pub fn rope_pairing(self) -> Pairing {
        self.entry().pairing
    }

    /// True when each head of Q and K is normalised before its rotation.
    pub fn has_qk_norm(self) -> bool {
        self.entry().qk_norm
    }

    /// True when Q, K and V must have biases, given whether the checkpoint has any.
    pub(super) fn needs_qkv_bias(self, found: bool) -> bool {
        match self.entry().qkv_bias {
            QkvBias::Never => false,
            QkvBias::Always => true,
            QkvBias::IfStored => found,
        }
    }

    /// True when a checkpoint may have frequency factors (`rope_freqs.weight`).
    pub(super) fn takes_rope_factors(self) -> bool {
        self.entry().rope_factors
    }

    /// The architecture of a label in config.json.
    pub(super) fn of_hf_label(label: &str) -> Option<Self> {
        ENTRIES.iter().find(|entry| entry.hf_labels.contains(&label)).map(|entry| entry.arch)
    }

    /// The head width that config.json means by leaving it out; `None` is a share of the hidden size.
    pub(super) fn hf_head_dim(self) -> Option<usize> {
        self.entry().hf_head_dim
    }

    /// True when a `sliding_window` in config.json counts only with `use_sliding_window`.
    pub(super) fn hf_window_switch(self) -> bool {
        self.entry().hf_window_switch
    }

    /// Conditions on a file to be loaded as this architecture, for error messages.
    pub(super) fn requirements(self) -> &'static str {
        self.entry().requirements
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_stand_in_the_order_of_the_enum() {
        for arch in Arch::ALL {
            assert_eq!(arch.entry().arch, arch);
        }
        assert_eq!(Arch::ALL.len(), ENTRIES.len());
    }
}

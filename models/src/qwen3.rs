//! Qwen3: per-head RMSNorm of queries and keys before a rotation of `(i, i + d/2)` pairs; no biases.
use crate::family::decoder_family;
use ember_loaders::checkpoint::Arch;

decoder_family!(
    /// A Qwen3 model: every block has `attn_q_norm` and `attn_k_norm`.
    Qwen3,
    Arch::Qwen3,
    "Qwen3"
);

//! Mistral Small 3.x under its old label: files converted before llama.cpp knew `mistral3` say `llama`.
//!
//! `llama` also names Llama 2 and 3, Mixtral and many others, which the Mistral chat format would turn into fluent
//! garbage. So every check below must hold.

use super::arch::DECODER;
use super::layout::Inventory;
use super::tensors::{Condition, Part, TensorRole};
use crate::gguf::Metadata;

/// Control tokens of the Mistral Small 3 chat format.
const CONTROL_TOKENS: [&str; 4] = ["[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"];

/// `None` when a file labelled `llama` is a Mistral Small 3.x, else the first check that failed.
pub(super) fn failed_mistral3_check(metadata: &Metadata, inventory: &Inventory) -> Option<String> {
    [tokenizer, control_tokens, dense, rope, block_layout]
        .into_iter()
        .find_map(|check| check(metadata, inventory))
}

fn tokenizer(metadata: &Metadata, _: &Inventory) -> Option<String> {
    match metadata.opt_str("tokenizer.ggml.pre") {
        Ok(Some("tekken")) => None,
        Ok(Some(other)) => Some(format!("tokenizer.ggml.pre is `{other}`, not `tekken`")),
        _ => Some("there is no tokenizer.ggml.pre, it should be `tekken`".into()),
    }
}

fn control_tokens(metadata: &Metadata, _: &Inventory) -> Option<String> {
    let tokens = metadata.opt_str_array("tokenizer.ggml.tokens").ok().flatten().unwrap_or_default();
    let missing: Vec<&str> =
        CONTROL_TOKENS.into_iter().filter(|control| !tokens.iter().any(|token| token == control)).collect();
    (!missing.is_empty()).then(|| format!("the vocabulary has no {}", missing.join(", ")))
}

fn dense(metadata: &Metadata, inventory: &Inventory) -> Option<String> {
    if metadata.contains("llama.expert_count") {
        Some("llama.expert_count is present, so it is a mixture of experts".into())
    } else if inventory.has("blk.0.ffn_gate_inp.weight") {
        Some("blk.0.ffn_gate_inp.weight is present, so it is a mixture of experts".into())
    } else {
        None
    }
}

fn rope(metadata: &Metadata, inventory: &Inventory) -> Option<String> {
    if inventory.has("rope_freqs.weight") {
        return Some("rope_freqs.weight is present".into());
    }
    match metadata.opt_str("llama.rope.scaling.type") {
        Ok(None | Some("none" | "yarn")) => None,
        Ok(Some(other)) => Some(format!("llama.rope.scaling.type is `{other}`, not `none` or `yarn`")),
        Err(error) => Some(error.to_string()),
    }
}

fn block_layout(_: &Metadata, inventory: &Inventory) -> Option<String> {
    let qk_norms = DECODER.block.iter().filter(|part| part.weight == Condition::QkNorm);
    let norm = |part: &Part<_>| format!("{}.weight", part.name);
    if let Some(norm) = qk_norms.map(norm).find(|name| inventory.has_in_block(name)) {
        return Some(format!("the blocks have {norm}"));
    }
    let matrices = DECODER.block.iter().filter(|part| part.role == TensorRole::Matrix);
    let missing =
        matrices.map(|part| format!("blk.0.{}.weight", part.name)).find(|name| !inventory.has(name))?;
    Some(format!("{missing} is missing"))
}

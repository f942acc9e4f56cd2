//! Hyperparameters from GGUF metadata.

use super::arch::Arch;
use super::config::{ModelConfig, checked_size, limits};
use super::error::CheckpointError;
use super::keys::Keys;
use super::layout::{self, Inventory};
use super::llama_label::failed_mistral3_check;
use super::query_scale::QueryScale;
use super::rope::{RopeConfig, RopeScaling, yarn_factors};
use crate::gguf::Metadata;

/// Recognises the architecture, reads its hyperparameters and checks every tensor.
///
/// Returns the hyperparameters and the names of unused tensors.
pub(super) fn read(
    metadata: &Metadata,
    inventory: &Inventory,
) -> Result<(ModelConfig, Vec<String>), CheckpointError> {
    refuse_other_kinds(metadata, inventory)?;
    let label = metadata.str("general.architecture")?;
    let read_as = |arch| read_as(arch, label, metadata, inventory);
    match Arch::ALL.into_iter().find(|arch| arch.name() == label) {
        Some(Arch::Llama) => match failed_mistral3_check(metadata, inventory) {
            None => read_as(Arch::Mistral3),
            Some(failed_check) => read_as(Arch::Llama)
                .map_err(|error| CheckpointError::LlamaRefused { failed_check, as_llama: Box::new(error) }),
        },
        Some(arch) => read_as(arch),
        None => Err(CheckpointError::UnsupportedArchitecture { found: label.to_owned() }),
    }
}

/// Refuses GGUF files that are not models: projectors, adapters, vocabularies, importance matrices.
fn refuse_other_kinds(metadata: &Metadata, inventory: &Inventory) -> Result<(), CheckpointError> {
    if inventory.is_empty() {
        return Err(CheckpointError::Inconsistent("the file has no tensors, only metadata".into()));
    }
    match metadata.opt_str("general.type")? {
        None | Some("model") => Ok(()),
        Some(other) => Err(CheckpointError::bad_value(
            "general.type",
            format!("the file is of type `{other}`, not a model; give the text model's file"),
        )),
    }
}

fn read_as(
    arch: Arch,
    label: &str,
    metadata: &Metadata,
    inventory: &Inventory,
) -> Result<(ModelConfig, Vec<String>), CheckpointError> {
    let keys = Keys { metadata, label };
    keys.refuse_foreign_maths()?;
    let n_heads = keys.size("attention.head_count", limits::HEADS)?;
    let hidden_size = keys.size("embedding_length", limits::WIDTH)?;
    let context_length = keys.size("context_length", limits::CONTEXT)?;
    let head_dim = head_dim(&keys, hidden_size, n_heads)?;
    let rope = RopeConfig {
        dim: keys.opt_size("rope.dimension_count", limits::HEAD_DIM)?.unwrap_or(head_dim),
        freq_base: keys.opt_positive("rope.freq_base")?.unwrap_or(10_000.0),
        pairing: arch.rope_pairing(),
        scaling: rope_scaling(&keys, context_length)?,
    };
    let config = ModelConfig {
        arch,
        name: metadata.opt_str("general.name")?.map(str::to_owned),
        n_layers: keys.size("block_count", limits::LAYERS)?,
        hidden_size,
        ffn_size: keys.size("feed_forward_length", limits::WIDTH)?,
        n_heads,
        n_kv_heads: keys.opt_size("attention.head_count_kv", limits::HEADS)?.unwrap_or(n_heads),
        head_dim,
        vocab_size: vocab_size(&keys, inventory)?,
        context_length,
        norm_eps: keys.positive("attention.layer_norm_rms_epsilon")?,
        query_scale: query_scale(&keys, context_length)?,
        rope,
        attention_scale: keys.opt_nonzero("attention.scale")?,
        qk_norm: arch.has_qk_norm(),
        qkv_bias: arch.needs_qkv_bias(inventory.has_qkv_bias()),
        tied_embeddings: !inventory.has("output.weight"),
        relabelled_from: (label != arch.name()).then(|| label.to_owned()),
    };
    config.check()?;
    keys.refuse_sliding_window(config.context_limit().tokens())?;
    let unused = layout::check(&config, inventory)?;
    Ok((config, unused))
}

fn head_dim(keys: &Keys, hidden_size: usize, n_heads: usize) -> Result<usize, CheckpointError> {
    let key_length = keys.opt_size("attention.key_length", limits::HEAD_DIM)?;
    let value_length = keys.opt_size("attention.value_length", limits::HEAD_DIM)?;
    if (key_length.is_none() || value_length.is_none()) && !hidden_size.is_multiple_of(n_heads) {
        return Err(CheckpointError::Inconsistent(format!(
            "embedding_length {hidden_size} is not a multiple of attention.head_count {n_heads}, and \
             attention.key_length and attention.value_length are not both given"
        )));
    }
    let key_length = key_length.unwrap_or(hidden_size / n_heads);
    let value_length = value_length.unwrap_or(hidden_size / n_heads);
    if key_length != value_length {
        return Err(CheckpointError::Inconsistent(format!(
            "attention.key_length {key_length} and attention.value_length {value_length} differ; heads of \
             different widths are not supported"
        )));
    }
    Ok(key_length)
}

/// The tokenizer decides, as in llama.cpp; a file without one is measured by its embedding.
fn vocab_size(keys: &Keys, inventory: &Inventory) -> Result<usize, CheckpointError> {
    if let Some(tokens) = keys.metadata.opt_str_array("tokenizer.ggml.tokens")? {
        return checked_size("tokenizer.ggml.tokens", tokens.len(), limits::VOCAB);
    }
    match (keys.opt_size("vocab_size", limits::VOCAB)?, inventory.dims("token_embd.weight")) {
        (Some(size), _) => Ok(size),
        (None, Some(&[_, rows])) => checked_size("token_embd.weight", rows, limits::VOCAB),
        (None, _) => keys.size("vocab_size", limits::VOCAB),
    }
}

/// On only when the file asks for it. `rope.scaling_beta` is the name that Ollama's converter gave the key.
fn query_scale(keys: &Keys, context_length: usize) -> Result<Option<QueryScale>, CheckpointError> {
    for suffix in ["attention.temperature_scale", "rope.scaling_beta"] {
        let Some(beta) = keys.opt_nonzero(suffix)? else { continue };
        let original_context =
            keys.opt_usize("rope.scaling.original_context_length")?.unwrap_or(context_length);
        if original_context == 0 {
            return Err(CheckpointError::bad_value(
                keys.key("rope.scaling.original_context_length"),
                format!("must not be 0 when {} is set", keys.key(suffix)),
            ));
        }
        return Ok(Some(QueryScale { beta, original_context }));
    }
    Ok(None)
}

fn rope_scaling(keys: &Keys, context_length: usize) -> Result<RopeScaling, CheckpointError> {
    // A factor of 0 means that there is none, as in llama.cpp; so do the types "" and "default", which Ollama wrote.
    let factor = match keys.opt_nonzero("rope.scaling.factor")? {
        Some(factor) => Some(factor),
        None => keys.opt_nonzero("rope.scale_linear")?,
    };
    if let Some(factor) = factor.filter(|factor| *factor < 0.0) {
        return Err(CheckpointError::bad_value(
            keys.key("rope.scaling.factor"),
            format!("{factor} is not a positive number"),
        ));
    }
    match (keys.opt_str("rope.scaling.type")?, factor) {
        (Some("none"), _) | (None | Some("" | "linear" | "default"), None) => Ok(RopeScaling::None),
        (None | Some("" | "linear"), Some(factor)) => Ok(RopeScaling::Linear { factor }),
        (Some("yarn"), Some(factor)) => yarn(keys, factor, context_length),
        (Some("yarn"), None) => Err(CheckpointError::bad_value(
            keys.key("rope.scaling.factor"),
            "is missing or 0, but rope.scaling.type is `yarn`",
        )),
        (Some(other), _) => Err(CheckpointError::bad_value(
            keys.key("rope.scaling.type"),
            format!("`{other}` is not supported; none, linear and yarn are"),
        )),
    }
}

/// YaRN under llama.cpp's key names or, second in each pair, those of other writers.
fn yarn(keys: &Keys, factor: f32, context_length: usize) -> Result<RopeScaling, CheckpointError> {
    let first = |names: [&str; 2]| -> Result<Option<f32>, CheckpointError> {
        match keys.opt_f32(names[0])? {
            Some(value) => Ok(Some(value)),
            None => keys.opt_f32(names[1]),
        }
    };
    let positive = |names: [&str; 2], default: f32| match first(names)? {
        None | Some(0.0) => Ok(default),
        Some(value) if value > 0.0 => Ok(value),
        Some(value) => {
            Err(CheckpointError::bad_value(keys.key(names[0]), format!("{value} is not a positive number")))
        }
    };
    // A negative value means "not set".
    let ext_factor = first(["rope.scaling.yarn_ext_factor", "rope.scaling.extrapolation_factor"])?
        .filter(|value| *value >= 0.0)
        .unwrap_or(1.0);
    let mut attn_factor = keys.opt_positive("rope.scaling.attn_factor")?.unwrap_or(1.0);
    if ext_factor == 0.0 {
        // With the ramp on, llama.cpp computes this one from the factor and ignores the key.
        attn_factor *= keys.opt_positive("rope.scaling.yarn_attn_factor")?.unwrap_or(1.0);
    }
    let log_multiplier = keys.opt_f32("rope.scaling.yarn_log_multiplier")?;
    let (mscale, all_dim) =
        (keys.opt_nonzero("rope.scaling.mscale")?, keys.opt_nonzero("rope.scaling.mscale_all_dim")?);
    let log_multiplier = match (log_multiplier, mscale, all_dim) {
        (Some(value), ..) => value,
        (None, Some(mscale), Some(all_dim)) => {
            let (mscale_factor, log_multiplier) = yarn_factors(factor, mscale, all_dim);
            attn_factor *= mscale_factor;
            log_multiplier
        }
        _ => 0.0,
    };
    let original_context = match keys.opt_usize("rope.scaling.original_context_length")? {
        None | Some(0) => context_length,
        Some(length) => length,
    };
    Ok(RopeScaling::Yarn {
        factor,
        original_context,
        beta_fast: positive(["rope.scaling.yarn_beta_fast", "rope.scaling.beta_fast"], 32.0)?,
        beta_slow: positive(["rope.scaling.yarn_beta_slow", "rope.scaling.beta_slow"], 1.0)?,
        ext_factor,
        attn_factor,
        log_multiplier,
    })
}

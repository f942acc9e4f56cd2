//! Hyperparameters from the config.json of an HF folder.

use serde_json::{Map, Value};

use super::arch::Arch;
use super::config::{ModelConfig, limits};
use super::error::CheckpointError;
use super::hf_keys::Section;
use super::layout::Inventory;
use super::query_scale::QueryScale;
use super::rope::{RopeConfig, RopeScaling, llama3_freq_factors, yarn_factors, yarn_mscale};

/// The content of config.json, before the tensors are checked.
pub(super) struct HfConfig {
    pub config: ModelConfig,
    /// Llama 3's frequency factors, which a GGUF file has as the tensor `rope_freqs.weight`.
    pub freq_factors: Option<Vec<f32>>,
}

/// Reads config.json; `inventory` holds the folder's tensors under GGUF names.
pub(super) fn read(
    root: &Map<String, Value>,
    name: Option<String>,
    inventory: &Inventory,
) -> Result<HfConfig, CheckpointError> {
    let root = Section::root(root);
    refuse_quantized(&root)?;
    let (arch, text) = architecture(&root)?;
    let n_heads = text.size("num_attention_heads", limits::HEADS)?;
    let hidden_size = text.size("hidden_size", limits::WIDTH)?;
    let context_length = text.size("max_position_embeddings", limits::CONTEXT)?;
    refuse_foreign_activation(&text)?;
    let head_dim = head_dim(&text, arch, hidden_size, n_heads)?;
    let rope = Rope::read(&text, arch, head_dim, context_length)?;
    let config = ModelConfig {
        arch,
        name,
        n_layers: text.size("num_hidden_layers", limits::LAYERS)?,
        hidden_size,
        ffn_size: text.size("intermediate_size", limits::WIDTH)?,
        n_heads,
        n_kv_heads: text.opt_size("num_key_value_heads", limits::HEADS)?.unwrap_or(n_heads),
        head_dim,
        vocab_size: text.size("vocab_size", limits::VOCAB)?,
        context_length,
        norm_eps: text.positive("rms_norm_eps")?,
        rope: rope.config,
        query_scale: rope.query_scale,
        attention_scale: None,
        qk_norm: arch.has_qk_norm(),
        qkv_bias: arch.needs_qkv_bias(inventory.has_qkv_bias()),
        tied_embeddings: tied(&root, &text)?.unwrap_or_else(|| !inventory.has("output.weight")),
        relabelled_from: None,
    };
    config.check()?;
    refuse_sliding_window(&text, arch, config.context_limit().tokens())?;
    Ok(HfConfig { config, freq_factors: rope.freq_factors })
}

/// The architecture, and the section with the text model's hyperparameters.
fn architecture<'a>(root: &Section<'a>) -> Result<(Arch, Section<'a>), CheckpointError> {
    let class = root.get("architectures").and_then(|classes| classes.get(0)).and_then(Value::as_str);
    let Some(label) = root.opt_str("model_type")?.or(class) else {
        return Err(root.missing("model_type", "the architecture"));
    };
    if !matches!(label, "mistral3" | "Mistral3ForConditionalGeneration") {
        return match Arch::of_hf_label(label) {
            Some(arch) => Ok((arch, root.clone())),
            None => Err(CheckpointError::UnsupportedArchitecture { found: label.to_owned() }),
        };
    }
    // A text model within an image model.
    let Some(text) = root.opt_section("text_config")? else {
        return Err(root.missing("text_config", "an object"));
    };
    match text.opt_str("model_type")? {
        None | Some("mistral" | "ministral3") => Ok((Arch::Mistral3, text)),
        Some(other) => {
            Err(CheckpointError::UnsupportedArchitecture { found: format!("{label} with {other} text") })
        }
    }
}

fn refuse_quantized(root: &Section) -> Result<(), CheckpointError> {
    match root.opt_section("quantization_config")? {
        None => Ok(()),
        Some(section) => {
            let method = section.opt_str("quant_method")?.unwrap_or("an unnamed method");
            let problem =
                format!("weights quantized with {method} are not supported; use a GGUF file instead");
            Err(CheckpointError::bad_value("quantization_config", problem))
        }
    }
}

fn refuse_foreign_activation(text: &Section) -> Result<(), CheckpointError> {
    match text.opt_str("hidden_act")? {
        None | Some("silu" | "swish") => Ok(()),
        Some(other) => {
            let problem = format!("`{other}` is not supported; the accepted architectures use silu");
            Err(CheckpointError::bad_value(text.key("hidden_act"), problem))
        }
    }
}

/// Refuses a window shorter than the longest context; a longer one never hides anything.
fn refuse_sliding_window(text: &Section, arch: Arch, context: usize) -> Result<(), CheckpointError> {
    // Qwen configs name a window that they do not use.
    let windowed = !arch.hf_window_switch() || text.opt_bool("use_sliding_window")? == Some(true);
    match text.opt_size("sliding_window", usize::MAX)? {
        Some(window) if windowed && window < context => {
            let problem = format!(
                "a window of {window} tokens within a context of {context} is not supported; only full \
                 attention is"
            );
            Err(CheckpointError::bad_value(text.key("sliding_window"), problem))
        }
        _ => Ok(()),
    }
}

fn head_dim(text: &Section, arch: Arch, hidden: usize, n_heads: usize) -> Result<usize, CheckpointError> {
    if let Some(size) = text.opt_size("head_dim", limits::HEAD_DIM)? {
        return Ok(size);
    }
    match arch.hf_head_dim() {
        Some(size) => Ok(size),
        None if hidden.is_multiple_of(n_heads) => Ok(hidden / n_heads),
        None => Err(CheckpointError::Inconsistent(format!(
            "hidden_size {hidden} is not a multiple of num_attention_heads {n_heads}, and there is no head_dim"
        ))),
    }
}

/// `tie_word_embeddings`: true if the head is the embedding; the outermost statement wins.
fn tied(root: &Section, text: &Section) -> Result<Option<bool>, CheckpointError> {
    let outer = root.opt_bool("tie_word_embeddings")?;
    Ok(outer.or(text.opt_bool("tie_word_embeddings")?))
}

/// The content of the rotary section.
struct Rope {
    config: RopeConfig,
    freq_factors: Option<Vec<f32>>,
    query_scale: Option<QueryScale>,
}

impl Rope {
    /// Reads `rope_parameters` (transformers 5) or `rope_scaling` with `rope_theta` beside it (transformers 4).
    fn read(text: &Section, arch: Arch, dim: usize, context: usize) -> Result<Self, CheckpointError> {
        let empty = Map::new();
        let section = match text.opt_section("rope_parameters")? {
            Some(section) => section,
            None => text.opt_section("rope_scaling")?.unwrap_or(Section::root(&empty)),
        };
        for holder in [text, &section] {
            if let Some(part) = holder.opt_positive("partial_rotary_factor")?.filter(|part| *part != 1.0) {
                let problem = format!("{part} is not supported; {arch} rotates whole heads");
                return Err(CheckpointError::bad_value(holder.key("partial_rotary_factor"), problem));
            }
        }
        let inner_theta = section.opt_positive("rope_theta")?;
        let freq_base = inner_theta.or(text.opt_positive("rope_theta")?).unwrap_or(10_000.0);
        let original_context = section.opt_size("original_max_position_embeddings", limits::CONTEXT)?;
        let original_context = original_context.unwrap_or(context);
        let query_scale =
            section.opt_nonzero("llama_4_scaling_beta")?.map(|beta| QueryScale { beta, original_context });
        let mut freq_factors = None;
        let kind = section.opt_str("rope_type")?.or(section.opt_str("type")?);
        let scaling = match kind.unwrap_or("default") {
            "default" => RopeScaling::None,
            "linear" => RopeScaling::Linear { factor: section.positive("factor")? },
            "yarn" => yarn(&section, original_context)?,
            "llama3" if arch.takes_rope_factors() => {
                freq_factors = Some(llama3(&section, dim, freq_base, original_context)?);
                RopeScaling::None
            }
            other => {
                let problem = format!(
                    "`{other}` is not supported for {arch}; default, linear, yarn and (llama) \
                    llama3 are"
                );
                return Err(CheckpointError::bad_value(section.key("rope_type"), problem));
            }
        };
        let config = RopeConfig { dim, freq_base, pairing: arch.rope_pairing(), scaling };
        Ok(Self { config, freq_factors, query_scale })
    }
}

fn yarn(section: &Section, original_context: usize) -> Result<RopeScaling, CheckpointError> {
    if section.opt_bool("truncate")? == Some(false) {
        let problem = "false is not supported: the ramp's borders are whole dimensions";
        return Err(CheckpointError::bad_value(section.key("truncate"), problem));
    }
    let factor = section.positive("factor")?;
    let (mscale, all_dim) = (section.opt_nonzero("mscale")?, section.opt_nonzero("mscale_all_dim")?);
    let (attn_factor, log_multiplier) = match (section.opt_positive("attention_factor")?, mscale, all_dim) {
        (Some(magnitude), ..) => ((f64::from(magnitude) / yarn_mscale(factor, 1.0)) as f32, 0.0),
        (None, Some(mscale), Some(all_dim)) => yarn_factors(factor, mscale, all_dim),
        _ => (1.0, 0.0),
    };
    Ok(RopeScaling::Yarn {
        factor,
        original_context,
        beta_fast: section.opt_positive("beta_fast")?.unwrap_or(32.0),
        beta_slow: section.opt_positive("beta_slow")?.unwrap_or(1.0),
        ext_factor: 1.0,
        attn_factor,
        log_multiplier,
    })
}

fn llama3(
    section: &Section,
    dim: usize,
    freq_base: f32,
    original_context: usize,
) -> Result<Vec<f32>, CheckpointError> {
    let factor = section.positive("factor")?.into();
    let low = section.positive("low_freq_factor")?;
    let high = section.positive("high_freq_factor")?;
    if low >= high {
        let problem = format!("{high} must be greater than low_freq_factor {low}");
        return Err(CheckpointError::bad_value(section.key("high_freq_factor"), problem));
    }
    Ok(llama3_freq_factors(dim, freq_base, factor, low.into(), high.into(), original_context as f64))
}

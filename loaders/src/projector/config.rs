//! Hyperparameters of a projector file.

use super::layout::{PIXTRAL, ProjectorLayout};
use crate::checkpoint::config::{checked_size, limits};
use crate::checkpoint::keys::Keys;
use crate::checkpoint::layout::Inventory;
use crate::checkpoint::tensors::Condition;
use crate::checkpoint::{CheckpointError, TensorSpec};
use crate::gguf::Metadata;
use ember_formats::Pairing;
use std::fmt;

/// The gate of the tower's feed-forward networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x / 2 * (1 + erf(x / sqrt(2)))`.
    Gelu,
    /// `x / (1 + exp(-x))`.
    Silu,
}

impl fmt::Display for Activation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gelu => "GELU",
            Self::Silu => "SiLU",
        })
    }
}

/// Hyperparameters of a Pixtral vision tower and its projector.
#[derive(Clone, Debug, PartialEq)]
pub struct PixtralConfig {
    /// The names that the file uses.
    pub layout: ProjectorLayout,
    /// Blocks of the tower.
    pub n_layers: usize,
    /// Width of the tower.
    pub hidden_size: usize,
    /// Width of its feed-forward networks.
    pub ffn_size: usize,
    /// Attention heads; keys and values have as many.
    pub n_heads: usize,
    /// Width of a head, a multiple of 4: half of its pairs turn with the row, half with the column.
    pub head_dim: usize,
    /// Epsilon of every RMSNorm.
    pub norm_eps: f32,
    /// Base of the rotary frequencies.
    pub rope_freq_base: f32,
    /// The elements of a head that form a pair.
    pub rope_pairing: Pairing,
    /// The gate of the feed-forward networks.
    pub activation: Activation,
    /// True if the file names the activation; if not, it is GELU.
    pub activation_named: bool,
    /// Side of a patch in pixels.
    pub patch_size: usize,
    /// Longest side of an image in pixels.
    pub image_size: usize,
    /// Patches per side of a cell: this many squared become one embedding.
    pub merge_size: usize,
    /// True if norm and patch merger stand before the two linear layers.
    pub has_merger: bool,
    /// Width between the two linear layers.
    pub projector_size: usize,
    /// Width of the embeddings, which is the text model's.
    pub text_hidden_size: usize,
    /// Mean of each channel of pixels in [0, 1].
    pub image_mean: [f32; 3],
    /// Standard deviation of each channel.
    pub image_std: [f32; 3],
}

/// Of CLIP, with which Pixtral was trained.
const IMAGE_MEAN: [f32; 3] = [0.481_454_66, 0.457_827_5, 0.408_210_73];
const IMAGE_STD: [f32; 3] = [0.268_629_54, 0.261_302_6, 0.275_777_1];
const NORM_EPS: f32 = 1e-5;
const ROPE_FREQ_BASE: f32 = 1e4;
/// Far above any real encoder; pixels of the largest image still fit a tensor.
const MAX_IMAGE_SIZE: usize = 1 << 14;
const MAX_PATCH: usize = 1 << 8;
const MAX_MERGE: usize = 1 << 4;

impl PixtralConfig {
    /// The encoder of Mistral Small 3.1 and later, in the given layout.
    pub fn mistral_small(layout: ProjectorLayout) -> Self {
        Self {
            layout,
            n_layers: 24,
            hidden_size: 1024,
            ffn_size: 4096,
            n_heads: 16,
            head_dim: 64,
            norm_eps: NORM_EPS,
            rope_freq_base: ROPE_FREQ_BASE,
            rope_pairing: layout.rope_pairing(),
            activation: Activation::Gelu,
            activation_named: true,
            patch_size: 14,
            image_size: 1540,
            merge_size: 2,
            has_merger: true,
            projector_size: 5120,
            text_hidden_size: 5120,
            image_mean: IMAGE_MEAN,
            image_std: IMAGE_STD,
        }
    }

    pub(super) fn read(
        metadata: &Metadata,
        layout: ProjectorLayout,
        inventory: &Inventory,
    ) -> Result<Self, CheckpointError> {
        let clip = metadata.contains("clip.vision.embedding_length");
        let arch = if clip { "clip" } else { metadata.str("general.architecture")? };
        let label = format!("{arch}.vision");
        let keys = Keys { metadata, label: &label };
        check_kind(metadata)?;
        let hidden_size = keys.size("embedding_length", limits::WIDTH)?;
        let n_heads = keys.size("attention.head_count", limits::HEADS)?;
        let (activation, activation_named) = activation(metadata)?;
        let merge_size = merge_size(&keys, arch)?;
        let rows =
            |name: &str| inventory.dims(&layout.name_in_file(name)).and_then(|dims| dims.get(1)).copied();
        let mut merger = PIXTRAL.outside().filter(|part| part.weight == Condition::Merger);
        let stored = |name: &str| inventory.has(&layout.name_in_file(&format!("{name}.weight")));
        let config = Self {
            layout,
            n_layers: keys.size("block_count", limits::LAYERS)?,
            hidden_size,
            ffn_size: keys.size("feed_forward_length", limits::WIDTH)?,
            n_heads,
            head_dim: head_dim(&keys, hidden_size, n_heads)?,
            norm_eps: keys.opt_positive("attention.layer_norm_epsilon")?.unwrap_or(NORM_EPS),
            rope_freq_base: rope_freq_base(&keys, arch)?,
            rope_pairing: layout.rope_pairing(),
            activation,
            activation_named,
            patch_size: keys.size("patch_size", MAX_PATCH)?,
            image_size: keys.size("image_size", MAX_IMAGE_SIZE)?,
            merge_size,
            has_merger: merge_size > 1 || merger.any(|part| stored(part.name)),
            // A missing matrix is reported with the others that are missing.
            projector_size: rows("mm.linear_1.weight").unwrap_or(hidden_size),
            text_hidden_size: rows("mm.linear_2.weight").unwrap_or(hidden_size),
            image_mean: channels(&keys, "image_mean", IMAGE_MEAN)?,
            image_std: channels(&keys, "image_std", IMAGE_STD)?,
        };
        if let Some(std) = config.image_std.iter().find(|std| **std <= 0.0) {
            return Err(CheckpointError::bad_value(keys.key("image_std"), format!("{std} is not positive")));
        }
        Ok(config)
    }

    /// Every tensor of a projector with these hyperparameters, under Ollama's names, in the order of a file.
    pub fn tensors(&self) -> Vec<TensorSpec> {
        PIXTRAL.tensors(self, self.n_layers)
    }

    /// Width of all heads side by side.
    pub fn attention_size(&self) -> usize {
        self.n_heads * self.head_dim
    }

    /// Side in pixels of the square that becomes one embedding.
    pub fn cell_size(&self) -> usize {
        self.patch_size * self.merge_size
    }
}

/// Refuses projectors of other vision towers.
fn check_kind(metadata: &Metadata) -> Result<(), CheckpointError> {
    for key in ["clip.projector_type", "clip.vision.projector_type"] {
        if let Some(other) = metadata.opt_str(key)?.filter(|kind| *kind != "pixtral") {
            let problem = format!("`{other}` is not supported, only `pixtral` is");
            return Err(CheckpointError::bad_value(key, problem));
        }
    }
    Ok(())
}

/// The activation that the file names, or GELU, the default of Hugging Face's `PixtralVisionConfig`.
fn activation(metadata: &Metadata) -> Result<(Activation, bool), CheckpointError> {
    let set = |key: &str| -> Result<bool, CheckpointError> { Ok(metadata.opt_bool(key)?.unwrap_or(false)) };
    match (set("clip.use_gelu")?, set("clip.use_silu")?) {
        (true, true) => Err(CheckpointError::bad_value(
            "clip.use_gelu",
            "clip.use_silu is set too; a tower has one activation",
        )),
        (false, true) => Ok((Activation::Silu, true)),
        (gelu, false) => Ok((Activation::Gelu, gelu)),
    }
}

/// `clip.vision.spatial_merge_size`, or `mistral3.spatial_merge_size` in Ollama's files; 1 when absent.
fn merge_size(keys: &Keys, arch: &str) -> Result<usize, CheckpointError> {
    let key = format!("{arch}.spatial_merge_size");
    match keys.opt_size("spatial_merge_size", MAX_MERGE)? {
        Some(size) => Ok(size),
        None => match keys.metadata.opt_usize(&key)? {
            Some(size) => checked_size(&key, size, MAX_MERGE),
            None => Ok(1),
        },
    }
}

/// `clip.rope.freq_base` in newer Ollama files, `mistral3.vision.rope.freq_base` in older ones, where 0 stands for none.
fn rope_freq_base(keys: &Keys, arch: &str) -> Result<f32, CheckpointError> {
    let of_arch = Keys { metadata: keys.metadata, label: arch };
    let shared = if arch == "clip" { of_arch.opt_positive("rope.freq_base")? } else { None };
    Ok(keys.opt_positive("rope.freq_base")?.or(shared).unwrap_or(ROPE_FREQ_BASE))
}

fn head_dim(keys: &Keys, hidden_size: usize, n_heads: usize) -> Result<usize, CheckpointError> {
    let head_dim = match keys.opt_size("attention.key_length", limits::HEAD_DIM)? {
        Some(length) => length,
        None if hidden_size.is_multiple_of(n_heads) => hidden_size / n_heads,
        None => {
            let problem = format!("{n_heads} does not divide embedding_length {hidden_size}");
            return Err(CheckpointError::bad_value(keys.key("attention.head_count"), problem));
        }
    };
    if head_dim.is_multiple_of(4) {
        return Ok(head_dim);
    }
    Err(CheckpointError::Inconsistent(format!(
        "heads of the vision tower are {head_dim} wide, which is not a multiple of 4: half of the pairs turn with the row, \
         half with the column"
    )))
}

fn channels(keys: &Keys, suffix: &str, default: [f32; 3]) -> Result<[f32; 3], CheckpointError> {
    let key = keys.key(suffix);
    let Some(values) = keys.metadata.opt_f32_array(&key)? else { return Ok(default) };
    let channels =
        <[f32; 3]>::try_from(values).ok().filter(|channels| channels.iter().all(|x| x.is_finite()));
    channels
        .ok_or_else(|| CheckpointError::bad_value(key, format!("{values:?} are not three finite numbers")))
}

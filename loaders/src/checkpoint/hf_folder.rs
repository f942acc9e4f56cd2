//! An HF folder: config.json and safetensors weights, seen as if it were a GGUF model.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use ember_formats::Pairing;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::config::ModelConfig;
use super::error::CheckpointError;
use super::generation_config::GenerationConfig;
use super::hf_config::{self, HfConfig};
use super::hf_names::{gguf_name, pair_adjacent_rows};
use super::layout::{self, Inventory};
use super::safetensors_file::{self, Stored};
use super::weight::WeightTensor;
use crate::gguf::{GgmlType, MappedBytes};
use crate::text;

const CONFIG: &str = "config.json";
const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// config.json and the index are small; anything larger is not what its name says.
const MAX_JSON_BYTES: u64 = 64 << 20;

/// The weights of an HF folder, under GGUF names.
pub(super) struct HfFolder {
    tensors: HashMap<String, Stored>,
    freq_factors: Option<Vec<f32>>,
    generation_config: GenerationConfig,
}

impl HfFolder {
    /// Opens and checks the folder; returns the hyperparameters and the names of unused tensors with it.
    pub fn open(folder: &Path) -> Result<(Self, ModelConfig, Vec<String>), CheckpointError> {
        let root: Map<String, Value> = read_json(&config_path(folder)?)?;
        let generation_config = GenerationConfig::read(folder)?;
        let mut tensors = HashMap::new();
        for (name, tensor) in stored_tensors(folder)? {
            let gguf = gguf_name(&name);
            if tensors.insert(gguf, tensor).is_some() {
                let problem =
                    format!("holds the tensor {name} twice, under different prefixes or in two files");
                return Err(CheckpointError::NotACheckpoint { path: folder.to_owned(), problem });
            }
        }
        let mut inventory = Inventory::default();
        for (name, tensor) in &tensors {
            // Tensors of other types are caught below if the model needs them.
            if let Ok(ty) = tensor.ty {
                inventory.insert(name.clone(), ty, tensor.dims.clone());
            }
        }
        let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
        let HfConfig { config, freq_factors } = hf_config::read(&root, name, &inventory)?;
        refuse_foreign_types(&tensors)?;
        let unused = layout::check(&config, &inventory)?;
        if config.tied_embeddings {
            // A head stored beside the embedding that config.json ties it to is not the model's.
            tensors.remove("output.weight");
        }
        Ok((Self { tensors, freq_factors, generation_config }, config, unused))
    }

    /// The defaults of answers.
    pub fn generation_config(&self) -> &GenerationConfig {
        &self.generation_config
    }

    /// The tensor of this GGUF name, its rows in GGUF order.
    pub fn tensor(&self, name: &str, config: &ModelConfig) -> Option<WeightTensor> {
        if name == "rope_freqs.weight" {
            let factors = self.freq_factors.as_ref()?;
            let bytes = factors.iter().flat_map(|factor| factor.to_le_bytes()).collect();
            let dims = vec![factors.len()];
            return Some(WeightTensor {
                name: name.to_owned(),
                ty: GgmlType::F32,
                dims,
                bytes: MappedBytes::from_vec(bytes),
            });
        }
        let stored = self.tensors.get(name)?;
        let ty = stored.ty.as_ref().ok().copied()?;
        let bytes = match paired_heads(name, config) {
            Some(n_heads) => {
                let row_bytes = stored.bytes.len() / (n_heads * config.head_dim);
                MappedBytes::from_vec(pair_adjacent_rows(&stored.bytes, n_heads, config.head_dim, row_bytes))
            }
            None => stored.bytes.clone(),
        };
        Some(WeightTensor { name: name.to_owned(), ty, dims: stored.dims.clone(), bytes })
    }
}

/// The number of heads whose rows must be reordered: those of Q and K where adjacent elements rotate together.
fn paired_heads(name: &str, config: &ModelConfig) -> Option<usize> {
    if config.rope.pairing != Pairing::Adjacent {
        return None;
    }
    match layout::split_block(name)?.1 {
        "attn_q.weight" | "attn_q.bias" => Some(config.n_heads),
        "attn_k.weight" | "attn_k.bias" => Some(config.n_kv_heads),
        _ => None,
    }
}

/// Refuses text tensors of types that cannot be used, such as fp8.
fn refuse_foreign_types(tensors: &HashMap<String, Stored>) -> Result<(), CheckpointError> {
    let is_text = |name: &str| {
        layout::split_block(name).is_some() || name.starts_with("output") || name.starts_with("token_embd")
    };
    let mut problems: Vec<String> = tensors
        .iter()
        .filter(|(name, _)| is_text(name))
        .filter_map(|(name, tensor)| {
            let ty = tensor.ty.as_ref().err()?;
            Some(format!("{name} has type {ty} instead of F32, F16 or BF16"))
        })
        .collect();
    problems.sort_unstable();
    if problems.is_empty() { Ok(()) } else { Err(CheckpointError::BadTensors { problems }) }
}

fn config_path(folder: &Path) -> Result<PathBuf, CheckpointError> {
    let path = folder.join(CONFIG);
    if path.is_file() {
        return Ok(path);
    }
    let problem = if folder.join("params.json").is_file() {
        "has params.json but no config.json: Mistral's own layout is not supported; use the HF one or a GGUF file"
    } else {
        "has no config.json; give a .gguf file, or a folder with config.json and model.safetensors"
    };
    Err(CheckpointError::NotACheckpoint { path: folder.to_owned(), problem: problem.into() })
}

/// Every tensor of the folder under its HF name: one file, or the shards that the index names.
fn stored_tensors(folder: &Path) -> Result<Vec<(String, Stored)>, CheckpointError> {
    if folder.join(SINGLE).is_file() {
        return safetensors_file::open(&folder.join(SINGLE));
    }
    let index_path = folder.join(INDEX);
    if !index_path.is_file() {
        let problem = if folder.join("pytorch_model.bin").is_file() {
            "has pytorch_model.bin but no safetensors; convert it first".to_owned()
        } else if folder.join("consolidated.safetensors").is_file() {
            format!(
                "has Mistral's own consolidated.safetensors, which is not supported, but no {SINGLE}; get the model's HF files"
            )
        } else {
            format!("has config.json but neither {SINGLE} nor {INDEX}")
        };
        return Err(CheckpointError::NotACheckpoint { path: folder.to_owned(), problem });
    }
    let index: Index = read_json(&index_path)?;
    shard_tensors(folder, &index_path, &index)
}

/// `model.safetensors.index.json`.
#[derive(Deserialize)]
struct Index {
    /// Tensor name to file name.
    weight_map: HashMap<String, String>,
}

fn shard_tensors(
    folder: &Path,
    index_path: &Path,
    index: &Index,
) -> Result<Vec<(String, Stored)>, CheckpointError> {
    let bad_index =
        |problem: String| CheckpointError::NotACheckpoint { path: index_path.to_owned(), problem };
    let mut files: Vec<&str> = index.weight_map.values().map(String::as_str).collect();
    files.sort_unstable();
    files.dedup();
    let mut tensors = Vec::new();
    for file in files {
        if Path::new(file).file_name() != Some(file.as_ref()) {
            return Err(bad_index(format!("names the shard `{file}`, which is not a plain file name")));
        }
        let path = folder.join(file);
        if !path.is_file() {
            return Err(bad_index(format!("names the shard {file}, which is not in the folder")));
        }
        let mut stored = safetensors_file::open(&path)?;
        stored.retain(|(name, _)| index.weight_map.get(name).is_some_and(|holder| holder == file));
        tensors.append(&mut stored);
    }
    if tensors.len() < index.weight_map.len() {
        let found: HashSet<&str> = tensors.iter().map(|(name, _)| name.as_str()).collect();
        let mut absent: Vec<_> =
            index.weight_map.iter().filter(|(name, _)| !found.contains(name.as_str())).collect();
        absent.sort_unstable();
        let (name, file) = absent[0];
        let count = absent.len();
        return Err(bad_index(format!(
            "places {name} in {file}, which does not have it ({count} such tensors)"
        )));
    }
    Ok(tensors)
}

pub(super) fn read_json<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T, CheckpointError> {
    let io = |source| CheckpointError::Io { path: path.to_owned(), source };
    let size = File::open(path).and_then(|file| file.metadata()).map_err(io)?.len();
    if size > MAX_JSON_BYTES {
        let problem = format!("is {size} bytes long, too much for a configuration file");
        return Err(CheckpointError::NotACheckpoint { path: path.to_owned(), problem });
    }
    let text = text::read(path).map_err(io)?;
    serde_json::from_str(&text).map_err(|source| CheckpointError::Json { path: path.to_owned(), source })
}

//! Checkpoints: a GGUF model or an HF folder, with its hyperparameters read and every tensor checked.
//!
//! Both kinds look the same afterwards: tensors have GGUF names, and the Q and K rows of architectures that rotate
//! adjacent pairs are in that order.

mod arch;
pub(crate) mod config;
mod error;
mod generation_config;
mod gguf_config;
mod hf_config;
mod hf_folder;
mod hf_keys;
mod hf_names;
pub(crate) mod keys;
pub(crate) mod layout;
mod llama_label;
mod query_scale;
mod rope;
mod safetensors_file;
pub(crate) mod tensors;
mod weight;

use std::path::{Path, PathBuf};

pub use arch::Arch;
pub use config::{ContextLimit, ModelConfig};
pub use ember_formats::Pairing;
pub use error::CheckpointError;
pub use generation_config::GenerationConfig;
pub use query_scale::QueryScale;
pub use rope::{RopeConfig, RopeScaling};
pub use tensors::{TensorRole, TensorSpec};
pub use weight::{TensorSource, WeightTensor};

use crate::gguf::Gguf;
use hf_folder::HfFolder;
use layout::Inventory;

/// A model's hyperparameters and weights, checked against each other.
pub struct Checkpoint {
    path: PathBuf,
    config: ModelConfig,
    unused_tensors: Vec<String>,
    source: Source,
}

enum Source {
    Gguf(Gguf),
    Folder(HfFolder),
}

impl Checkpoint {
    /// Opens a GGUF file (any shard of a split one) or an HF folder.
    ///
    /// # Errors
    /// If the file is malformed, the architecture is not supported, a value cannot be used, or a tensor is
    /// missing, has the wrong shape, or would be ignored although it matters.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CheckpointError> {
        let path = path.as_ref();
        if path.is_dir() {
            let (folder, config, unused_tensors) = HfFolder::open(path)?;
            return Ok(Self {
                path: path.to_owned(),
                config,
                unused_tensors,
                source: Source::Folder(folder),
            });
        }
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            let problem = "give the folder that holds it and config.json, not the file".to_owned();
            return Err(CheckpointError::NotACheckpoint { path: path.to_owned(), problem });
        }
        Self::from_gguf(Gguf::open(path)?)
    }

    /// Checks a GGUF model that is already open.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_gguf(gguf: Gguf) -> Result<Self, CheckpointError> {
        let inventory = Inventory::of_gguf(&gguf);
        let (config, unused_tensors) = gguf_config::read(gguf.metadata(), &inventory)?;
        let path = gguf.paths().first().cloned().unwrap_or_default();
        let checkpoint = Self { path, config, unused_tensors, source: Source::Gguf(gguf) };
        checkpoint.check_rope_freqs()?;
        Ok(checkpoint)
    }

    /// The frequency factors are divisors, so they are the one tensor whose values are checked.
    fn check_rope_freqs(&self) -> Result<(), CheckpointError> {
        let Some(tensor) = self.opt_tensor("rope_freqs.weight") else { return Ok(()) };
        match tensor.to_f32().into_iter().find(|factor| !factor.is_normal() || *factor < 0.0) {
            Some(factor) => {
                let problem = format!("{factor} cannot divide a frequency; the tensor is damaged");
                Err(CheckpointError::bad_value(tensor.name, problem))
            }
            None => Ok(()),
        }
    }

    /// The hyperparameters.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The GGUF file, unless the checkpoint is an HF folder.
    pub fn gguf(&self) -> Option<&Gguf> {
        match &self.source {
            Source::Gguf(gguf) => Some(gguf),
            Source::Folder(_) => None,
        }
    }

    /// generation_config.json of an HF folder; `None` for a GGUF file.
    pub fn generation_config(&self) -> Option<&GenerationConfig> {
        match &self.source {
            Source::Gguf(_) => None,
            Source::Folder(folder) => Some(folder.generation_config()),
        }
    }

    /// The GGUF file (the first shard) or the HF folder; empty for a GGUF model read from memory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names of tensors that the checkpoint has and the model does not use, sorted; ignoring them is harmless.
    pub fn unused_tensors(&self) -> &[String] {
        &self.unused_tensors
    }

    /// Bytes of all weight matrices, the embedding among them.
    pub fn matrix_bytes(&self) -> usize {
        self.bytes_of(|tensor| tensor.role.is_matrix())
    }

    /// Bytes of the weights that every step reads in full: all but an embedding that is only looked up.
    pub fn bytes_per_step(&self) -> usize {
        self.bytes_of(|tensor| match tensor.role {
            TensorRole::Embedding => self.config.tied_embeddings,
            TensorRole::RopeFactors => false,
            TensorRole::Head | TensorRole::Matrix | TensorRole::Norm | TensorRole::Bias => true,
        })
    }

    fn bytes_of(&self, counts: impl Fn(&TensorSpec) -> bool) -> usize {
        let tensors = self.config.tensors().into_iter().filter(counts);
        tensors.filter_map(|tensor| self.opt_tensor(&tensor.name)).map(|tensor| tensor.bytes.len()).sum()
    }
}

impl TensorSource for Checkpoint {
    fn opt_tensor(&self, name: &str) -> Option<WeightTensor> {
        match &self.source {
            Source::Gguf(gguf) => {
                let info = gguf.tensor(name)?;
                let (name, ty, dims) = (info.name.clone(), info.ty.computable()?, info.dims.clone());
                Some(WeightTensor { name, ty, dims, bytes: gguf.bytes(info) })
            }
            Source::Folder(folder) => folder.tensor(name, &self.config),
        }
    }
}

//! Errors of checkpoints.

use std::io;
use std::path::PathBuf;

use super::arch::Arch;
use crate::gguf::{GgmlType, GgufError, StoredType};

/// Most names that an error lists before it says how many more there are.
const MAX_LISTED: usize = 20;

/// The reason for which a checkpoint cannot be loaded; each message names the file, key or tensor at fault.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The GGUF file is malformed, or lacks a key.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The path holds no model of a kind that can be loaded.
    #[error("{}: {problem}", path.display())]
    NotACheckpoint {
        /// The path as given.
        path: PathBuf,
        /// The problem, and what to give instead.
        problem: String,
    },
    /// The architecture is not supported.
    #[error("architecture `{found}` is not supported; accepted are:{}", requirements())]
    UnsupportedArchitecture {
        /// The label found.
        found: String,
    },
    /// A file labelled `llama` fits neither Mistral Small 3.x nor a plain dense llama.
    #[error("labelled llama, but not Mistral Small 3.x ({failed_check}), and as a plain llama: {as_llama}")]
    LlamaRefused {
        /// The first check of Mistral Small 3.x that failed.
        failed_check: String,
        /// The reason against loading it as a plain llama.
        as_llama: Box<CheckpointError>,
    },
    /// A key holds a value that cannot be used.
    #[error("`{key}`: {problem}")]
    BadValue {
        /// The metadata key, or the path within config.json.
        key: String,
        /// The problem with its value.
        problem: String,
    },
    /// Two hyperparameters contradict each other.
    #[error("{0}")]
    Inconsistent(String),
    /// Tensors that the architecture needs are absent.
    #[error("{arch} needs {} that the checkpoint does not have: {}", count(names), listed(names))]
    MissingTensors {
        /// The architecture the checkpoint was read as.
        arch: &'static str,
        /// Every missing name.
        names: Vec<String>,
    },
    /// Tensors whose shape contradicts the metadata, or whose type cannot be used where they are.
    #[error("{} at odds with the metadata: {}", count(problems), listed(problems))]
    BadTensors {
        /// One text per tensor: name, shape, expected shape.
        problems: Vec<String>,
    },
    /// Tensors of types that nothing here computes with.
    #[error(
        "tensor {tensor} is of type {ty}, which cannot be computed with{}: the file can be looked at but not run; take \
         another quantization of the model, or quantize it again, to {}",
        and_others(*.others),
        computable_names()
    )]
    ForeignType {
        /// The first such tensor, in the model's order.
        tensor: String,
        /// Its type.
        ty: StoredType,
        /// The number of further ones.
        others: usize,
    },
    /// Tensors that would change the result and that the architecture does not know.
    #[error(
        "{arch} does not use {} that the checkpoint has, and ignoring them would give wrong results: {}{hint}",
        count(names),
        listed(names)
    )]
    UnexpectedTensors {
        /// The architecture the checkpoint was read as.
        arch: &'static str,
        /// Every such name.
        names: Vec<String>,
        /// The model that the tensors suggest; empty when nothing is known.
        hint: &'static str,
    },
    /// [`TensorSource::tensor`](super::TensorSource::tensor) was asked for a tensor that does not exist.
    #[error("the checkpoint has no tensor `{0}`")]
    NoSuchTensor(String),
    /// A safetensors file is malformed.
    #[error("{}: {problem}", path.display())]
    Safetensors {
        /// The file.
        path: PathBuf,
        /// The problem with it.
        problem: String,
    },
    /// A JSON file of an HF folder is malformed.
    #[error("{}: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The fault and its place.
        source: serde_json::Error,
    },
}

impl CheckpointError {
    pub(crate) fn bad_value(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::BadValue { key: key.into(), problem: problem.into() }
    }
}

fn requirements() -> String {
    Arch::ALL.iter().map(|arch| format!("\n  {}", arch.requirements())).collect()
}

fn and_others(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => " (nor can that of one more tensor)".to_owned(),
        _ => format!(" (nor can those of {count} more tensors)"),
    }
}

fn computable_names() -> String {
    GgmlType::ALL.map(GgmlType::name).join(", ")
}

fn count(names: &[String]) -> String {
    if names.len() == 1 { "a tensor".into() } else { format!("{} tensors", names.len()) }
}

fn listed(names: &[String]) -> String {
    let shown = names[..names.len().min(MAX_LISTED)].join(", ");
    match names.len().saturating_sub(MAX_LISTED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

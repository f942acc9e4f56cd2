//! Errors between a checkpoint and logits.
use crate::check_finite::StepPart;
use ember_loaders::checkpoint::{Arch, Checkpoint, CheckpointError};
use thiserror::Error;

/// An error of this crate. Every message names the thing at fault.
#[derive(Debug, Error)]
pub enum ModelError {
    /// The checkpoint could not be read or does not hold what the architecture needs.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A typed model was asked to load a checkpoint of another family.
    #[error("this checkpoint is a {found:?} model, not {wanted}")]
    WrongArchitecture {
        /// The architecture in the checkpoint.
        found: Arch,
        /// The family that the caller's type accepts.
        wanted: &'static str,
    },
    /// A batch that contradicts itself, the model or the cache.
    #[error("invalid batch: {0}")]
    InvalidBatch(String),
    /// Pixels that do not agree with their own grid.
    #[error("invalid image: {0}")]
    InvalidImage(String),
    /// The KV cache cannot have the requested form.
    #[error("KV cache: {0}")]
    KvCache(String),
    /// The model produced NaN or infinity.
    #[error(
        "the model produced {value} at token position {position}: the file is damaged or its values overflow"
    )]
    NotFinite {
        /// The offending value.
        value: f32,
        /// Rotary position of the row.
        position: usize,
    },
    /// A checked step found where its numbers break down.
    #[error(
        "{part}: the first value that is not finite there is {value}, in row {row} of the step (token position \
         {position}); the file is damaged or its values overflow"
    )]
    BreakDown {
        /// The first part with such a value.
        part: StepPart,
        /// The value; one for the KV cache as it was before it was rounded to the cache's type.
        value: f32,
        /// Row of the batch.
        row: usize,
        /// Rotary position of the row.
        position: usize,
    },
    /// The device cannot hold the model, or failed at what it was asked.
    #[error("{0}")]
    Device(String),
}

impl ModelError {
    /// Refuses a checkpoint of another family.
    pub(crate) fn check_family(
        checkpoint: &Checkpoint,
        arch: Arch,
        wanted: &'static str,
    ) -> Result<(), Self> {
        match checkpoint.config().arch {
            found if found == arch => Ok(()),
            found => Err(Self::WrongArchitecture { found, wanted }),
        }
    }
}

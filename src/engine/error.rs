//! Errors of the engine.
use crate::sampling::SamplingError;
use ember_models::ModelError;
use thiserror::Error;

/// Why a step or a generation failed.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The tokens do not fit into the KV cache.
    #[error("{tokens} tokens do not fit into the context of {context} (raise --ctx-size)")]
    ContextFull {
        /// Tokens the longest sequence would have had.
        tokens: usize,
        /// Size of the KV pool in tokens.
        context: usize,
    },
    /// Nothing to run.
    #[error("the prompt is empty")]
    EmptyPrompt,
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
    /// The model refused the batch.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// No token could be drawn.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
}

//! Errors of the engine.
use super::scheduler::Refusal;
use crate::sampling::{ParamError, SamplingError};
use ember_models::ModelError;
use thiserror::Error;

/// The reason a step or a generation failed.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The tokens do not fit into the KV cache.
    #[error("{tokens} tokens do not fit into the context of {context}")]
    ContextFull {
        /// Tokens the longest sequence would have had.
        tokens: usize,
        /// Size of the KV pool in tokens.
        context: usize,
    },
    /// Nothing to run.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// An image and the tokens that stand for it do not fit together.
    #[error("the image at token {start} {problem}")]
    ImagePlace {
        /// Index of its first token in the sequence.
        start: usize,
        /// The fault.
        problem: String,
    },
    /// The image encoder produced something other than finite embeddings for the image's cells.
    #[error("the image encoder produced {problem}: the projector file is damaged or its values overflow")]
    ImageEncoding {
        /// The offending value or size.
        problem: String,
    },
    /// The model refused the batch.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The scheduler does not accept the request.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A setting of the draws is outside its range.
    #[error(transparent)]
    Setting(#[from] ParamError),
    /// Another continuation of the same request could not be accepted.
    #[error("the request was refused")]
    OtherContinuation,
    /// All requests have ended, and no more are accepted.
    #[error("the engine has stopped: {reason}")]
    Stopped {
        /// The error that ended it.
        reason: String,
    },
    /// No token could be drawn.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
}

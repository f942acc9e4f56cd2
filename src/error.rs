//! Errors of the library.
use crate::chat::{ImagePromptError, MessageError, PromptError, TemplateError};
use crate::device::BackendError;
use crate::engine::EngineError;
use crate::sampling::{ParamError, SamplingError};
use ember_loaders::checkpoint::{CheckpointError, ContextLimit};
use ember_loaders::gguf::GgufError;
use ember_loaders::image::ImageError;
use ember_loaders::tokenizer::TokenizerError;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use thiserror::Error;

/// The reason a model could not be opened, or did not answer.
#[derive(Debug, Error)]
pub enum Error {
    /// The model file cannot be used.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A GGUF file is malformed, or a value in it has another type than it should.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The tokenizer of a model is not supported.
    #[error("tokenizer of {}: {source}", path.display())]
    Tokenizer {
        /// The model.
        path: PathBuf,
        /// The fault.
        source: Box<TokenizerError>,
    },
    /// A text that the tokenizer cannot encode.
    #[error(transparent)]
    Text(#[from] TokenizerError),
    /// The chat template cannot be compiled.
    #[error(transparent)]
    Template(#[from] Arc<TemplateError>),
    /// A message that no template could render.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The conversation gave no prompt.
    #[error(transparent)]
    Prompt(#[from] PromptError),
    /// The images have no place in the prompt.
    #[error(transparent)]
    ImagePrompt(#[from] ImagePromptError),
    /// An image cannot be read.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// An image was named by its address on the web.
    #[error("{0}: images are not fetched from the web; download it and name the file")]
    RemoteImage(String),
    /// A projector cannot be used for the model.
    #[error(transparent)]
    Projector(#[from] ProjectorError),
    /// The backend or device cannot be used, or cannot hold the model.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A sampling setting is outside its range.
    #[error(transparent)]
    Setting(#[from] ParamError),
    /// A sampling setting of the model's file is outside its range.
    #[error("{}: {setting}", path.display())]
    FileSetting {
        /// The GGUF file, or generation_config.json.
        path: PathBuf,
        /// The setting.
        setting: ParamError,
    },
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The chat template has no thinking switch.
    #[error(
        "this model cannot be told to {}: its chat template has no switch (enable_thinking)",
        if *.think { "think" } else { "not think" }
    )]
    NoThinkingSwitch {
        /// The position that was asked for.
        think: bool,
    },
    /// A context beyond what the model was trained for.
    #[error("a context of {asked} tokens is beyond {limit}")]
    ContextTooLarge {
        /// Tokens asked for.
        asked: usize,
        /// The longest context of the model.
        limit: ContextLimit,
    },
    /// The prompt does not fit into the context.
    #[error("the prompt has {tokens} tokens and the context holds {context}{}", too_long_for(*.tokens, *.allowed))]
    PromptTooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// Tokens of the context.
        context: usize,
        /// Tokens of the largest context that the model allows.
        allowed: usize,
    },
    /// There is no answer that could be given again.
    #[error("there is no answer yet")]
    NoAnswerYet,
    /// The progress callback asked to stop before the answer began.
    #[error("cancelled")]
    Cancelled,
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl From<SamplingError> for Error {
    fn from(error: SamplingError) -> Self {
        Self::Engine(error.into())
    }
}

fn too_long_for(tokens: usize, allowed: usize) -> String {
    if tokens <= allowed { String::new() } else { format!(": shorten it (the model allows {allowed})") }
}

/// The reason a model has no projector to read images with.
#[derive(Debug, Error)]
pub enum ProjectorError {
    /// A projector file is malformed or does not fit the model.
    #[error("{}", named(path, source))]
    Unfit {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: Box<CheckpointError>,
    },
    /// The folder of the model cannot be listed.
    #[error("cannot list {}: {source}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// No projector file lies beside the model.
    #[error("there is no projector (*mmproj*.gguf) that reads images beside {}", model.display())]
    NotFound {
        /// The model.
        model: PathBuf,
    },
    /// None of the projector files beside the model fits it.
    #[error("no projector beside {} fits it:{}", model.display(), lines(refused))]
    NoneFits {
        /// The model.
        model: PathBuf,
        /// The fault of each file, with its name.
        refused: Vec<String>,
    },
    /// Several projector files beside the model fit it.
    #[error("several projectors beside {} fit it:{}", model.display(), lines(fitting.iter().map(|path| path.display())))]
    SeveralFit {
        /// The model.
        model: PathBuf,
        /// The files.
        fitting: Vec<PathBuf>,
    },
}

/// The error with the name of the file, which some begin with.
fn named(path: &std::path::Path, error: &CheckpointError) -> String {
    let (name, text) = (path.display().to_string(), error.to_string());
    if text.starts_with(&name) { text } else { format!("{name}: {text}") }
}

fn lines<T: std::fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| format!("\n  {item}")).collect()
}

//! Flags that help against the library's errors.
use ember::chat::{PromptError, TemplateError};
use ember::device::{BackendError, DeviceError};
use ember::engine::EngineError;
use ember::{Error, ProjectorError};
use ember_models::ModelError;

/// The flag that helps against an error, and its use.
pub fn of(error: &Error) -> Option<String> {
    match error {
        Error::PromptTooLong { tokens, allowed, .. } if tokens <= allowed => {
            Some(format!("raise --ctx-size (up to {allowed})"))
        }
        Error::Template(error) if matches!(**error, TemplateError::Missing { .. }) => Some(
            "name one with --chat-template FILE, or continue a text as it is with `ember run --raw`"
                .to_owned(),
        ),
        Error::Prompt(PromptError::Omission(_)) => {
            Some("give another one with --chat-template FILE".to_owned())
        }
        Error::ContextTooLarge { .. } => Some("lower --ctx-size".to_owned()),
        Error::Projector(
            ProjectorError::NotFound { .. }
            | ProjectorError::NoneFits { .. }
            | ProjectorError::SeveralFit { .. },
        ) => Some("name one with --mmproj".to_owned()),
        Error::Backend(error) => of_backend(error),
        Error::Engine(error) => of_engine(error),
        _ => None,
    }
}

/// The flag that helps against an error of the engine.
pub fn of_engine(error: &EngineError) -> Option<String> {
    match error {
        EngineError::Model(ModelError::NotFinite { .. }) => {
            Some("--check-finite names the layer where it begins".to_owned())
        }
        _ => None,
    }
}

/// The flag that helps against an error of a backend.
pub fn of_backend(error: &BackendError) -> Option<String> {
    match error {
        BackendError::NotCompiledIn { backend, .. } => Some(format!("build it with --features {backend}")),
        BackendError::NotMeasured { .. } => Some("use `ember bench` or `cargo bench`".to_owned()),
        BackendError::NothingToCompare { .. } => None,
        BackendError::Device { backend, error } => match error {
            DeviceError::NoSuchDevice { .. } => {
                Some(format!("`ember devices --backend {backend}` lists them for --device"))
            }
            DeviceError::NoDriver(_) | DeviceError::NoDevice { .. } | DeviceError::TooFewBuffers { .. } => {
                Some("or use --backend ndarray for the CPU".to_owned())
            }
            DeviceError::Threads(_) => Some("set by --threads".to_owned()),
            _ => None,
        },
    }
}

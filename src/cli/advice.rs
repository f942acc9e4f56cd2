//! Flags that help against the library's errors.
use ember::{Error, ProjectorError};

/// The flag that helps against an error, and its use.
pub fn of(error: &Error) -> Option<String> {
    match error {
        Error::PromptTooLong { tokens, allowed, .. } if tokens <= allowed => {
            Some(format!("raise --ctx-size (up to {allowed})"))
        }
        Error::ContextTooLarge { .. } => Some("lower --ctx-size".to_owned()),
        Error::Projector(
            ProjectorError::NotFound { .. }
            | ProjectorError::NoneFits { .. }
            | ProjectorError::SeveralFit { .. },
        ) => Some("name one with --mmproj".to_owned()),
        _ => None,
    }
}

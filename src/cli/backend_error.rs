//! What the library's errors of backends mean on the command line: the flag that helps.
use ember::backend::{BackendError, DeviceError};

/// The error, naming the flag that helps where one does.
pub fn with_flags(error: BackendError) -> anyhow::Error {
    let text = match &error {
        BackendError::NotCompiledIn { backend, compiled } => {
            let compiled: Vec<String> = compiled.iter().map(ToString::to_string).collect();
            format!(
                "this binary was built without the {backend} backend: build it with --features {backend} (it has: {})",
                compiled.join(", ")
            )
        }
        BackendError::Device { backend, error } => match error {
            DeviceError::NoSuchDevice { index, available } => format!(
                "--device {index} does not exist: `ember devices` lists {available} for {backend}, from 0"
            ),
            DeviceError::NoDriver(_) | DeviceError::NoDevice { .. } | DeviceError::TooFewBuffers { .. } => {
                format!("{error}; or use --backend ndarray for the CPU")
            }
            DeviceError::Threads(error) => format!("--threads: {error}"),
            _ => error.to_string(),
        },
        BackendError::NotMeasured { backend } => {
            format!("{backend} is measured by `ember bench` and `cargo bench`")
        }
        BackendError::NothingToCompare { .. } => error.to_string(),
    };
    anyhow::Error::msg(text)
}

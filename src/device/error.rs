//! Errors of the choice of a backend and of its devices.
use super::BackendKind;
pub use ember_backend_common::DeviceError;
use thiserror::Error;

/// An error of a backend.
#[derive(Debug, Error)]
pub enum BackendError {
    /// A backend that this build does not hold.
    #[error("this binary was built without the {backend} backend (it has: {})", names(.compiled))]
    NotCompiledIn {
        /// The backend asked for.
        backend: BackendKind,
        /// Those that there are.
        compiled: &'static [BackendKind],
    },
    /// The device failed, cannot be had or cannot hold the model.
    #[error("{error}")]
    Device {
        /// The device's backend.
        backend: BackendKind,
        /// The failure.
        error: DeviceError,
    },
    /// The CPU has no kernels of its own to compare, or the definitions, which run on it, were left out.
    #[error("there is nothing to compare {backend} with: it takes a GPU backend, built beside ndarray")]
    NothingToCompare {
        /// The backend asked for.
        backend: BackendKind,
    },
    /// Single products are measured on GPUs only.
    #[error("single products are measured on GPUs, not on {backend}")]
    NotMeasured {
        /// The backend asked for.
        backend: BackendKind,
    },
}

fn names(kinds: &[BackendKind]) -> String {
    kinds.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

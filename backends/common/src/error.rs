//! Errors between a backend and a loaded model.
use ember_loaders::checkpoint::ContextLimit;
use ember_models::{ModelError, SetThreadsError};
use thiserror::Error;

/// An error of a backend's device.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// The driver, or the compiler that its kernels need, is not there or does not start.
    #[error("{0}")]
    NoDriver(String),
    /// The driver lists no device.
    #[error("no device was found: {advice}")]
    NoDevice {
        /// The remedy.
        advice: &'static str,
    },
    /// The driver lists fewer devices.
    #[error("device {index} does not exist: there {}, from 0", count(*.available))]
    NoSuchDevice {
        /// The device asked for.
        index: usize,
        /// Devices that there are.
        available: usize,
    },
    /// The device lacks something that the kernels need.
    #[error("this device cannot be used: it offers kernels {offered} storage buffers, Ember needs {needed}")]
    TooFewBuffers {
        /// Storage buffers of a kernel on this device.
        offered: u32,
        /// Storage buffers of the largest kernel.
        needed: u32,
    },
    /// A context without room for a token.
    #[error("the context must hold at least 1 token")]
    EmptyContext,
    /// A context beyond what the model was made for.
    #[error("a context of {asked} tokens is beyond {limit}")]
    ContextTooLarge {
        /// Tokens asked for.
        asked: usize,
        /// The longest context of the model.
        limit: ContextLimit,
    },
    /// The number of CPU threads cannot be set.
    #[error(transparent)]
    Threads(#[from] SetThreadsError),
    /// The model cannot be loaded, or the device failed.
    #[error(transparent)]
    Model(#[from] ModelError),
}

fn count(devices: usize) -> String {
    if devices == 1 { "is 1".to_owned() } else { format!("are {devices}") }
}

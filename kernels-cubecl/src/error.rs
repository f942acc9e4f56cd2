//! Errors of devices.
use thiserror::Error;

/// A device that refuses, or fails at, what it was asked for.
#[derive(Clone, Debug, Error)]
pub enum GpuError {
    /// A buffer that cannot be allocated or bound: refused before the device is asked.
    #[error("{what} needs a buffer of {bytes} bytes, this device allows {limit}")]
    TooLarge {
        /// Purpose of the buffer.
        what: String,
        /// Bytes asked for.
        bytes: u64,
        /// Bytes of the largest buffer.
        limit: u64,
    },
    /// The device reported a failure: an allocation, a kernel that does not compile, a lost device.
    #[error("the device failed: {0}")]
    Device(String),
    /// Bytes that are not the matrix they are said to be.
    #[error("{0}")]
    Invalid(String),
}

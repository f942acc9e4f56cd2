//! Kernels over GGUF blocks and paged keys and values, written in CubeCL: one text for CUDA, Vulkan (SPIR-V), Metal
//! and WebGPU (WGSL).
//!
//! The crate knows no Burn: operations take and return device buffers of 32-bit words ([`Buffer`]) on a [`Gpu`].
//! A device that failed gives errors and never zeros: see [`guard`].
//! Everything stored is `f32` or `u32` (WGSL has no narrower storage); halves and bytes are unpacked from words.
pub mod activation;
pub mod attention;
mod buffer;
mod dequant;
mod error;
mod failure;
mod format;
pub mod gather;
mod gpu;
mod grid;
mod halves;
pub mod kv;
pub mod linear;
mod matrix;
pub mod norm;
mod pack;
pub mod pick;
pub mod probe;
pub mod rope;

pub use buffer::Buffer;
pub use ember_formats::GgmlType;
pub use error::GpuError;
pub use failure::guard;
pub use gpu::{Capabilities, Gpu, MatrixUnit, launch_count, read_bytes};
pub use matrix::DeviceMatrix;
pub use pack::pack_rows;

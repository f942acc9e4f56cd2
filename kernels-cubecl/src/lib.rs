//! Kernels over GGUF blocks and paged keys and values, written in CubeCL: one text for CUDA, Vulkan (SPIR-V), Metal
//! and WebGPU (WGSL).
//!
//! The crate knows no Burn: operations take and return device buffers of 32-bit words ([`Buffer`]) on a [`Gpu`].
//! Everything stored is `f32` or `u32` (WGSL has no narrower storage); halves and bytes are unpacked from words.
pub mod activation;
mod buffer;
mod error;
mod gpu;
pub mod kv;
pub mod norm;
pub mod pick;
pub mod rope;

pub use buffer::Buffer;
pub use error::GpuError;
pub use gpu::{Capabilities, Gpu, launch_count};

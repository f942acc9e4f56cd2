//! CPU kernels over slices, without any tensor library.
//!
//! [`linear()`] multiplies activations with matrices that stay in their GGUF blocks. Quantized weights meet activations
//! rounded to int8, in blocks of 32 for weight formats of 32 elements per block and of 256 for superblocks; float
//! weights meet f32 activations. Every output has one fixed order of floating-point operations, so results are the
//! same to the last bit for any batch, any number of threads ([`ThreadPool`]) and any instruction set ([`Isa`]).

mod activations;
pub mod attention;
mod dot;
pub mod float;
mod isa;
pub mod kv;
mod linear;
mod matrix;
pub mod pool;

pub use ember_formats::GgmlType;
pub use isa::Isa;
pub use linear::{linear, linear_with};
pub use matrix::{Matrix, MatrixError};
pub use pool::ThreadPool;

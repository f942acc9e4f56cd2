//! The code that the tests of several crates share.
//!
//! Comparisons fail on NaN, infinity, and lengths that differ: a maximum folded with `f32::max` drops NaN, and a result that
//! is NaN throughout would pass.
mod compare;
pub mod definition;
mod finite;
mod fixtures;
mod gguf_file;
mod reference;
mod scripted;
mod tensor_file;

pub use compare::{Real, cosine, distance, lowest_cosine, max_difference, max_relative, max_relative_by_row};
pub use ember_formats::sample::{Random, random, sample_blocks};
pub use finite::{BROKEN, assert_broken_alike};
pub use fixtures::{fixture, read_fixture};
pub use gguf_file::GgufFile;
pub use reference::Reference;
pub use scripted::Scripted;
pub use tensor_file::{Dtype, TensorFile};

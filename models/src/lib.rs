//! [`Qwen3`], [`Mistral3`] with its [`Pixtral`] vision encoder, and the plain [`Llama`] and [`Qwen2`] decoders they descend
//! from, as Burn modules. [`TextModel`] is whichever of them a checkpoint holds.
//!
//! Every module is generic over [`backend::Backend`], Burn's backend trait extended with the operations that
//! inference lives on: packed (quantized) matrix products, RMSNorm, rotary embedding, paged attention. Each of them
//! has a default body in ordinary tensor operations, so any Burn backend with an `impl Backend`
//! runs these models, and the fast versions have a definition to be tested against.
//!
//! ```no_run
//! use burn_ndarray::NdArray;
//! use ember_loaders::gguf::Gguf;
//! use ember_models::Qwen3;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Default::default();
//! let model = Qwen3::<NdArray>::from_gguf(Gguf::open("qwen3.gguf")?, &device)?;
//! let tokens = burn::tensor::Tensor::from_ints([[9707, 11, 1879]], &device);
//! let logits = model.forward(tokens); // [batch, seq, vocab]
//! # Ok(())
//! # }
//! ```
pub mod backend;
pub mod batch;
mod check_finite;
pub mod decoder;
pub mod encoder;
pub mod error;
pub mod kv_cache;
pub mod layers;
pub mod llama;
pub mod mistral3;
mod opaque;
pub mod packed;
pub mod pixtral;
pub mod qwen2;
pub mod qwen3;
pub mod runner;
pub mod step;
pub mod text_model;
pub mod weights;

pub use batch::{Batch, EmbeddingRows, SequenceRows};
pub use check_finite::StepPart;
pub use decoder::{Decoder, StepOutput};
pub use ember_formats::{KvLayout, KvType};
pub use ember_kernels_cpu::pool::{SetThreadsError, global as cpu_pool, set_threads as set_cpu_threads};
pub use encoder::{ImageEncoder, PixtralEncoder};
pub use error::ModelError;
pub use kv_cache::KvCache;
pub use llama::{Llama, LlamaConfig};
pub use mistral3::{Mistral3, Mistral3Config, YarnConfig};
pub use opaque::Opaque;
pub use packed::PackedMatrix;
pub use pixtral::Pixtral;
pub use qwen2::{Qwen2, Qwen2Config};
pub use qwen3::{Qwen3, Qwen3Config};
pub use runner::{DecoderRunner, NotFinite, Runner, RunnerOutput};
pub use step::Step;
pub use text_model::TextModel;
pub use weights::WeightFormat;

//! The formats that loaders and kernels share: GGUF's block types and their exact f32 values, the names and sizes of the
//! types that files hold besides, the element types and the layout of a KV cache, the pairings of rotary embeddings.
//!
//! Each stands here once; how a kernel packs, multiplies or unpacks them on its processor is the kernel's business.
pub mod codes;
mod dequant;
mod ggml;
mod kv;
mod pairing;
mod stored;

pub mod sample;

pub use dequant::dequantize;
pub use ggml::GgmlType;
pub use kv::{KvLayout, KvLayoutError, KvType, UnknownKvType};
pub use pairing::Pairing;
pub use stored::{ForeignType, StoredType};

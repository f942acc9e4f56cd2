//! Reading model files without a tensor framework: GGUF and safetensors checkpoints, tokenizers, images.
pub mod checkpoint;
pub mod gguf;
pub mod image;
pub mod projector;
pub mod text;
pub mod tokenizer;

//! Reading model files without a tensor framework: GGUF and safetensors checkpoints, tokenizers.
pub mod checkpoint;
pub mod gguf;
pub mod tokenizer;

//! Ember: an inference engine for Mistral 3 and Qwen3 GGUF files on Burn.
pub mod chat;
pub mod sampling;

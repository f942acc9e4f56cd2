//! Ember: an inference engine for Mistral 3 (with images) and Qwen3 GGUF files on Burn.
//!
//! The models live in `ember-models`, the file formats in `ember-loaders`; this crate holds what turns them into a
//! program: the [`engine`] (sequences, KV blocks, generation), [`sampling`], [`chat`] templates. The command line is the binary.
pub mod backend;
pub mod chat;
pub mod engine;
pub mod sampling;
pub mod synth;

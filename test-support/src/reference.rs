//! Logits that another implementation computed with a tiny model.
use crate::TensorFile;
use std::path::Path;

/// A prompt and what Hugging Face transformers computed of it (`tests/reference`).
#[derive(Clone, Debug)]
pub struct Reference {
    /// The prompt.
    pub tokens: Vec<u32>,
    /// Rotary positions.
    pub positions: Vec<u32>,
    /// `[tokens, vocab]`.
    pub logits: Vec<f32>,
    /// The greedy continuation, if the file has one.
    pub greedy: Vec<u32>,
}

impl Reference {
    /// Reads a reference file.
    pub fn open(path: impl AsRef<Path>) -> Self {
        let file = TensorFile::open(path);
        let tokens = file.ids("input_ids");
        let optional = |name| if file.has(name) { file.ids(name) } else { Vec::new() };
        let mut positions = optional("position_ids");
        if positions.is_empty() {
            positions = (0..tokens.len() as u32).collect();
        }
        Self { positions, logits: file.f32("logits"), greedy: optional("greedy"), tokens }
    }

    /// Logits per position.
    pub fn vocab(&self) -> usize {
        self.logits.len() / self.tokens.len()
    }
}

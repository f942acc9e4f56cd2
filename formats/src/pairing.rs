//! Rotary position embedding: the elements that turn together.

/// The two elements of a head that are rotated together; `rot` is the rotated width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pairing {
    /// `(2i, 2i + 1)`: GGUF files of Llama and Mistral, whose query and key rows are stored permuted for it.
    Adjacent,
    /// `(i, i + rot/2)`: Qwen and the rest of NeoX's descendants; Hugging Face's "rotate half".
    Half,
}

//! Sampling settings that a model's card asks for, for files that carry none.
use super::SamplingOptions;
use ember_loaders::checkpoint::Arch;

/// The part that reasoning has in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thinking {
    /// The model does not reason between tags, or its prompt is not its template's.
    Unknown,
    /// The answer may begin with reasoning.
    On,
    /// The model could have reasoned, and its prompt tells it not to.
    Off,
}

/// The settings that the cards of an architecture's models ask for; empty where they leave it to the user.
///
/// Qwen3's cards forbid greedy decoding of reasoning, which then repeats itself without end.
pub fn card(arch: Arch, thinking: Thinking) -> SamplingOptions {
    let qwen3 = |temperature, top_p| SamplingOptions {
        temperature: Some(temperature),
        top_p: Some(top_p),
        top_k: Some(20),
        min_p: Some(0.0),
        ..SamplingOptions::default()
    };
    match (arch, thinking) {
        (Arch::Qwen3, Thinking::On) => qwen3(0.6, 0.95),
        (Arch::Qwen3, Thinking::Off) => qwen3(0.7, 0.8),
        (Arch::Qwen3 | Arch::Mistral3 | Arch::Llama | Arch::Qwen2, _) => SamplingOptions::default(),
    }
}

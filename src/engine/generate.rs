//! The generation loop of a single sequence.
use super::{Engine, EngineError, Sequence, Tokens, Wanted};
use crate::sampling::Sampler;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// When to stop.
#[derive(Clone, Debug)]
pub struct GenerateLimits {
    /// Tokens to generate at most.
    pub max_tokens: usize,
    /// Tokens that end the generation and are not part of it.
    pub end_tokens: Vec<u32>,
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model produced an end-of-generation token.
    EndOfGeneration,
    /// `max_tokens` were produced.
    MaxTokens,
    /// The context is full.
    ContextFull,
    /// The caller's callback asked to stop (a stop string, or Ctrl-C).
    Stopped,
}

/// What happened in a generation.
#[derive(Clone, Debug)]
pub struct Generation {
    /// The tokens, without the end token.
    pub tokens: Vec<u32>,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the prompt that were still in the cache.
    pub cached_tokens: usize,
    /// Time to process the rest of the prompt.
    pub prefill_time: Duration,
    /// Time from the first token to the last.
    pub decode_time: Duration,
}

/// Progress reports of a generation; each answer `Break` stops it.
pub trait Observer {
    /// `done` of `total` prompt tokens are processed.
    fn prefill(&mut self, done: usize, total: usize) -> ControlFlow<()>;
    /// A token was generated.
    fn token(&mut self, token: u32) -> ControlFlow<()>;
}

/// Continues `prompt`, reusing the part of it that `sequence` already holds.
///
/// Afterwards `sequence` holds the prompt and every generated token but the last, ready for the next turn.
///
/// # Errors
/// [`EngineError::EmptyPrompt`]; [`EngineError::ContextFull`] when the prompt alone does not fit (the sequence then
/// keeps the common prefix); [`EngineError::ImagePlace`] for images that do not fit the prompt; any error of the model or
/// the sampler.
pub fn generate<'a>(
    engine: &mut Engine,
    sequence: &mut Sequence,
    prompt: impl Into<Tokens<'a>>,
    sampler: &mut Sampler,
    limits: &GenerateLimits,
    observer: &mut dyn Observer,
) -> Result<Generation, EngineError> {
    let tokens = prompt.into();
    let prompt = tokens.ids;
    if prompt.is_empty() {
        return Err(EngineError::EmptyPrompt);
    }
    if prompt.len() > engine.context_size() {
        return Err(EngineError::ContextFull { tokens: prompt.len(), context: engine.context_size() });
    }
    if let Some(span) = tokens.images.last().filter(|span| span.end() > prompt.len()) {
        let problem = format!("ends at {}, behind the prompt of {} tokens", span.end(), prompt.len());
        return Err(EngineError::ImagePlace { start: span.start, problem });
    }
    let cached_tokens = sequence.reusable_prefix(tokens);
    engine.truncate(sequence, cached_tokens);
    let started = Instant::now();
    let rest = Tokens { ids: &prompt[cached_tokens..], ..tokens };
    let mut go_on = true;
    let wanted = sampler.likeliest_needed().map_or(Wanted::Last, Wanted::Likeliest);
    let mut output = engine.extend(sequence, rest, wanted, &mut |done| {
        go_on = observer.prefill(cached_tokens + done, prompt.len()).is_continue();
        go_on
    })?;
    let prefill_time = started.elapsed();
    let started = Instant::now();
    let mut history = prompt.to_vec();
    let finish_reason = loop {
        if !go_on {
            break FinishReason::Stopped;
        }
        let generated = history.len() - prompt.len();
        if generated == limits.max_tokens {
            break FinishReason::MaxTokens;
        }
        let token = match output.likeliest.first() {
            Some(likeliest) => sampler.sample_likeliest(likeliest)?,
            None => sampler.sample(&mut output.logits, &history)?,
        };
        if limits.end_tokens.contains(&token) {
            break FinishReason::EndOfGeneration;
        }
        history.push(token);
        go_on = observer.token(token).is_continue();
        if !go_on || generated + 1 == limits.max_tokens {
            continue;
        }
        if sequence.len() == engine.context_size() {
            break FinishReason::ContextFull;
        }
        output = engine.extend(sequence, &[token], wanted, &mut |_| true)?;
    };
    let tokens = history.split_off(prompt.len());
    Ok(Generation {
        tokens,
        finish_reason,
        prompt_tokens: prompt.len(),
        cached_tokens,
        prefill_time,
        decode_time: started.elapsed(),
    })
}

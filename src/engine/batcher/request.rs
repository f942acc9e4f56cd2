//! A request to continue a prompt, and the way its results come back.
use crate::engine::{CacheScope, EngineError, FinishReason, GenerateLimits, ImageSpan};
use crate::sampling::{SamplingParams, TokenLogprobs};
use std::ops::ControlFlow;
use std::time::Duration;

/// A request for continuations of a prompt, each of which goes to a [`Sink`] of its own.
#[derive(Clone, Debug, Default)]
pub struct GenerateRequest {
    /// The prompt.
    pub prompt: Vec<u32>,
    /// Its images, in order.
    pub images: Vec<ImageSpan>,
    /// Settings of the draws. Continuation `i` draws with the seed plus `i`.
    pub sampling: SamplingParams,
    /// Limits of each continuation.
    pub limits: GenerateLimits,
    /// Tokens before which none of the end tokens is drawn.
    pub min_tokens: usize,
    /// Log-probabilities of the generated tokens, each with as many of the likeliest.
    pub logprobs: Option<usize>,
    /// Log-probabilities of the prompt's tokens, each with as many of the likeliest. The whole prompt is then computed,
    /// whatever is cached.
    pub prompt_logprobs: Option<usize>,
    /// The requests with which it may share cached blocks.
    pub scope: CacheScope,
    /// Requests of a higher priority come first.
    pub priority: i32,
}

/// The receiver of one continuation. Its methods are called on the engine's thread and must not wait for anything.
pub trait Sink: Send {
    /// True once nobody wants the continuation any more: it then ends without another call.
    fn is_closed(&self) -> bool;

    /// Of the prompt's `total` tokens, `done` are in the cache.
    fn prefilled(&mut self, done: usize, total: usize);

    /// Log-probabilities of the next tokens of the prompt, from its second on: before the first there is nothing to
    /// predict it from. Only the first continuation gets them.
    fn prompt_logprobs(&mut self, tokens: Vec<TokenLogprobs>);

    /// A generated token, with its log-probability if that was asked for. A break ends the continuation.
    fn token(&mut self, token: u32, logprobs: Option<TokenLogprobs>) -> ControlFlow<()>;

    /// The last call: how the continuation ended.
    fn end(self: Box<Self>, end: Result<Finished, EngineError>);
}

/// The end of a continuation with its counts and timings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The reason.
    pub reason: FinishReason,
    /// Number of tokens of the prompt.
    pub prompt_tokens: usize,
    /// Number of tokens of the prompt that others had computed.
    pub cached_tokens: usize,
    /// Number of generated tokens, without the end token.
    pub generated_tokens: usize,
    /// Time from submission to its first row.
    pub queue_time: Duration,
    /// Time from its first row to the end of the prompt.
    pub prefill_time: Duration,
    /// Time from the end of the prompt to the last token.
    pub decode_time: Duration,
}

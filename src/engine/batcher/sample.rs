//! One continuation while it is generated: what becomes of the results of its rows.
use super::request::{Finished, GenerateRequest, Sink};
use super::rows::RowResult;
use crate::engine::{EngineError, FinishReason, GenerateLimits, ImageSpan, LoopCheck, Wanted};
use crate::sampling::{Logprobs, Sampler, TokenLogprobs};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A continuation of a prompt; the tokens themselves are with the scheduler.
pub(super) struct Sample {
    pub sink: Box<dyn Sink>,
    pub images: Arc<[ImageSpan]>,
    sampler: Sampler,
    limits: GenerateLimits,
    min_tokens: usize,
    loop_check: LoopCheck,
    logprobs: Option<usize>,
    prompt_logprobs: Option<usize>,
    submitted: Instant,
    /// Time of its first row.
    started: Option<Instant>,
    /// Time at which the prompt was done.
    decoding: Option<Instant>,
    /// Time of the last token.
    last: Option<Instant>,
}

/// The consequence of a row's result.
pub(super) enum Next {
    /// A token to append.
    Token(u32),
    /// The end, without a token.
    End(FinishReason),
}

impl Sample {
    /// Continuation `index` of a request.
    pub fn new(
        request: &GenerateRequest,
        images: Arc<[ImageSpan]>,
        index: usize,
        sampler: Sampler,
        sink: Box<dyn Sink>,
    ) -> Self {
        Self {
            sink,
            images,
            sampler,
            limits: request.limits.clone(),
            min_tokens: request.min_tokens,
            loop_check: LoopCheck::new(),
            logprobs: request.logprobs,
            prompt_logprobs: request.prompt_logprobs.filter(|_| index == 0),
            submitted: Instant::now(),
            started: None,
            decoding: None,
            last: None,
        }
    }

    /// The results that it wants of a chunk's rows `wanted` among the sequence's tokens.
    pub fn wants(&self, wanted: &Range<usize>, prompt_tokens: usize, generated: usize) -> Wanted {
        if wanted.is_empty() {
            return Wanted::Nothing;
        }
        if self.prompt_logprobs.is_some() && wanted.start < prompt_tokens {
            return Wanted::All;
        }
        match self.sampler.likeliest_needed() {
            _ if self.limits.max_tokens == Some(0) => Wanted::Nothing,
            Some(k) if self.logprobs.is_none() && generated >= self.min_tokens => Wanted::Likeliest(k),
            _ => Wanted::Last,
        }
    }

    /// Notes that some of its rows are run for the first time.
    pub fn start(&mut self) {
        self.started.get_or_insert_with(Instant::now);
    }

    /// Takes note of `done` tokens of the prompt in the cache.
    pub fn prefilled(&mut self, done: usize, total: usize) {
        self.sink.prefilled(done, total);
        if done == total {
            self.decoding.get_or_insert_with(Instant::now);
        }
    }

    /// Hands out the log-probabilities of the prompt's tokens that follow the rows `rows`, whose logits are `[rows, vocab]`.
    pub fn report_prompt(&mut self, prompt: &[u32], rows: Range<usize>, logits: &[f32], vocab: usize) {
        let Some(n) = self.prompt_logprobs else { return };
        let followed = prompt.get(rows.start + 1..).unwrap_or_default();
        let reports = logits.chunks_exact(vocab).zip(followed);
        self.sink.prompt_logprobs(
            reports.map(|(logits, &token)| Logprobs::new(logits).with_likeliest(token, n)).collect(),
        );
    }

    /// Draws the next token from the result of the last row, whose logits it may overwrite.
    ///
    /// # Errors
    /// Any error of the sampler.
    pub fn next(
        &mut self,
        result: RowResult<'_>,
        vocab: usize,
        prompt: &[u32],
        generated: &[u32],
    ) -> Result<Next, EngineError> {
        if self.limits.max_tokens == Some(generated.len()) {
            return Ok(Next::End(FinishReason::MaxTokens));
        }
        let (token, logprobs) = match result {
            RowResult::Nothing => return Ok(Next::End(FinishReason::MaxTokens)),
            RowResult::Likeliest(likeliest) => (self.sampler.sample_likeliest(likeliest)?, None),
            RowResult::Logits(rows) => {
                let last = rows.len() - vocab;
                self.draw(&mut rows[last..], prompt, generated)?
            }
        };
        self.last = Some(Instant::now());
        if self.limits.end_tokens.contains(&token) {
            return Ok(Next::End(FinishReason::EndOfGeneration));
        }
        match self.sink.token(token, logprobs).is_break() {
            true => Ok(Next::End(FinishReason::Stopped)),
            false => Ok(Next::Token(token)),
        }
    }

    fn draw(
        &mut self,
        logits: &mut [f32],
        prompt: &[u32],
        generated: &[u32],
    ) -> Result<(u32, Option<TokenLogprobs>), EngineError> {
        // Log-probabilities are of the model's own logits, before the sampler changes them.
        let own = self.logprobs.map(|n| (n, logits.to_vec()));
        if generated.len() < self.min_tokens {
            for &token in &self.limits.end_tokens {
                if let Some(logit) = logits.get_mut(token as usize) {
                    *logit = f32::NEG_INFINITY;
                }
            }
        }
        let token = self.sampler.sample(logits, prompt, generated)?;
        let logprobs = own.map(|(n, own)| Logprobs::new(&own).with_likeliest(token, n));
        Ok((token, logprobs))
    }

    /// True if `tokens` of prompt and answer are more than its cache may hold.
    pub fn exceeds_context(&self, tokens: usize) -> bool {
        self.limits.context.is_some_and(|context| tokens > context)
    }

    /// The end that has come with the last of the `generated` tokens, if any.
    pub fn ended_by(&mut self, generated: &[u32]) -> Option<FinishReason> {
        if !self.limits.no_loop_check
            && let Some(cycle) = self.loop_check.push(generated)
        {
            return Some(FinishReason::Repetition { cycle });
        }
        (self.limits.max_tokens == Some(generated.len())).then_some(FinishReason::MaxTokens)
    }

    /// Tells the sink of the end.
    pub fn finish(self, reason: FinishReason, prompt_tokens: usize, cached_tokens: usize, generated: usize) {
        let between = |from: Option<Instant>, to: Option<Instant>| match (from, to) {
            (Some(from), Some(to)) => to.saturating_duration_since(from),
            _ => Duration::ZERO,
        };
        let finished = Finished {
            reason,
            prompt_tokens,
            cached_tokens,
            generated_tokens: generated,
            queue_time: between(Some(self.submitted), self.started),
            prefill_time: between(self.started, self.decoding),
            decode_time: between(self.decoding, self.last),
        };
        self.sink.end(Ok(finished));
    }

    /// Tells the sink of an error.
    pub fn fail(self, error: EngineError) {
        self.sink.end(Err(error));
    }
}

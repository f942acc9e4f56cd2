//! The generation of a single sequence, step by step.
use super::loop_check::LoopCheck;
use super::{Chunk, Engine, EngineError, ImageSpan, RunnerOutput, Sequence, Tokens, Wanted};
use crate::sampling::Sampler;
use std::time::{Duration, Instant};

/// The limits of a generation.
#[derive(Clone, Debug, Default)]
pub struct GenerateLimits {
    /// Tokens of prompt and answer together that are in the cache at most; without it as many as the engine holds.
    pub context: Option<usize>,
    /// Tokens to generate at most.
    pub max_tokens: Option<usize>,
    /// Tokens that end the generation and are not part of it.
    pub end_tokens: Vec<u32>,
    /// True to go on when the tokens repeat themselves without end.
    pub no_loop_check: bool,
}

/// The reason a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model produced an end-of-generation token.
    EndOfGeneration,
    /// `max_tokens` were produced.
    MaxTokens,
    /// The context is full.
    ContextFull,
    /// The receiver of the tokens wants no more.
    Stopped,
    /// The same `cycle` tokens were repeated for [`MAX_REPEATED`](super::MAX_REPEATED) tokens.
    Repetition {
        /// Length of the shortest such cycle, in tokens.
        cycle: usize,
    },
}

/// One step of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A chunk of the prompt was run; the numbers are tokens of the prompt, cached ones among them.
    Prefill {
        /// Tokens in the cache now.
        done: usize,
        /// Tokens of the prompt.
        total: usize,
    },
    /// A token was generated.
    Token(u32),
    /// The generation is over.
    End(FinishReason),
}

/// The continuation of a prompt, advanced one step at a time: a chunk of the prompt, then token after token.
///
/// It may be left at any time. The sequence then holds what was run: of the prompt and the generated tokens all but the
/// last, ready for the next turn.
#[derive(Debug)]
pub struct Generation {
    /// Prompt and generated tokens.
    history: Vec<u32>,
    prompt_tokens: usize,
    cached_tokens: usize,
    images: Vec<ImageSpan>,
    limits: GenerateLimits,
    /// Tokens that the cache may hold.
    context: usize,
    loop_check: LoopCheck,
    /// Length of the cycle that the last tokens repeat too often.
    cycle: Option<usize>,
    /// Result of the last row, until a token is drawn from it.
    output: Option<RunnerOutput>,
    finish_reason: Option<FinishReason>,
    prefill_time: Duration,
    decode_started: Option<Instant>,
    decode_time: Duration,
}

impl Generation {
    /// A generation that continues `prompt` and reuses the part of it that `sequence` already holds.
    ///
    /// # Errors
    /// [`EngineError::EmptyPrompt`]; [`EngineError::ContextFull`] when the prompt alone does not fit;
    /// [`EngineError::ImagePlace`] for images that do not fit the prompt.
    pub fn start<'a>(
        engine: &mut Engine,
        sequence: &mut Sequence,
        prompt: impl Into<Tokens<'a>>,
        limits: GenerateLimits,
    ) -> Result<Self, EngineError> {
        let tokens = prompt.into();
        let prompt = tokens.ids;
        if prompt.is_empty() {
            return Err(EngineError::EmptyPrompt);
        }
        let context = limits.context.unwrap_or(usize::MAX).min(engine.context_size());
        if prompt.len() > context {
            return Err(EngineError::ContextFull { tokens: prompt.len(), context });
        }
        if let Some(span) = tokens.images.last().filter(|span| span.end() > prompt.len()) {
            let problem = format!("ends at {}, behind the prompt of {} tokens", span.end(), prompt.len());
            return Err(EngineError::ImagePlace { start: span.start, problem });
        }
        let cached_tokens = sequence.reusable_prefix(tokens);
        engine.truncate(sequence, cached_tokens);
        Ok(Self {
            history: prompt.to_vec(),
            prompt_tokens: prompt.len(),
            cached_tokens,
            images: tokens.images.to_vec(),
            context,
            limits,
            loop_check: LoopCheck::new(),
            cycle: None,
            output: None,
            finish_reason: None,
            prefill_time: Duration::ZERO,
            decode_started: None,
            decode_time: Duration::ZERO,
        })
    }

    /// Runs the next step. After [`Step::End`] the same end is returned again.
    ///
    /// # Errors
    /// Any error of the model or the sampler.
    pub fn advance(
        &mut self,
        engine: &mut Engine,
        sequence: &mut Sequence,
        sampler: &mut Sampler,
    ) -> Result<Step, EngineError> {
        if let Some(reason) = self.finish_reason {
            return Ok(Step::End(reason));
        }
        let wanted = sampler.likeliest_needed().map_or(Wanted::Last, Wanted::Likeliest);
        if sequence.len() < self.prompt_tokens {
            return self.prefill(engine, sequence, wanted);
        }
        let step = self.decode(engine, sequence, sampler, wanted);
        self.decode_time = self.decode_started.map_or(Duration::ZERO, |started| started.elapsed());
        step
    }

    /// Runs all steps to the end.
    ///
    /// # Errors
    /// As [`advance`](Self::advance).
    pub fn run(
        &mut self,
        engine: &mut Engine,
        sequence: &mut Sequence,
        sampler: &mut Sampler,
    ) -> Result<FinishReason, EngineError> {
        loop {
            if let Step::End(reason) = self.advance(engine, sequence, sampler)? {
                return Ok(reason);
            }
        }
    }

    fn prefill(
        &mut self,
        engine: &mut Engine,
        sequence: &mut Sequence,
        wanted: Wanted,
    ) -> Result<Step, EngineError> {
        let started = Instant::now();
        let rest = Tokens { ids: &self.history[sequence.len()..], images: &self.images };
        // One chunk of it.
        let output = engine.extend(sequence, rest, wanted, &mut |_| false)?;
        self.prefill_time += started.elapsed();
        if sequence.len() == self.prompt_tokens {
            self.output = Some(output);
            self.decode_started = Some(Instant::now());
        }
        Ok(Step::Prefill { done: sequence.len(), total: self.prompt_tokens })
    }

    fn decode(
        &mut self,
        engine: &mut Engine,
        sequence: &mut Sequence,
        sampler: &mut Sampler,
        wanted: Wanted,
    ) -> Result<Step, EngineError> {
        if let Some(cycle) = self.cycle {
            return Ok(self.end(FinishReason::Repetition { cycle }));
        }
        if Some(self.tokens().len()) == self.limits.max_tokens {
            return Ok(self.end(FinishReason::MaxTokens));
        }
        let mut output = match self.output.take() {
            Some(output) => output,
            None if sequence.len() == self.context => {
                return Ok(self.end(FinishReason::ContextFull));
            }
            None => {
                let tokens = self.history[self.history.len() - 1..].into();
                engine.step(&mut [Chunk { sequence, tokens, wanted }])?
            }
        };
        let token = match output.likeliest.first() {
            Some(likeliest) => sampler.sample_likeliest(likeliest)?,
            None => {
                let (prompt, generated) = self.history.split_at(self.prompt_tokens);
                sampler.sample(&mut output.logits, prompt, generated)?
            }
        };
        if self.limits.end_tokens.contains(&token) {
            return Ok(self.end(FinishReason::EndOfGeneration));
        }
        self.history.push(token);
        if !self.limits.no_loop_check {
            self.cycle = self.loop_check.push(&self.history[self.prompt_tokens..]);
        }
        Ok(Step::Token(token))
    }

    fn end(&mut self, reason: FinishReason) -> Step {
        self.finish_reason = Some(reason);
        Step::End(reason)
    }

    /// The last token so far, of the prompt or the answer.
    pub fn last_token(&self) -> Option<u32> {
        self.history.last().copied()
    }

    /// The generated tokens, without the end token.
    pub fn tokens(&self) -> &[u32] {
        &self.history[self.prompt_tokens..]
    }

    /// Number of tokens of prompt and answer together that the cache holds at most.
    pub fn context_size(&self) -> usize {
        self.context
    }

    /// The reason of the end, once it has come.
    pub fn finish_reason(&self) -> Option<FinishReason> {
        self.finish_reason
    }

    /// Number of tokens of the prompt.
    pub fn prompt_tokens(&self) -> usize {
        self.prompt_tokens
    }

    /// Number of tokens of the prompt that were still in the cache.
    pub fn cached_tokens(&self) -> usize {
        self.cached_tokens
    }

    /// Time spent on the rest of the prompt.
    pub fn prefill_time(&self) -> Duration {
        self.prefill_time
    }

    /// Time from the end of the prompt to the last token.
    pub fn decode_time(&self) -> Duration {
        self.decode_time
    }
}

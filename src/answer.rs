//! An answer of a model, as it comes.
use crate::chat::{AnswerSplitter, Omission, TextDelta};
use crate::engine::{Engine, FinishReason, Generation, Sequence, Step};
use crate::error::Error;
use crate::progress::{Progress, Reporter};
use crate::sampling::{ResolvedSampling, Sampler};
use crate::session::Said;
use crate::vision::EncodedImages;
use ember_loaders::tokenizer::{StreamDecoder, Tokenizer};
use std::time::Duration;

/// The reason an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The model ended it.
    EndOfGeneration,
    /// One of the stop strings came up.
    StopString(String),
    /// The limit of tokens was reached.
    MaxTokens,
    /// The context is full.
    ContextFull,
    /// The same few tokens were repeated for [`MAX_REPEATED`](crate::engine::MAX_REPEATED) tokens.
    Repetition {
        /// Length of the cycle, in tokens.
        cycle: usize,
    },
    /// The caller left it, or the progress callback asked to stop.
    Cancelled,
}

impl Ending {
    /// The reason as programs name it: `stop`, `length`, `repetition` or `interrupted`.
    pub fn finish_reason(&self) -> &'static str {
        match self {
            Self::EndOfGeneration | Self::StopString(_) => "stop",
            Self::MaxTokens | Self::ContextFull => "length",
            Self::Repetition { .. } => "repetition",
            Self::Cancelled => "interrupted",
        }
    }

    /// The limit that cut the answer, `max_tokens` or `context`; `None` when none did.
    pub fn limit(&self) -> Option<&'static str> {
        match self {
            Self::MaxTokens => Some("max_tokens"),
            Self::ContextFull => Some("context"),
            Self::EndOfGeneration | Self::StopString(_) | Self::Repetition { .. } | Self::Cancelled => None,
        }
    }
}

impl From<FinishReason> for Ending {
    fn from(reason: FinishReason) -> Self {
        match reason {
            FinishReason::EndOfGeneration => Self::EndOfGeneration,
            FinishReason::MaxTokens => Self::MaxTokens,
            FinishReason::ContextFull => Self::ContextFull,
            FinishReason::Stopped => Self::Cancelled,
            FinishReason::Repetition { cycle } => Self::Repetition { cycle },
        }
    }
}

/// An answer with its counts and timings.
#[derive(Clone, Debug)]
pub struct AnswerResult {
    /// The answer, without reasoning and stop string.
    pub text: String,
    /// The reasoning before it; empty when there was none.
    pub reasoning: String,
    /// The reason it ended.
    pub ending: Ending,
    /// The generated tokens, without the end token.
    pub tokens: Vec<u32>,
    /// Number of tokens of the prompt.
    pub prompt_tokens: usize,
    /// Number of tokens of the prompt that were in the cache already.
    pub cached_tokens: usize,
    /// Number of tokens of each image; they are among the prompt's.
    pub image_tokens: Vec<usize>,
    /// The limit of generated tokens that was asked for.
    pub max_tokens: Option<usize>,
    /// Number of tokens that prompt and answer may have together.
    pub context_size: usize,
    /// The sampling settings in force, with their sources and the seed that was used.
    pub sampling: ResolvedSampling,
    /// Time spent on encoding images.
    pub image_time: Duration,
    /// Time spent on the prompt.
    pub prefill_time: Duration,
    /// Time from the end of the prompt to the last token.
    pub decode_time: Duration,
    /// Number of tokens of the prompt that were run; less than the rest of the prompt when cancelled.
    pub prefilled_tokens: usize,
    /// Number of steps that `decode_time` was spent on.
    pub decode_steps: usize,
}

impl AnswerResult {
    /// True if the answer was cancelled before anything was said.
    pub fn is_nothing(&self) -> bool {
        self.ending == Ending::Cancelled && self.text.is_empty() && self.reasoning.is_empty()
    }

    /// Tokens of the prompt per second; `None` when none were run.
    pub fn prefill_rate(&self) -> Option<f64> {
        per_second(self.prefilled_tokens, self.prefill_time)
    }

    /// Generated tokens per second; `None` when no step was run for them.
    pub fn decode_rate(&self) -> Option<f64> {
        per_second(self.decode_steps, self.decode_time)
    }
}

fn per_second(steps: usize, time: Duration) -> Option<f64> {
    (steps > 0 && !time.is_zero()).then(|| steps as f64 / time.as_secs_f64())
}

/// The parts of a model and a session that an answer works with.
pub(crate) struct Parts<'a> {
    pub engine: &'a mut Engine,
    pub sequence: &'a mut Sequence,
    pub sampler: &'a mut Sampler,
    pub tokenizer: &'a Tokenizer,
    pub progress: &'a Reporter,
}

/// The settings that an answer reports.
pub(crate) struct Terms {
    pub max_tokens: Option<usize>,
    pub sampling: ResolvedSampling,
}

/// The conversation that an answer becomes part of.
pub(crate) struct Kept<'a> {
    pub messages: &'a mut Vec<Said>,
    /// Number of messages that stay.
    pub keep: usize,
    /// The earlier answer, which comes back unless there is a new one.
    pub replaced: Option<Said>,
}

/// An answer that is being generated: an iterator over pieces of text that have become certain.
///
/// Pieces may be empty. [`finish`](Self::finish) gives the whole answer. Dropped before that, an answer leaves no trace
/// in its conversation.
pub struct Answer<'a> {
    parts: Parts<'a>,
    generation: Generation,
    decoder: StreamDecoder<&'a Tokenizer>,
    splitter: AnswerSplitter,
    warnings: Vec<Omission>,
    images: EncodedImages,
    terms: Terms,
    text: String,
    reasoning: String,
    ending: Option<Ending>,
    /// The caller has asked for the end.
    stopped: bool,
    kept: Option<Kept<'a>>,
}

impl<'a> Answer<'a> {
    pub(crate) fn new(
        parts: Parts<'a>,
        generation: Generation,
        splitter: AnswerSplitter,
        warnings: Vec<Omission>,
        images: EncodedImages,
        terms: Terms,
        kept: Option<Kept<'a>>,
    ) -> Self {
        let decoder = StreamDecoder::after(parts.tokenizer, false, generation.last_token());
        let (text, reasoning) = (String::new(), String::new());
        let (ending, stopped) = (None, false);
        Self {
            parts,
            generation,
            decoder,
            splitter,
            warnings,
            images,
            terms,
            text,
            reasoning,
            ending,
            stopped,
            kept,
        }
    }

    /// What the chat template left out of the prompt, as far as that is no error.
    pub fn warnings(&self) -> &[Omission] {
        &self.warnings
    }

    /// The images of the prompt, encoded.
    pub fn images(&self) -> &EncodedImages {
        &self.images
    }

    /// Generates the rest of the answer, if any, and gives the whole.
    ///
    /// # Errors
    /// Any error of the engine.
    pub fn finish(mut self) -> Result<AnswerResult, Error> {
        self.by_ref().try_for_each(|piece| piece.map(drop))?;
        Ok(self.result())
    }

    /// Ends the answer: the next piece is the last one, the text that was held back.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Runs the model until there is a token, or an end.
    fn advance(&mut self) -> Result<TextDelta, Error> {
        let Parts { engine, sequence, sampler, progress, .. } = &mut self.parts;
        loop {
            match self.generation.advance(engine, sequence, sampler)? {
                Step::Prefill { done, total } => {
                    let report = match done < total {
                        true => Progress::ReadingPrompt { done, total },
                        false => Progress::Done,
                    };
                    if progress.report(report).is_break() {
                        return Ok(self.end(Ending::Cancelled));
                    }
                }
                Step::Token(token) => {
                    let mut delta = self.split(token);
                    self.add(&delta);
                    if let Some(stop) = self.splitter.stopped_by() {
                        let rest = self.end(Ending::StopString(stop.to_owned()));
                        delta.append(&rest);
                    }
                    return Ok(delta);
                }
                Step::End(reason) => return Ok(self.end(reason.into())),
            }
        }
    }

    /// The text that became certain with a token.
    fn split(&mut self, token: u32) -> TextDelta {
        if self.splitter.is_tag(token) {
            // Half a character before a tag stays one.
            let rest = self.decoder.flush().unwrap_or_default();
            let mut delta = self.splitter.push(&rest);
            delta.append(&self.splitter.push_tag(token));
            return delta;
        }
        let piece = self.decoder.push(token).unwrap_or_default();
        self.splitter.push(&piece)
    }

    /// Ends the answer; returns the text that was held back.
    fn end(&mut self, ending: Ending) -> TextDelta {
        let rest = self.decoder.flush().unwrap_or_default();
        let mut delta = self.splitter.push(&rest);
        delta.append(&self.splitter.finish());
        self.add(&delta);
        // One may also come to light at the end, when a longer one that could have begun before it did not follow.
        let stop = self.splitter.stopped_by().map(|stop| Ending::StopString(stop.to_owned()));
        self.ending = Some(stop.unwrap_or(ending));
        delta
    }

    fn add(&mut self, delta: &TextDelta) {
        self.reasoning.push_str(&delta.reasoning);
        self.text.push_str(&delta.content);
    }

    fn result(mut self) -> AnswerResult {
        let generation = &self.generation;
        let tokens = generation.tokens().to_vec();
        // The prompt's last row gives the first token, so n tokens take n - 1 steps, and an end token one more.
        let ended = usize::from(generation.finish_reason() == Some(FinishReason::EndOfGeneration));
        let result = AnswerResult {
            ending: self.ending.take().expect("finish has brought it to its end"),
            decode_steps: (tokens.len() + ended).saturating_sub(1),
            tokens,
            prompt_tokens: generation.prompt_tokens(),
            cached_tokens: generation.cached_tokens(),
            image_tokens: self.images.token_counts(),
            max_tokens: self.terms.max_tokens,
            context_size: generation.context_size(),
            sampling: self.terms.sampling.clone(),
            image_time: self.images.time,
            prefill_time: generation.prefill_time(),
            decode_time: generation.decode_time(),
            prefilled_tokens: self.parts.sequence.len().min(generation.prompt_tokens())
                - generation.cached_tokens(),
            text: std::mem::take(&mut self.text),
            reasoning: std::mem::take(&mut self.reasoning),
        };
        if let Some(kept) = self.kept.as_mut().filter(|_| !result.is_nothing()) {
            kept.messages.push(Said::answer(&result));
            (kept.keep, kept.replaced) = (kept.messages.len(), None);
        }
        result
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        self.messages.truncate(self.keep);
        self.messages.extend(self.replaced.take());
    }
}

impl Iterator for Answer<'_> {
    type Item = Result<TextDelta, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ending.is_some() {
            return None;
        }
        let delta = if self.stopped { Ok(self.end(Ending::Cancelled)) } else { self.advance() };
        if delta.is_err() {
            self.ending = Some(Ending::Cancelled);
        }
        Some(delta)
    }
}

//! The limits of a scheduler, and the refusals that come of them.
use thiserror::Error;

/// The limits of a [`Scheduler`](super::Scheduler).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// KV entries of one sequence.
    pub context: usize,
    /// Rows of one step.
    pub rows_per_step: usize,
    /// Rows of prompts whose results one step returns; see [`Submission::prompt_results`](super::Submission).
    pub prompt_results_per_step: usize,
    /// Sequences that hold blocks, each of which gets a row in every step.
    pub running: usize,
    /// Requests that wait. Preempted ones come on top.
    pub queued: usize,
}

/// Limits under which nothing could run.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum LimitsError {
    /// A limit is zero.
    #[error("the limit of {0} is 0")]
    Zero(&'static str),
    /// Some running sequence would not get a row.
    #[error("{running} running sequences need as many rows in a step, and the limit is {rows_per_step}")]
    Rows {
        /// Limit of running sequences.
        running: usize,
        /// Limit of rows in a step.
        rows_per_step: usize,
    },
}

impl Limits {
    pub(super) fn check(&self) -> Result<(), LimitsError> {
        let Self { context, rows_per_step, prompt_results_per_step, running, queued } = *self;
        let named = [
            (context, "the context"),
            (prompt_results_per_step, "the results of prompts in a step"),
            (running, "running sequences"),
            (queued, "queued requests"),
        ];
        match named.into_iter().find(|(limit, _)| *limit == 0) {
            Some((_, name)) => Err(LimitsError::Zero(name)),
            None if running > rows_per_step => Err(LimitsError::Rows { running, rows_per_step }),
            None => Ok(()),
        }
    }
}

/// The reason a request was not accepted.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// There is nothing to run.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// No samples are wanted.
    #[error("no samples are wanted")]
    NoSamples,
    /// An image overlaps another one or lies outside the prompt.
    #[error("the image at token {start} overlaps the one before it or does not end within the prompt")]
    ImagePlace {
        /// Index of its first token.
        start: usize,
    },
    /// The prompt and the least of an answer exceed the context.
    #[error("{tokens} tokens do not fit into the context of {context}")]
    BeyondContext {
        /// Tokens of the prompt, and one if an answer is wanted.
        tokens: usize,
        /// KV entries of one sequence.
        context: usize,
    },
    /// The prompt and the least of an answer exceed the whole pool.
    #[error("{tokens} tokens do not fit into the KV cache of {entries} entries")]
    BeyondCache {
        /// Tokens of the prompt, and one if an answer is wanted.
        tokens: usize,
        /// KV entries of the pool.
        entries: usize,
    },
    /// Too many requests wait.
    #[error("{waiting} requests are waiting, and the queue holds {queued}")]
    QueueFull {
        /// Requests that wait.
        waiting: usize,
        /// Limit of them.
        queued: usize,
    },
}

/// The reason a sequence cannot grow by a token.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Full {
    /// The sequence has as many tokens as a context.
    #[error("the context of {context} tokens is full")]
    Context {
        /// KV entries of one sequence.
        context: usize,
    },
    /// The sequence alone takes the whole pool.
    #[error("the KV cache of {entries} entries is full")]
    Cache {
        /// KV entries of the pool.
        entries: usize,
    },
}

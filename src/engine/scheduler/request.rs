//! A request inside the scheduler.
use super::Submission;
use crate::engine::{BlockTable, Content};
use std::cmp::Reverse;
use std::fmt;
use std::ops::Range;

/// The identity of a request. Ids are ordered by seniority: higher priority first, then the earlier submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    priority: Reverse<i32>,
    number: u64,
}

impl RequestId {
    pub(super) fn new(priority: i32, number: u64) -> Self {
        Self { priority: Reverse(priority), number }
    }

    pub(super) fn priority(self) -> i32 {
        self.priority.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number)
    }
}

/// One sequence of a request. While it waits it holds no blocks; while it runs it holds those of all its tokens.
#[derive(Debug)]
pub struct Request {
    pub(super) content: Content,
    pub(super) table: BlockTable,
    prompt_tokens: usize,
    /// Tokens whose keys and values are in the blocks.
    pub(super) computed: usize,
    /// The first tokens of the prompt whose results were returned, when all of them are wanted.
    reported: Option<usize>,
    pub(super) ready: bool,
    cached_tokens: usize,
    pub(super) preemptions: usize,
}

impl Request {
    pub(super) fn new(submission: &Submission, content: Content, table: BlockTable, leads: bool) -> Self {
        Self {
            table,
            prompt_tokens: content.len(),
            content,
            computed: 0,
            reported: (submission.prompt_results && leads).then_some(0),
            ready: submission.ready,
            cached_tokens: 0,
            preemptions: 0,
        }
    }

    /// Prompt and generated tokens.
    pub fn tokens(&self) -> &[u32] {
        self.content.tokens()
    }

    /// Number of tokens of the prompt.
    pub fn prompt_tokens(&self) -> usize {
        self.prompt_tokens
    }

    /// Number of tokens of the prompt that others had computed. Those computed again after a preemption do not count.
    pub fn cached_tokens(&self) -> usize {
        self.cached_tokens
    }

    /// Number of times it lost its blocks.
    pub fn preemptions(&self) -> usize {
        self.preemptions
    }

    /// Its blocks, in order. A completed step may put another block with the same content in the place of one.
    pub fn block_table(&self) -> &[u32] {
        self.table.blocks()
    }

    /// Number of tokens that are yet to be computed.
    pub(super) fn pending(&self) -> usize {
        self.content.len() - self.computed
    }

    /// Number of results of the prompt that its rows from `start` on are yet to return.
    pub(super) fn unreported(&self, start: usize) -> usize {
        self.reported.map_or(0, |reported| self.prompt_tokens - reported.max(start).min(self.prompt_tokens))
    }

    /// True if it needs a single row to go on, as a sequence that generates does.
    pub(super) fn is_one_behind(&self) -> bool {
        self.pending() == 1 && !self.reports_prompt()
    }

    /// Number of entries that may come from the cache: results come only from rows that are run.
    pub(super) fn reusable(&self) -> usize {
        self.reported.unwrap_or(usize::MAX).min(self.content.len() - 1)
    }

    /// True if every token of the prompt must return its results.
    pub(super) fn reports_prompt(&self) -> bool {
        self.reported.is_some_and(|reported| reported < self.prompt_tokens)
    }

    /// True if the share of the prompt that the cache has says something about the cache.
    pub(super) fn counts_for_metrics(&self) -> bool {
        self.preemptions == 0 && self.reported.is_none() && self.content.owner().is_none()
    }

    /// Takes cached blocks in place of computing them. Returns the number of tokens saved that count for the metrics.
    pub(super) fn adopt(&mut self) -> usize {
        let cached = self.table.adopt(&self.content, self.reusable());
        let saved = cached.saturating_sub(self.computed);
        self.computed += saved;
        if self.preemptions == 0 {
            self.cached_tokens += saved;
        }
        if self.counts_for_metrics() { saved } else { 0 }
    }

    /// The tokens of a chunk whose results are wanted.
    pub(super) fn wanted(&self, chunk: &Range<usize>) -> Range<usize> {
        match self.reported {
            Some(reported) if self.reports_prompt() => chunk.start.max(reported).min(chunk.end)..chunk.end,
            _ if chunk.end == self.content.len() => chunk.end - 1..chunk.end,
            _ => chunk.end..chunk.end,
        }
    }

    /// Records that the tokens up to `end` were computed.
    pub(super) fn advance(&mut self, end: usize) {
        self.computed = end;
        self.reported = self.reported.map(|reported| reported.max(end.min(self.prompt_tokens)));
        self.table.publish(&self.content, end);
    }
}

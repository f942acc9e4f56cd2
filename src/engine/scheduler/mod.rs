//! The choice of the rows of each step: which sequences run, on which blocks, and which of their tokens.
//!
//! A step has the rows of sequences that are one token behind first, then chunks of prompts: half of the rows that are left
//! for the oldest, half for the shortest. A sequence that is admitted takes the blocks of all its tokens; later ones it takes
//! as it grows, and when the pool has none the most junior sequence gives up its own and is computed again later, mostly from
//! the prefix cache. The most senior one is never preempted by its equals, so it always finishes, and then the next.
//! So of n requests with w tokens in all, prompts and answers, the last is done within n times w steps.
//!
//! Seniority is priority, then age. Admission keeps to it: while a waiting request finds no room, none behind it is admitted.
mod limits;
mod plan;
mod request;
mod share;

pub use limits::{Full, Limits, LimitsError, Refusal};
pub use plan::{Plan, PlannedChunk};
pub use request::{Request, RequestId};

use super::{BlockManager, BlockUsage, CacheScope, ImageKey};
use std::collections::BTreeMap;

/// A request as it is submitted.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The prompt.
    pub prompt: Vec<u32>,
    /// Its images, in order.
    pub images: Vec<ImageKey>,
    /// The requests with which it may share blocks.
    pub scope: CacheScope,
    /// Shares blocks among its own samples only.
    pub bypass_cache: bool,
    /// Sequences that continue the prompt. They share its full blocks.
    pub samples: usize,
    /// Tokens are to follow the prompt; there must be room for one.
    pub generates: bool,
    /// The results of every row of the prompt are wanted, of its first sample. That one computes the whole prompt itself.
    pub prompt_results: bool,
    /// Requests of a higher priority come first.
    pub priority: i32,
    /// False while something else is missing, such as an image's embeddings: [`Scheduler::set_ready`].
    pub ready: bool,
}

impl Default for Submission {
    /// One sequence that continues an empty prompt, to be filled in.
    fn default() -> Self {
        Self {
            prompt: Vec::new(),
            images: Vec::new(),
            scope: CacheScope::default(),
            bypass_cache: false,
            samples: 1,
            generates: true,
            prompt_results: false,
            priority: 0,
            ready: true,
        }
    }
}

/// The state of a scheduler in numbers, and what the prefix cache has saved since it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerMetrics {
    /// Requests that wait, preempted ones among them.
    pub waiting: usize,
    /// Requests that hold blocks.
    pub running: usize,
    /// The blocks by their use.
    pub blocks: BlockUsage,
    /// Tokens of prompts that were looked for in the prefix cache, each once: not again after a preemption.
    pub prefix_queries: usize,
    /// Those of them that were found.
    pub prefix_hits: usize,
    /// Times that a request lost its blocks.
    pub preemptions: usize,
}

/// Requests and the blocks they hold. Its plans depend only on the calls before them.
///
/// A step is [`plan`](Self::plan), the run of its rows, [`complete`](Self::complete), and
/// [`push_token`](Self::push_token) for the sequences whose last row returned a result. A plan that is not completed
/// is planned again.
#[derive(Debug)]
pub struct Scheduler {
    limits: Limits,
    blocks: BlockManager,
    waiting: BTreeMap<RequestId, Request>,
    running: BTreeMap<RequestId, Request>,
    /// Number of the next request.
    next: u64,
    prefix_queries: usize,
    prefix_hits: usize,
    preemptions: usize,
}

impl Scheduler {
    /// A scheduler without requests. Nobody else takes blocks of this pool: some request might wait for them forever.
    ///
    /// # Errors
    /// [`LimitsError`] for limits under which nothing could run.
    pub fn new(limits: Limits, blocks: BlockManager) -> Result<Self, LimitsError> {
        limits.check()?;
        Ok(Self {
            limits,
            blocks,
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            next: 0,
            prefix_queries: 0,
            prefix_hits: 0,
            preemptions: 0,
        })
    }

    /// Accepts a request and returns the ids of its samples.
    ///
    /// # Errors
    /// [`Refusal`]; nothing has changed then.
    pub fn submit(&mut self, submission: Submission) -> Result<Vec<RequestId>, Refusal> {
        self.check(&submission)?;
        let (prompt, images) = (submission.prompt.clone(), submission.images.clone());
        let content = self.blocks.content(prompt, images, submission.scope.clone());
        let content = if submission.bypass_cache { content.owned_by(self.next) } else { content };
        let ids = (0..submission.samples).map(|sample| {
            let id = RequestId::new(submission.priority, self.next);
            self.next += 1;
            let request = Request::new(&submission, content.clone(), self.blocks.table(), sample == 0);
            self.waiting.insert(id, request);
            id
        });
        Ok(ids.collect())
    }

    fn check(&self, submission: &Submission) -> Result<(), Refusal> {
        let Submission { prompt, images, samples, generates, .. } = submission;
        if prompt.is_empty() {
            return Err(Refusal::EmptyPrompt);
        }
        if *samples == 0 {
            return Err(Refusal::NoSamples);
        }
        let mut free = 0;
        for &ImageKey { start, end, .. } in images {
            if start < free || end <= start || end > prompt.len() {
                return Err(Refusal::ImagePlace { start });
            }
            free = end;
        }
        let tokens = prompt.len() + usize::from(*generates);
        match self.full(tokens) {
            Some(Full::Context { context }) => return Err(Refusal::BeyondContext { tokens, context }),
            Some(Full::Cache { entries }) => return Err(Refusal::BeyondCache { tokens, entries }),
            None => {}
        }
        let (waiting, queued) = (self.waiting.len(), self.limits.queued);
        if waiting + samples > queued { Err(Refusal::QueueFull { waiting, queued }) } else { Ok(()) }
    }

    /// The limit that a sequence of so many tokens exceeds.
    fn full(&self, tokens: usize) -> Option<Full> {
        let context = self.limits.context;
        let entries = self.blocks.n_blocks() * self.blocks.block_len();
        if tokens > context {
            Some(Full::Context { context })
        } else if tokens > entries {
            Some(Full::Cache { entries })
        } else {
            None
        }
    }

    /// Says whether a request may be planned, now that something it needs has come or is missing. Others go on meanwhile.
    pub fn set_ready(&mut self, id: RequestId, ready: bool) {
        if let Some(request) = self.request_mut(id) {
            request.ready = ready;
        }
    }

    /// Records that a plan's rows were run: their keys and values are in the cache now, for other requests, too.
    ///
    /// Requests that have ended since are left out. One whose rows went wrong is [failed](Self::fail) before.
    pub fn complete(&mut self, plan: &Plan) {
        for chunk in &plan.chunks {
            if let Some(request) = self.running.get_mut(&chunk.id) {
                request.advance(chunk.tokens.end);
            }
        }
    }

    /// Appends a token to a request, to be run in the next step. Does nothing if the request has ended.
    ///
    /// # Errors
    /// [`Full`] when there is no room for it, and never will be; the request then waits to be [ended](Self::finish).
    pub fn push_token(&mut self, id: RequestId, token: u32) -> Result<(), Full> {
        let Some(len) = self.request(id).map(|request| request.tokens().len()) else { return Ok(()) };
        if let Some(full) = self.full(len + 1) {
            return Err(full);
        }
        self.request_mut(id).expect("it was found above").content.push(token);
        Ok(())
    }

    /// Ends a request, finished or cancelled, and gives its blocks back. Their content stays cached while they are not needed.
    pub fn finish(&mut self, id: RequestId) {
        self.remove(id);
    }

    /// Ends a request whose results were wrong. What only it has used leaves the prefix cache.
    pub fn fail(&mut self, id: RequestId) {
        if let Some(mut request) = self.remove(id) {
            request.table.forget();
        }
    }

    fn remove(&mut self, id: RequestId) -> Option<Request> {
        self.running.remove(&id).or_else(|| self.waiting.remove(&id))
    }

    /// A request that has not ended.
    pub fn request(&self, id: RequestId) -> Option<&Request> {
        self.running.get(&id).or_else(|| self.waiting.get(&id))
    }

    fn request_mut(&mut self, id: RequestId) -> Option<&mut Request> {
        self.running.get_mut(&id).or_else(|| self.waiting.get_mut(&id))
    }

    /// True if there is no request.
    pub fn is_empty(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// The limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The owner of the blocks.
    pub fn blocks(&self) -> &BlockManager {
        &self.blocks
    }

    /// The state in numbers.
    pub fn metrics(&self) -> SchedulerMetrics {
        SchedulerMetrics {
            waiting: self.waiting.len(),
            running: self.running.len(),
            blocks: self.blocks.usage(),
            prefix_queries: self.prefix_queries,
            prefix_hits: self.prefix_hits,
            preemptions: self.preemptions,
        }
    }
}

//! The plan of one step.
use super::share::{Want, share};
use super::{Request, RequestId, Scheduler};
use std::collections::HashSet;
use std::ops::Range;

/// The rows of one step, and the requests that made room for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The rows: of sequences that are one token behind, then of prompts.
    pub chunks: Vec<PlannedChunk>,
    /// Requests that lost their blocks and wait to be computed again.
    pub preempted: Vec<RequestId>,
}

/// Tokens of one sequence that a step runs. Their entries are in the blocks of [`Request::block_table`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedChunk {
    /// The request.
    pub id: RequestId,
    /// Indices of the tokens in the sequence: of its KV entries, too.
    pub tokens: Range<usize>,
    /// Indices of those whose results are wanted: none, the last, or all of a prompt.
    pub wanted: Range<usize>,
}

/// A prompt that may get rows: of a running request, or of a waiting one that there is room for.
struct Candidate {
    id: RequestId,
    /// The first token to compute; those before it are cached.
    start: usize,
    want: usize,
}

impl Scheduler {
    /// Plans the next step. It is empty when no request can go on.
    pub fn plan(&mut self) -> Plan {
        let mut preempted = self.grow();
        preempted.extend(self.make_room());
        self.adopt();
        let decodes: Vec<RequestId> = self.runnable(Request::is_one_behind).collect();
        let prompts = self.candidates();
        let rows = self.rows_of_prompts(self.limits.rows_per_step - decodes.len(), &prompts);

        let mut chunks: Vec<PlannedChunk> = decodes.into_iter().map(|id| self.chunk(id, 1)).collect();
        for (candidate, rows) in prompts.iter().zip(rows).filter(|(_, rows)| *rows > 0) {
            self.admit(candidate.id);
            chunks.push(self.chunk(candidate.id, rows));
        }
        Plan { chunks, preempted }
    }

    /// The running requests that may go on and have tokens to compute, by seniority.
    fn runnable(&self, which: impl Fn(&Request) -> bool) -> impl Iterator<Item = RequestId> {
        let runnable = move |request: &Request| request.ready && request.pending() > 0 && which(request);
        self.running.iter().filter(move |(_, request)| runnable(request)).map(|(id, _)| *id)
    }

    /// Gives the running requests blocks for their new tokens, seniors first, at the cost of juniors when there are none left.
    fn grow(&mut self) -> Vec<RequestId> {
        let mut preempted = Vec::new();
        for id in self.runnable(|_| true).collect::<Vec<_>>() {
            while let Some(request) = self.running.get_mut(&id)
                && !request.table.reserve(request.content.len())
            {
                preempted.extend(self.preempt_most_junior());
            }
        }
        preempted
    }

    /// Preempts requests of lower priority for the first waiting one, if that makes the room it needs.
    fn make_room(&mut self) -> Vec<RequestId> {
        let Some((id, request)) = self.ready_to_start().next() else { return Vec::new() };
        let stay = |other: RequestId| other.priority() >= id.priority();
        if self.running.keys().next_back().is_none_or(|&junior| stay(junior)) {
            return Vec::new();
        }
        let staying = self.running.iter().filter(|(other, _)| stay(**other)).map(|(_, request)| request);
        let n_staying = staying.clone().count();
        let kept: HashSet<u32> = staying.flat_map(Request::block_table).copied().collect();
        let need = self.blocks.blocks_for(request.content.len()) + n_staying;
        if n_staying == self.limits.running || kept.len() + need > self.blocks.n_blocks() {
            return Vec::new();
        }
        let mut preempted = Vec::new();
        while self.candidates_to_start().is_empty() {
            preempted.extend(self.preempt_most_junior());
        }
        preempted
    }

    /// Takes the blocks of the most junior running request, which is computed again later.
    fn preempt_most_junior(&mut self) -> Option<RequestId> {
        let (id, mut request) = self.running.pop_last()?;
        request.table.truncate(0);
        request.computed = 0;
        request.preemptions += 1;
        self.preemptions += 1;
        self.waiting.insert(id, request);
        Some(id)
    }

    /// Lets prompts that are under way have what others have computed meanwhile.
    fn adopt(&mut self) {
        for request in self.running.values_mut().filter(|request| !request.is_one_behind()) {
            let saved = request.adopt();
            self.prefix_hits += saved;
        }
    }

    /// The waiting requests that may go on, by seniority.
    fn ready_to_start(&self) -> impl Iterator<Item = (RequestId, &Request)> {
        self.waiting.iter().filter(|(_, request)| request.ready).map(|(id, request)| (*id, request))
    }

    /// The waiting requests that there is room for, and none behind the first that there is not.
    ///
    /// Beside their own blocks there must be one for each other request to grow into: to be admitted and preempted again
    /// at once would be in vain.
    fn candidates_to_start(&self) -> Vec<Candidate> {
        let mut available = self.blocks.usage().available();
        let mut candidates = Vec::new();
        for (running, (id, request)) in (self.running.len()..).zip(self.ready_to_start()) {
            let cached = self.blocks.cached_prefix(&request.content, request.reusable());
            let need = self.blocks.blocks_for(request.content.len()) - cached.held_blocks;
            if running == self.limits.running || need + running > available {
                break;
            }
            available -= need;
            candidates.push(Candidate {
                id,
                start: cached.entries,
                want: request.content.len() - cached.entries,
            });
        }
        candidates
    }

    /// The prompts that may get rows, by seniority.
    fn candidates(&self) -> Vec<Candidate> {
        let under_way = self.runnable(|request| !request.is_one_behind()).map(|id| {
            let request = &self.running[&id];
            Candidate { id, start: request.computed, want: request.pending() }
        });
        let mut candidates: Vec<Candidate> = under_way.chain(self.candidates_to_start()).collect();
        candidates.sort_by_key(|candidate| candidate.id);
        let mut results = self.limits.prompt_results_per_step;
        for candidate in &mut candidates {
            let unreported =
                self.request(candidate.id).map_or(0, |request| request.unreported(candidate.start));
            let reported = unreported.min(results);
            candidate.want -= unreported - reported;
            results -= reported;
        }
        candidates
    }

    /// The number of rows for each prompt. One whose next block another computes at least as fast waits for that one.
    fn rows_of_prompts(&self, budget: usize, prompts: &[Candidate]) -> Vec<usize> {
        let mut wants: Vec<Want> =
            prompts.iter().map(|prompt| Want { priority: prompt.id.priority(), rows: prompt.want }).collect();
        loop {
            let rows = share(budget, &wants);
            let waits = |&i: &usize| {
                rows[i] > 0 && (0..prompts.len()).any(|j| rows[j] >= rows[i] && self.is_ahead(prompts, j, i))
            };
            let waiting: Vec<usize> = (0..prompts.len()).filter(waits).collect();
            if waiting.is_empty() {
                return rows;
            }
            // The others get more rows by it, never fewer.
            waiting.into_iter().for_each(|i| wants[i].rows = 0);
        }
    }

    /// True if prompt `j` is computing the block that prompt `i` needs next and could then take from the cache.
    fn is_ahead(&self, prompts: &[Candidate], j: usize, i: usize) -> bool {
        let block_len = self.blocks.block_len();
        let block = prompts[i].start / block_len;
        if (prompts[i].start, j) >= (prompts[j].start, i) || prompts[j].start / block_len != block {
            return false;
        }
        let (Some(own), Some(other)) = (self.request(prompts[i].id), self.request(prompts[j].id)) else {
            return false;
        };
        (block + 1) * block_len <= own.reusable() && own.content.agrees_through(block, &other.content)
    }

    /// Moves a request to the running ones, unless it is there, with the blocks of all its tokens.
    fn admit(&mut self, id: RequestId) {
        let Some(mut request) = self.waiting.remove(&id) else { return };
        let saved = request.adopt();
        let reserved = request.table.reserve(request.content.len());
        debug_assert!(reserved, "the blocks of all candidates were counted");
        if request.counts_for_metrics() {
            self.prefix_queries += request.prompt_tokens();
        }
        self.prefix_hits += saved;
        self.running.insert(id, request);
    }

    /// The next `rows` tokens of a running request, or all that are left.
    fn chunk(&self, id: RequestId, rows: usize) -> PlannedChunk {
        let request = &self.running[&id];
        let tokens = request.computed..request.computed + rows.min(request.pending());
        PlannedChunk { id, wanted: request.wanted(&tokens), tokens }
    }
}

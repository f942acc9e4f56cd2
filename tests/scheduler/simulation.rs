//! A simulated engine: it runs plans on a memory that records what was written, and checks every step against its own books.
use ember::engine::scheduler::{Full, Limits, Plan, PlannedChunk, Refusal, RequestId, Scheduler, Submission};
use ember::engine::{BlockManager, HashBlock, ImageKey};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

/// Size of the pool and the hash of its prefix cache.
#[derive(Clone, Copy, Debug)]
pub struct PoolSpec {
    pub n_blocks: usize,
    pub block_len: usize,
    pub hash: Option<HashBlock>,
}

/// The keys and values of one token, as what they depend on: the token, its place, and all before it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Entry {
    position: usize,
    token: u32,
    /// Hash of the image that the token stands for, and the token's index in it.
    image: Option<([u8; 32], usize)>,
    /// What keeps the sequence apart from others: adapter, salt, number of a submission that bypasses the cache.
    scope: (Option<[u8; 32]>, Option<String>, Option<usize>),
    /// Hash over the entries before.
    before: u64,
}

fn hash_of(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The simulation's own books about a request.
pub struct Live {
    submission: Submission,
    number: usize,
    sample: usize,
    /// What the cache must hold for each token.
    entries: Vec<Entry>,
    max_new: usize,
    computed: usize,
    reported: usize,
    preempted: bool,
    /// The step that returned its first result.
    first_token: Option<usize>,
    /// Rows that its seniors and itself had to run when it came.
    pub rows_ahead: usize,
}

impl Live {
    fn push(&mut self, token: u32) {
        let position = self.entries.len();
        let place = |image: &&ImageKey| (image.start..image.end).contains(&position);
        let image = self.submission.images.iter().find(place);
        let scope = &self.submission.scope;
        self.entries.push(Entry {
            position,
            token,
            image: image.map(|image| (image.hash, position - image.start)),
            scope: (scope.adapter, scope.salt.clone(), self.submission.bypass_cache.then_some(self.number)),
            before: self.entries.last().map_or(0, hash_of),
        });
    }

    pub fn prompt_len(&self) -> usize {
        self.submission.prompt.len()
    }

    fn reports_prompt(&self) -> bool {
        self.submission.prompt_results && self.sample == 0 && self.reported < self.prompt_len()
    }

    /// The next token of a model that knows the sequence: few different ones, so that sequences coincide.
    fn next_token(&self) -> u32 {
        (hash_of((self.entries.last(), self.sample)) % 3) as u32
    }

    /// Rows it runs at most from its beginning to its end.
    fn rows_in_all(&self) -> usize {
        self.prompt_len() + self.max_new
    }
}

/// A record of an ended request.
#[derive(Debug, PartialEq, Eq)]
pub struct Ended {
    pub tokens: Vec<u32>,
    pub full: Option<Full>,
    /// The step that returned its first result.
    pub first_token: usize,
}

pub struct Simulation {
    pub scheduler: Scheduler,
    block_len: usize,
    memory: Vec<Option<Entry>>,
    pub live: BTreeMap<RequestId, Live>,
    pub ended: BTreeMap<RequestId, Ended>,
    pub steps: usize,
    pub rows: usize,
    pub plans: Vec<Plan>,
    submissions: usize,
    /// Beginnings of full blocks that requests have completed; nothing of them is evicted while the pool is roomy.
    completed: Vec<(RequestId, Vec<Entry>)>,
    /// Check that the first chunk of a request begins exactly where the cached prefix ends.
    pub exact_hits: bool,
}

impl Simulation {
    pub fn new(limits: Limits, pool: PoolSpec) -> Self {
        let PoolSpec { n_blocks, block_len, hash } = pool;
        let blocks = match hash {
            Some(hash) => BlockManager::with_hash(n_blocks, block_len, hash),
            None => BlockManager::new(n_blocks, block_len),
        };
        Self {
            scheduler: Scheduler::new(limits, blocks).expect("valid limits"),
            block_len,
            memory: vec![None; n_blocks * block_len],
            live: BTreeMap::new(),
            ended: BTreeMap::new(),
            steps: 0,
            rows: 0,
            plans: Vec::new(),
            submissions: 0,
            completed: Vec::new(),
            exact_hits: false,
        }
    }

    pub fn submit(&mut self, submission: Submission, max_new: usize) -> Result<Vec<RequestId>, Refusal> {
        let submission = Submission { generates: max_new > 0, ..submission };
        let result = self.scheduler.submit(submission.clone());
        for (sample, &id) in result.iter().flatten().enumerate() {
            let mut live = Live {
                submission: submission.clone(),
                number: self.submissions,
                sample,
                entries: Vec::new(),
                max_new,
                computed: 0,
                reported: 0,
                preempted: false,
                first_token: None,
                rows_ahead: 0,
            };
            submission.prompt.iter().for_each(|&token| live.push(token));
            let prompt_rows = |live: &Live| live.entries.len() - live.computed;
            live.rows_ahead =
                prompt_rows(&live) + self.live.range(..id).map(|(_, l)| prompt_rows(l)).sum::<usize>();
            self.live.insert(id, live);
        }
        self.submissions += 1;
        self.check();
        result
    }

    /// Cancels a request, or ends it with a failure.
    pub fn end(&mut self, id: RequestId, failed: bool) {
        self.live.remove(&id);
        match failed {
            true => self.scheduler.fail(id),
            false => self.scheduler.finish(id),
        }
        self.check();
    }

    pub fn set_ready(&mut self, id: RequestId, ready: bool) {
        self.live.get_mut(&id).expect("a live request").submission.ready = ready;
        self.scheduler.set_ready(id, ready);
    }

    /// One step: plans it, runs it on the memory, and ends the requests that are done.
    pub fn step(&mut self) -> Plan {
        let behind_by_one = self.behind_by_one();
        let plan = self.scheduler.plan();
        self.steps += 1;
        for id in &plan.preempted {
            let live = self.live.get_mut(id).expect("only live requests are preempted");
            (live.computed, live.preempted) = (0, true);
        }
        self.check_budgets(&plan);
        check_first_rows(&plan, &behind_by_one);
        self.check();
        for chunk in &plan.chunks {
            self.check_chunk(chunk);
            self.read(chunk.id, 0..chunk.tokens.start);
        }
        plan.chunks.iter().for_each(|chunk| self.write(chunk));
        plan.chunks.iter().for_each(|chunk| self.read(chunk.id, 0..chunk.tokens.end));
        self.scheduler.complete(&plan);
        self.check();
        plan.chunks.iter().for_each(|chunk| self.answer(chunk));
        self.plans.push(plan.clone());
        plan
    }

    /// Steps until no request is left.
    ///
    /// The most senior request is done after as many steps as there are rows in all: if it waits for room, no other is
    /// admitted, and the most senior running one has a row in every step; once it runs, it has one itself. Others may have to
    /// begin again then. So all are done after that many steps for each request.
    pub fn drain(&mut self) {
        let (n, rows) = (self.live.len(), self.live.values().map(Live::rows_in_all).sum::<usize>());
        let bound = self.steps + n * rows;
        while !self.live.is_empty() {
            assert!(!self.step().chunks.is_empty(), "requests wait, and nothing runs");
            assert!(self.steps <= bound, "{n} requests of {rows} rows are not done after {} steps", n * rows);
        }
        assert!(self.scheduler.is_empty());
        assert_eq!(self.scheduler.metrics().blocks.held, 0, "leaked blocks");
    }

    /// The requests that run, may go on and are one token behind.
    fn behind_by_one(&self) -> Vec<RequestId> {
        let runs = |id| self.scheduler.request(id).is_some_and(|request| !request.block_table().is_empty());
        let behind = |live: &Live| {
            live.submission.ready && live.entries.len() - live.computed == 1 && !live.reports_prompt()
        };
        self.live.iter().filter(|(id, live)| runs(**id) && behind(live)).map(|(id, _)| *id).collect()
    }

    fn check_budgets(&self, plan: &Plan) {
        let limits = self.scheduler.limits();
        let rows: usize = plan.chunks.iter().map(|chunk| chunk.tokens.len()).sum();
        assert!(rows <= limits.rows_per_step, "{rows} rows in a step");
        let results = |chunk: &PlannedChunk| match self.live[&chunk.id].reports_prompt() {
            true => chunk.wanted.len(),
            false => 0,
        };
        let results: usize = plan.chunks.iter().map(results).sum();
        assert!(results <= limits.prompt_results_per_step, "{results} results of prompts in a step");
        let metrics = self.scheduler.metrics();
        assert!(metrics.running <= limits.running, "{} run", metrics.running);
    }

    /// The chunk continues what was computed, leaves a row to run, and wants the results it should.
    fn check_chunk(&self, chunk: &PlannedChunk) {
        let live = &self.live[&chunk.id];
        let Range { start, end } = chunk.tokens;
        assert!(live.submission.ready, "a request that is not ready was planned");
        assert!(live.computed <= start && start < end && end <= live.entries.len(), "{chunk:?}");
        if start > live.computed {
            assert_eq!(start % self.block_len, 0, "only full blocks come from the cache");
            assert!(!live.reports_prompt() || start <= live.reported, "results were skipped: {chunk:?}");
        }
        let wanted = match (live.reports_prompt(), end == live.entries.len()) {
            (true, _) => start.max(live.reported).min(end)..end,
            (false, true) => end - 1..end,
            (false, false) => end..end,
        };
        assert_eq!(chunk.wanted, wanted);
        if self.exact_hits && live.computed == 0 && !live.preempted {
            assert_eq!(start, self.expected_hit(live), "{chunk:?}");
        }
    }

    /// Tokens of the longest completed beginning in full blocks that leaves one to run.
    fn expected_hit(&self, live: &Live) -> usize {
        let limit = if live.reports_prompt() { 0 } else { live.entries.len() - 1 };
        let common = |(id, other): &(RequestId, Vec<Entry>)| {
            // Blocks of a request that bypasses the cache go with the last of its samples.
            if live.submission.bypass_cache && !self.live.contains_key(id) {
                return 0;
            }
            let same = other.iter().zip(&live.entries).take_while(|(a, b)| a == b).count();
            same.min(limit) / self.block_len * self.block_len
        };
        self.completed.iter().map(common).max().unwrap_or(0)
    }

    /// The slots of a request's entries, in order.
    fn slots(&self, id: RequestId, positions: Range<usize>) -> impl Iterator<Item = (usize, usize)> {
        let table = self.scheduler.request(id).expect("planned requests are live").block_table();
        let slot =
            |position| table[position / self.block_len] as usize * self.block_len + position % self.block_len;
        positions.map(move |position| (position, slot(position)))
    }

    fn write(&mut self, chunk: &PlannedChunk) {
        let slots: Vec<(usize, usize)> = self.slots(chunk.id, chunk.tokens.clone()).collect();
        for (position, slot) in slots {
            let block = (slot / self.block_len) as u32;
            assert!(!self.scheduler.blocks().is_cached(block), "a cached block is written");
            assert_eq!(self.scheduler.blocks().holders(block), 1, "a shared block is written");
            self.memory[slot] = Some(self.live[&chunk.id].entries[position].clone());
        }
        self.rows += chunk.tokens.len();
    }

    /// Every entry that the attention reads is what the sequence says.
    fn read(&self, id: RequestId, positions: Range<usize>) {
        let entries = &self.live[&id].entries;
        for (position, slot) in self.slots(id, positions) {
            let read = self.memory[slot].as_ref();
            assert_eq!(read, Some(&entries[position]), "request {id} reads what is not its own");
        }
    }

    fn answer(&mut self, chunk: &PlannedChunk) {
        let live = self.live.get_mut(&chunk.id).expect("planned requests are live");
        live.computed = chunk.tokens.end;
        live.reported = live.reported.max(live.computed.min(live.prompt_len()));
        let full_blocks = live.computed / self.block_len * self.block_len;
        if self.exact_hits {
            self.completed.push((chunk.id, live.entries[..full_blocks].to_vec()));
        }
        if chunk.tokens.end < live.entries.len() {
            return;
        }
        live.first_token.get_or_insert(self.steps);
        let generated = live.entries.len() - live.prompt_len();
        let token = live.next_token();
        let full = match generated < live.max_new {
            true => self.scheduler.push_token(chunk.id, token).err(),
            false => None,
        };
        if generated < live.max_new && full.is_none() {
            live.push(token);
        } else {
            let tokens = live.entries.iter().map(|entry| entry.token).collect();
            let first_token = live.first_token.unwrap_or(self.steps);
            self.ended.insert(chunk.id, Ended { tokens, full, first_token });
            self.live.remove(&chunk.id);
            self.scheduler.finish(chunk.id);
        }
        self.check();
    }

    /// The books of the pool against those of the requests.
    fn check(&self) {
        let blocks = self.scheduler.blocks();
        let mut holders = vec![0; blocks.n_blocks()];
        let mut running = 0;
        for (&id, live) in &self.live {
            let request = self.scheduler.request(id).expect("live requests are known");
            assert!(request.tokens().iter().eq(live.entries.iter().map(|entry| &entry.token)));
            let table = request.block_table();
            running += usize::from(!table.is_empty());
            table.iter().for_each(|&block| holders[block as usize] += 1);
        }
        let mut idle = 0;
        for (block, &n) in holders.iter().enumerate() {
            let cached = blocks.is_cached(block as u32);
            assert_eq!(blocks.holders(block as u32), n, "holders of block {block}");
            assert!(n <= 1 || cached, "block {block} is shared and not cached");
            let slots = block * self.block_len..(block + 1) * self.block_len;
            assert!(!cached || self.memory[slots].iter().all(Option::is_some), "block {block} is not full");
            idle += usize::from(cached && n == 0);
        }
        let metrics = self.scheduler.metrics();
        let held = holders.iter().filter(|&&n| n > 0).count();
        assert_eq!((metrics.blocks.held, metrics.blocks.idle), (held, idle));
        assert_eq!(metrics.blocks.free, blocks.n_blocks() - held - idle);
        assert_eq!((metrics.running, metrics.waiting), (running, self.live.len() - running));
    }
}

/// Sequences that are one token behind have their rows before all prompts.
fn check_first_rows(plan: &Plan, behind_by_one: &[RequestId]) {
    let n_single = plan.chunks.iter().take_while(|chunk| chunk.tokens.len() == 1).count();
    for id in behind_by_one.iter().filter(|id| !plan.preempted.contains(id)) {
        assert!(
            plan.chunks[..n_single].iter().any(|chunk| chunk.id == *id),
            "request {id} has no row: {plan:?}"
        );
    }
}

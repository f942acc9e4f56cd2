//! Cutting a batch into tasks.

use std::ops::Range;

use super::softmax::{Finish, Merge, States};
use super::span::{KvView, Span};
use super::{AttentionRows, Queries};
use crate::float::dispatch;
use crate::float::lanes::{F32x8, flat_mut};
use crate::float::pieces::Pieces;
use crate::isa::Isa;
use crate::pool::ThreadPool;

/// Positions after which a row's sums are closed and joined to those before: it bounds how finely threads can share
/// one long row, and joining costs nothing beside so many positions.
const SPAN: usize = 512;

/// Query rows of a task: enough to share the widening of keys and values, few enough to stay in the near caches. The
/// larger number where it leaves every thread several tasks.
const TASK_ROWS: [usize; 2] = [384, 96];

/// A call whose sizes fit together.
pub(super) struct Problem<'a> {
    view: KvView<'a>,
    queries: &'a Queries<'a>,
    sequences: &'a [AttentionRows<'a>],
    /// Query heads per key head.
    group: usize,
}

/// The query heads of one key head, for some tokens of one sequence.
struct HeadTokens {
    sequence: usize,
    kv_head: usize,
    /// Among the rows of the sequence.
    tokens: Range<usize>,
    /// The spans any of them sees into.
    spans: Range<usize>,
}

impl<'a> Problem<'a> {
    /// # Panics
    /// If queries, rows and output do not fit together.
    pub(super) fn new(
        view: KvView<'a>,
        queries: &'a Queries<'a>,
        sequences: &'a [AttentionRows<'a>],
        out_len: usize,
    ) -> Self {
        let n_heads = queries.n_heads;
        assert!(
            n_heads > 0 && n_heads.is_multiple_of(view.n_kv_heads),
            "query heads a multiple of key heads"
        );
        let width = n_heads * view.head_dim;
        assert!(queries.q.len().is_multiple_of(width), "queries of whole tokens");
        assert_eq!(queries.q.len(), out_len, "an output as large as the queries");
        let mut next = 0;
        for AttentionRows { rows, visible, .. } in sequences {
            assert!(next <= rows.start && rows.start <= rows.end, "rows that ascend and do not overlap");
            assert_eq!(rows.len(), visible.len(), "a visible range for every row");
            next = rows.end;
        }
        assert!(next <= out_len / width, "rows among the {} of the queries", out_len / width);
        let group = n_heads / view.n_kv_heads;
        Self { view, queries, sequences, group }
    }

    fn tiles_per_span(&self) -> usize {
        (SPAN / self.view.tile_len).max(1)
    }

    pub(super) fn run(&self, isa: Isa, pool: &ThreadPool, out: &mut [f32]) {
        let tasks = self.tasks(self.tokens_per_task(pool.threads()));
        let out = Pieces::new(out);
        if tasks.len() >= 4 * pool.threads() || tasks.iter().all(|task| task.spans.len() <= 1) {
            pool.parallel(tasks.len(), &|index| {
                let task = &tasks[index];
                let parts = task.spans.clone().map(|span| self.attend(isa, task, span));
                self.finish(isa, task, parts, &out);
            });
            return;
        }
        let spans: Vec<(usize, usize)> = tasks
            .iter()
            .enumerate()
            .flat_map(|(index, task)| task.spans.clone().map(move |span| (index, span)))
            .collect();
        let mut parts: Vec<Option<States>> = spans.iter().map(|_| None).collect();
        let slots = Pieces::new(&mut parts);
        pool.parallel(spans.len(), &|index| {
            let (task, span) = spans[index];
            // SAFETY: every index is run once.
            let slot = unsafe { slots.piece(index..index + 1) };
            slot[0] = Some(self.attend(isa, &tasks[task], span));
        });
        let mut parts = parts.into_iter().flatten();
        for task in &tasks {
            self.finish(isa, task, parts.by_ref().take(task.spans.len()), &out);
        }
    }

    fn tokens_per_task(&self, threads: usize) -> usize {
        let [most, least] = TASK_ROWS.map(|rows| (rows / self.group).max(1));
        let tokens: usize = self.sequences.iter().map(|rows| rows.visible.len()).sum();
        if tokens / most * self.view.n_kv_heads >= 8 * threads { most } else { least }
    }

    /// The tasks of a key head follow each other, so that its keys and values stay near; of these, those with most to see
    /// come first, as the threads then end together.
    fn tasks(&self, tokens_per_task: usize) -> Vec<HeadTokens> {
        let span = (self.tiles_per_span() * self.view.tile_len) as u32;
        let mut tasks = Vec::new();
        for (sequence, rows) in self.sequences.iter().enumerate() {
            for kv_head in 0..self.view.n_kv_heads {
                for part in (0..rows.visible.len().div_ceil(tokens_per_task)).rev() {
                    let start = part * tokens_per_task;
                    let tokens = start..(start + tokens_per_task).min(rows.visible.len());
                    let visible =
                        || rows.visible[tokens.clone()].iter().filter(|visible| !visible.is_empty());
                    let first = visible().map(|visible| visible.start / span).min().unwrap_or(0) as usize;
                    let end = visible().map(|visible| visible.end.div_ceil(span)).max().unwrap_or(0) as usize;
                    tasks.push(HeadTokens { sequence, kv_head, tokens, spans: first..end });
                }
            }
        }
        tasks
    }

    /// Softmax states of the rows of `task` over span `span`.
    fn attend(&self, isa: Isa, task: &HeadTokens, span: usize) -> States {
        let rows = &self.sequences[task.sequence];
        let tiles = self.tiles_per_span();
        let octets = self.view.head_dim.div_ceil(8);
        let mut states = States::new(task.tokens.len() * self.group, octets);
        Span {
            view: &self.view,
            block_table: rows.block_table,
            kv_head: task.kv_head,
            tiles: span * tiles..(span + 1) * tiles,
            q: &self.scaled_queries(task),
            visible: &rows.visible[task.tokens.clone()],
            states: &mut states,
        }
        .attend(isa);
        states
    }

    /// `[tokens, group, octets]`.
    fn scaled_queries(&self, task: &HeadTokens) -> Vec<F32x8> {
        let octets = self.view.head_dim.div_ceil(8);
        let mut scaled = vec![F32x8::default(); task.tokens.len() * self.group * octets];
        for (row, to) in scaled.chunks_exact_mut(octets).enumerate() {
            let q = &self.queries.q[self.row_range(task, row)];
            for (to, q) in flat_mut(to).iter_mut().zip(q) {
                *to = q * self.queries.scale;
            }
        }
        scaled
    }

    /// Elements of row `row` of `task`, in the queries and in the output.
    fn row_range(&self, task: &HeadTokens, row: usize) -> Range<usize> {
        let token = self.sequences[task.sequence].rows.start + task.tokens.start + row / self.group;
        let head = task.kv_head * self.group + row % self.group;
        let start = (token * self.queries.n_heads + head) * self.view.head_dim;
        start..start + self.view.head_dim
    }

    /// Joins the spans of `task` in ascending order and writes its rows.
    fn finish(&self, isa: Isa, task: &HeadTokens, parts: impl Iterator<Item = States>, out: &Pieces<f32>) {
        let joined = parts.reduce(|mut into, from| {
            dispatch(isa, Merge { into: &mut into, from: &from });
            into
        });
        for row in 0..task.tokens.len() * self.group {
            // SAFETY: rows do not overlap between sequences, and each belongs to one task.
            let out = unsafe { out.piece(self.row_range(task, row)) };
            match &joined {
                Some(states) => dispatch(isa, Finish { states, row, out }),
                None => out.fill(0.0),
            }
        }
    }
}

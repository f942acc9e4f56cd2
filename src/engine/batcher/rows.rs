//! The rows of a planned step, and their results.
use super::Batcher;
use crate::engine::scheduler::{Plan, PlannedChunk, RequestId};
use crate::engine::{RunnerOutput, Wanted};
use ember_models::backend::TopK;
use ember_models::batch::slot;
use ember_models::{Batch, NotFinite, SequenceRows};

/// The results of a chunk's rows.
#[derive(Debug)]
pub(super) enum RowResult<'a> {
    /// None was wanted.
    Nothing,
    /// The last row's likeliest tokens.
    Likeliest(&'a [(u32, f32)]),
    /// The logits of the rows that were wanted, `[rows, vocab]`: at least the last row's.
    Logits(&'a mut [f32]),
}

/// A chunk of a step with what is wanted of its rows.
pub(super) struct StepChunk {
    pub id: RequestId,
    pub planned: PlannedChunk,
    pub wanted: Wanted,
    /// Its first row in the batch.
    first_row: usize,
}

impl Batcher {
    /// The batch of a plan.
    pub(super) fn batch(&self, plan: &Plan) -> (Batch, Vec<StepChunk>) {
        let mut batch = Batch::default();
        let chunks = plan.chunks.iter().map(|chunk| self.append_rows(&mut batch, chunk)).collect();
        (batch, chunks)
    }

    fn append_rows(&self, batch: &mut Batch, planned: &PlannedChunk) -> StepChunk {
        let known = "the scheduler plans requests that have not ended";
        let request = self.scheduler.request(planned.id).expect(known);
        let sample = self.samples.get(&planned.id).expect(known);
        let (first_row, entries) = (batch.len(), planned.tokens.clone());
        let (table, block_len) = (request.block_table(), self.scheduler.blocks().block_len());
        batch.tokens.extend(&request.tokens()[entries.clone()]);
        for image in sample.images.iter() {
            batch.embeddings.extend(image.embedding_rows(entries.clone(), first_row));
        }
        let positions = entries.start as u32..entries.end as u32;
        batch.positions.extend(positions.clone());
        batch.slots.extend(positions.map(|entry| slot(entry, table, block_len)));
        batch.sequences.push(SequenceRows {
            rows: first_row..batch.len(),
            kv_start: entries.start as u32,
            block_table: table.to_vec(),
            ..SequenceRows::default()
        });
        let generated = request.tokens().len() - request.prompt_tokens();
        let wanted = sample.wants(&planned.wanted, request.prompt_tokens(), generated);
        let row = |token: usize| (first_row + token - entries.start) as u32;
        match wanted {
            Wanted::Nothing => {}
            Wanted::Likeliest(k) => {
                batch.likeliest_rows.extend(planned.wanted.clone().last().map(row));
                batch.likeliest = batch.likeliest.max(k);
            }
            Wanted::Last => batch.logits_rows.extend(planned.wanted.clone().last().map(row)),
            Wanted::All => batch.logits_rows.extend(planned.wanted.clone().map(row)),
        }
        StepChunk { id: planned.id, planned: planned.clone(), wanted, first_row }
    }
}

/// The results of a step, handed out chunk by chunk.
pub(super) struct Results<'a> {
    logits: &'a mut [f32],
    likeliest: std::slice::Iter<'a, TopK>,
    not_finite: &'a [NotFinite],
    vocab: usize,
}

impl<'a> Results<'a> {
    pub fn new(output: &'a mut RunnerOutput, vocab: usize) -> Self {
        let RunnerOutput { logits, likeliest, not_finite, .. } = output;
        Self { logits, likeliest: likeliest.iter(), not_finite, vocab }
    }

    /// The results of the next chunk.
    ///
    /// # Errors
    /// The first number of its rows that is not finite.
    pub fn take(&mut self, chunk: &StepChunk) -> Result<RowResult<'a>, NotFinite> {
        let results = match chunk.wanted {
            Wanted::Nothing => RowResult::Nothing,
            Wanted::Likeliest(k) => {
                let row = self.likeliest.next().map_or(&[][..], |row| &row[..k.min(row.len())]);
                RowResult::Likeliest(row)
            }
            Wanted::Last => RowResult::Logits(self.take_logits(1)),
            Wanted::All => RowResult::Logits(self.take_logits(chunk.planned.wanted.len())),
        };
        let rows = chunk.first_row..chunk.first_row + chunk.planned.tokens.len();
        match self.not_finite.iter().find(|broken| rows.contains(&broken.row)) {
            Some(broken) => Err(*broken),
            None => Ok(results),
        }
    }

    fn take_logits(&mut self, rows: usize) -> &'a mut [f32] {
        let (taken, rest) = std::mem::take(&mut self.logits).split_at_mut(rows * self.vocab);
        self.logits = rest;
        taken
    }
}

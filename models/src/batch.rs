//! One step's work for the decoder, as plain data: what the scheduler writes and the runner hands over.
use crate::error::ModelError;
use crate::opaque::Opaque;
use std::ops::Range;
use std::sync::Arc;

/// A flat batch: the rows of all sequences of one step, prefill chunks and single decode rows alike, one after another.
///
/// A row's result never depends on the other rows of the batch.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Token id of each row; ignored for rows covered by `embeddings`.
    pub tokens: Vec<u32>,
    /// Rows whose input embedding comes ready-made (image patches).
    pub embeddings: Vec<EmbeddingRows>,
    /// Rotary position of each row.
    pub positions: Vec<u32>,
    /// Physical KV slot each row writes: `block id * block length + offset`.
    pub slots: Vec<u32>,
    /// The sequences, covering the rows in order without gaps.
    pub sequences: Vec<SequenceRows>,
    /// Rows whose logits are wanted, in output order.
    pub logits_rows: Vec<u32>,
    /// Rows whose likeliest tokens are wanted, in output order.
    pub likeliest_rows: Vec<u32>,
    /// Number of likeliest tokens that each of these rows gets: the most that any of them needs.
    pub likeliest: usize,
    /// Rows whose final normalised hidden state is wanted, in output order.
    pub hidden_rows: Vec<u32>,
}

/// Consecutive rows whose embeddings replace the token lookup.
#[derive(Clone, Debug)]
pub struct EmbeddingRows {
    /// First row of the batch that is replaced.
    pub start: usize,
    /// Row-major `[.., hidden]`: all embeddings of an image, say.
    pub values: Arc<[f32]>,
    /// First row of `values` that is used.
    pub first: usize,
    /// Number of rows.
    pub n: usize,
}

impl EmbeddingRows {
    /// The embeddings, row-major `[n, hidden]`.
    pub fn used(&self, hidden: usize) -> &[f32] {
        &self.values[self.first * hidden..][..self.n * hidden]
    }
}

/// The rows of one sequence in a [`Batch`].
#[derive(Clone, Debug, Default)]
pub struct SequenceRows {
    /// Rows of the batch.
    pub rows: Range<usize>,
    /// How many KV entries the sequence had before this step; row `i` of the sequence becomes entry `kv_start + i`.
    pub kv_start: u32,
    /// Physical block of each run of `block_len` KV entries.
    pub block_table: Vec<u32>,
    /// KV ranges inside which attention is bidirectional (image segments); everything else is causal.
    pub segments: Vec<Range<u32>>,
    /// Index of the LoRA adapter to apply; `None` is the base model.
    pub adapter: Option<u32>,
}

impl SequenceRows {
    /// For each row the KV range it may attend to.
    pub fn visible(&self) -> Vec<Range<u32>> {
        let row = |i: u32| {
            let own = self.kv_start + i;
            let segment = self.segments.iter().find(|segment| segment.contains(&own));
            0..segment.map_or(own + 1, |segment| segment.end)
        };
        (0..self.rows.len() as u32).map(row).collect()
    }
}

/// What attention needs to know about a step, prepared once and shared by all layers.
#[derive(Debug)]
pub struct StepPlan<'a> {
    /// Physical KV slot each row writes.
    pub slots: &'a [u32],
    /// The sequences, covering the rows in order.
    pub sequences: &'a [SequenceRows],
    /// The same as the backend keeps it on its device, if it does.
    pub device: Option<Opaque>,
}

impl Batch {
    /// A batch of one sequence with causal attention, writing KV entries `kv_start..` through `block_table`.
    pub fn single(tokens: &[u32], kv_start: u32, block_table: &[u32], block_len: usize) -> Self {
        let entries = kv_start..kv_start + tokens.len() as u32;
        Self {
            tokens: tokens.to_vec(),
            positions: entries.clone().collect(),
            slots: entries.map(|entry| slot(entry, block_table, block_len)).collect(),
            sequences: vec![SequenceRows {
                rows: 0..tokens.len(),
                kv_start,
                block_table: block_table.to_vec(),
                ..SequenceRows::default()
            }],
            ..Self::default()
        }
    }

    fn wanted_rows(&self) -> impl Iterator<Item = &u32> {
        self.logits_rows.iter().chain(&self.likeliest_rows).chain(&self.hidden_rows)
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Checks that the parts agree with each other, with the vocabulary and with a cache of `n_slots` slots.
    ///
    /// # Errors
    /// [`ModelError::InvalidBatch`] naming the first part that does not fit.
    pub fn validate(
        &self,
        vocab: usize,
        hidden: usize,
        block_len: usize,
        n_slots: usize,
    ) -> Result<(), ModelError> {
        let n = self.len();
        let fail = |what: String| Err(ModelError::InvalidBatch(what));
        if self.positions.len() != n || self.slots.len() != n {
            return fail(format!(
                "{n} tokens but {} positions and {} slots",
                self.positions.len(),
                self.slots.len()
            ));
        }
        for part in &self.embeddings {
            let end = |first: usize| first.checked_add(part.n);
            let inside = end(part.start).is_some_and(|end| end <= n);
            let given = end(part.first).is_some_and(|end| end <= part.values.len() / hidden);
            if part.values.len() % hidden != 0 || !inside || !given {
                return fail(format!(
                    "embedding rows at {} do not fit {n} rows of width {hidden}",
                    part.start
                ));
            }
        }
        if let Some(token) = self.tokens.iter().find(|&&token| token as usize >= vocab) {
            return fail(format!("token id {token} is not below the vocabulary size {vocab}"));
        }
        if let Some(slot) = self.slots.iter().find(|&&slot| slot as usize >= n_slots) {
            return fail(format!("KV slot {slot} is not below the cache size {n_slots}"));
        }
        if let Some(row) = self.wanted_rows().find(|&&row| row as usize >= n) {
            return fail(format!("row {row} is wanted but the batch has {n}"));
        }
        self.validate_sequences(block_len, n_slots)
    }

    fn validate_sequences(&self, block_len: usize, n_slots: usize) -> Result<(), ModelError> {
        let mut next = 0;
        for sequence in &self.sequences {
            if sequence.rows.start != next || sequence.rows.end < next {
                return Err(ModelError::InvalidBatch(format!(
                    "a sequence covers rows {:?}, expected to start at {next}",
                    sequence.rows
                )));
            }
            next = sequence.rows.end;
            if let Some(adapter) = sequence.adapter {
                return Err(ModelError::InvalidBatch(format!("adapter {adapter} is not loaded")));
            }
            let entries = sequence.visible().iter().map(|range| range.end as usize).max().unwrap_or(0);
            let blocks = sequence.block_table.len();
            if entries > blocks * block_len {
                return Err(ModelError::InvalidBatch(format!(
                    "{entries} KV entries need {} blocks of {block_len}, the block table has {blocks}",
                    entries.div_ceil(block_len)
                )));
            }
            if let Some(block) =
                sequence.block_table.iter().find(|&&b| (b as usize + 1) * block_len > n_slots)
            {
                return Err(ModelError::InvalidBatch(format!("KV block {block} is outside the cache")));
            }
        }
        if next != self.len() {
            return Err(ModelError::InvalidBatch(format!("sequences cover {next} of {} rows", self.len())));
        }
        Ok(())
    }
}

/// Physical slot of KV entry `entry`.
pub fn slot(entry: u32, block_table: &[u32], block_len: usize) -> u32 {
    let (block, offset) = (entry as usize / block_len, entry as usize % block_len);
    block_table[block] * block_len as u32 + offset as u32
}

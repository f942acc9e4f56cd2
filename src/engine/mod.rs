//! From token ids to token ids: sequences, KV blocks and flat batches. No tensors here: the model is behind [`Runner`].
//!
//! [`Engine`] runs the steps that its caller asks for, as a [`Generation`] does for one conversation. A [`Batcher`] runs many
//! requests at once, in the steps that its [`scheduler`] plans; an [`EngineHandle`] leads to one on a thread of its own.
mod batcher;
mod block_manager;
mod content;
mod error;
mod generate;
mod image;
mod loop_check;
mod prefix_cache;
pub mod scheduler;
mod sequence;
pub mod vision;

pub use batcher::{BatchLimits, Batcher, EngineHandle, EngineStopped, Finished, GenerateRequest, Sink};
pub use block_manager::{BlockManager, BlockTable, BlockUsage, CachedPrefix};
pub use content::{BlockKey, CacheScope, Content, HashBlock, ImageKey};
pub use ember_models::{NotFinite, Runner, RunnerOutput};
pub use error::EngineError;
pub use generate::{FinishReason, GenerateLimits, Generation, Step};
pub use image::{EncodedImage, ImageSpan, Tokens};
pub use loop_check::{LoopCheck, MAX_CYCLE, MAX_REPEATED};
pub use sequence::Sequence;

use ember_models::batch::slot;
use ember_models::{Batch, ModelError, SequenceRows};

/// Rows of the steps of a warm-up: those that have kernels of their own, and one of each size of tiles.
const WARM_UP_ROWS: [usize; 7] = [1, 2, 3, 4, 5, 17, 33];

/// Owns a model and its KV pool, and runs steps for any number of sequences.
pub struct Engine {
    runner: Box<dyn Runner>,
    blocks: BlockManager,
    prefill_chunk: usize,
}

/// Tokens to append to a sequence in one step.
pub struct Chunk<'a> {
    /// The sequence; its KV entries grow by the number of tokens.
    pub sequence: &'a mut Sequence,
    /// The tokens, at the positions that follow the sequence's own.
    pub tokens: Tokens<'a>,
    /// The results wanted of the rows.
    pub wanted: Wanted,
}

/// The results wanted of a chunk's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Nothing but their keys and values in the cache.
    Nothing,
    /// The last row's logits.
    Last,
    /// The last row's likeliest tokens, this many.
    Likeliest(usize),
    /// Every row's logits.
    All,
}

impl Chunk<'_> {
    /// The number of likeliest tokens that are wanted of a row, if there is such a row.
    fn likeliest(&self) -> Option<usize> {
        match self.wanted {
            Wanted::Likeliest(k) if !self.tokens.ids.is_empty() => Some(k),
            _ => None,
        }
    }
}

impl Engine {
    /// An engine over a loaded model.
    pub fn new(runner: Box<dyn Runner>) -> Self {
        let blocks = BlockManager::new(runner.n_blocks(), runner.block_len());
        let prefill_chunk = runner.prefill_rows();
        Self { runner, blocks, prefill_chunk }
    }

    /// Sets the number of rows of a prefill step; the results do not depend on it.
    pub fn set_prefill_chunk(&mut self, rows: usize) {
        self.prefill_chunk = rows.max(1);
    }

    /// Makes every step read back the hidden state after each half of a layer, and fail with the place where the first
    /// value is not finite; slow.
    pub fn set_check_finite(&mut self, on: bool) {
        self.runner.set_check_finite(on);
    }

    /// Runs a few steps of each kind, so that a device compiles its kernels before the first request.
    ///
    /// # Errors
    /// Any error of the model.
    pub fn warm_up(&mut self) -> Result<(), EngineError> {
        let mut sequence = Sequence::default();
        for rows in WARM_UP_ROWS.map(|rows| rows.min(self.context_size())) {
            let result = self.extend(&mut sequence, &vec![0; rows], Wanted::Likeliest(1), &mut |_| true);
            self.truncate(&mut sequence, 0);
            result?;
        }
        Ok(())
    }

    /// The model.
    pub fn runner(&self) -> &dyn Runner {
        self.runner.as_ref()
    }

    /// KV entries that all sequences together may hold.
    pub fn context_size(&self) -> usize {
        self.blocks.n_blocks() * self.blocks.block_len()
    }

    /// Runs one flat batch over several sequences.
    ///
    /// Returns what is wanted, in the order of the chunks.
    ///
    /// # Errors
    /// [`EngineError::ImagePlace`] for images that do not fit the tokens; [`EngineError::ContextFull`] when the pool
    /// has too few blocks (in both cases no sequence has changed); any error of the model.
    pub fn step(&mut self, chunks: &mut [Chunk<'_>]) -> Result<RunnerOutput, EngineError> {
        for chunk in chunks.iter() {
            chunk.tokens.check_images(self.runner.config().hidden_size)?;
            chunk.sequence.check_continues(chunk.tokens.images)?;
        }
        let needed: usize =
            chunks.iter().map(|c| c.sequence.missing_blocks(c.tokens.ids.len(), &self.blocks)).sum();
        if needed > self.blocks.usage().available() {
            let tokens = chunks.iter().map(|c| c.sequence.len() + c.tokens.ids.len()).max().unwrap_or(0);
            return Err(EngineError::ContextFull { tokens, context: self.context_size() });
        }
        let mut batch = Batch::default();
        for chunk in chunks.iter_mut() {
            chunk.sequence.reserve(chunk.tokens.ids.len(), &self.blocks);
            append_rows(&mut batch, chunk, self.blocks.block_len());
        }
        let mut output = self.runner.step(&batch)?;
        if let Some(&broken) = output.not_finite.first() {
            return Err(ModelError::from(broken).into());
        }
        // The device picks as many for every row as the row that wants most.
        let wanted = chunks.iter().filter_map(Chunk::likeliest);
        for (likeliest, k) in output.likeliest.iter_mut().zip(wanted) {
            likeliest.truncate(k);
        }
        for chunk in chunks {
            chunk.sequence.push(chunk.tokens);
        }
        Ok(output)
    }

    /// Appends `tokens` to a sequence in chunks, calling `progress` with the number of tokens done after each.
    ///
    /// Returns what is wanted. `progress` returning `false` stops early with what has been computed.
    ///
    /// # Errors
    /// As [`step`](Self::step). The sequence then holds the chunks done so far.
    pub fn extend<'a>(
        &mut self,
        sequence: &mut Sequence,
        tokens: impl Into<Tokens<'a>>,
        wanted: Wanted,
        progress: &mut dyn FnMut(usize) -> bool,
    ) -> Result<RunnerOutput, EngineError> {
        let Tokens { ids, images } = tokens.into();
        let mut all = RunnerOutput::default();
        let mut done = 0;
        let rows = match wanted {
            Wanted::All => self.prefill_chunk.min(self.runner.max_logits_rows()),
            _ => self.prefill_chunk,
        };
        for ids_of_step in ids.chunks(rows) {
            done += ids_of_step.len();
            let wanted = match wanted {
                Wanted::Last | Wanted::Likeliest(_) if done < ids.len() => Wanted::Nothing,
                other => other,
            };
            let tokens = Tokens { ids: ids_of_step, images };
            let output = self.step(&mut [Chunk { sequence, tokens, wanted }])?;
            all.logits.extend(output.logits);
            all.likeliest.extend(output.likeliest);
            if !progress(done) {
                break;
            }
        }
        Ok(all)
    }

    /// Keeps the first `len` tokens of a sequence and frees the blocks behind them.
    pub fn truncate(&mut self, sequence: &mut Sequence, len: usize) {
        sequence.truncate(len);
    }
}

fn append_rows(batch: &mut Batch, chunk: &Chunk<'_>, block_len: usize) {
    let first_row = batch.len();
    let (start, end) = (chunk.sequence.len(), chunk.sequence.len() + chunk.tokens.ids.len());
    let (kv_start, entries) = (start as u32, start as u32..end as u32);
    let table = chunk.sequence.block_table();
    batch.tokens.extend(chunk.tokens.ids);
    for image in chunk.tokens.images {
        batch.embeddings.extend(image.embedding_rows(start..end, first_row));
    }
    batch.positions.extend(entries.clone());
    batch.slots.extend(entries.map(|entry| slot(entry, table, block_len)));
    let rows = first_row..batch.len();
    let last = rows.clone().last().map(|row| row as u32);
    match chunk.wanted {
        Wanted::Nothing => {}
        Wanted::Last => batch.logits_rows.extend(last),
        Wanted::Likeliest(k) => {
            batch.likeliest_rows.extend(last);
            batch.likeliest = batch.likeliest.max(k);
        }
        Wanted::All => batch.logits_rows.extend(rows.start as u32..rows.end as u32),
    }
    batch.sequences.push(SequenceRows {
        rows,
        kv_start,
        block_table: table.to_vec(),
        ..SequenceRows::default()
    });
}

//! The plan of a step's attention: worked out on the host once per step, uploaded in one piece, read by every layer.
//!
//! Words of the buffer, in this order:
//! - per row: start and end of the entries it sees;
//! - per decode row: [`DECODE_WORDS`];
//! - per prefill tile: [`TILE_WORDS`];
//! - the block tables.
use crate::{Buffer, Gpu, GpuError};
use cubecl::prelude::Runtime;
use std::ops::Range;

/// Rows of a sequence up to which each is attended to on its own: few rows leave most of a tile idle.
const DECODE_ROWS: usize = 4;
/// Rows of a prefill tile.
pub(super) const TILE_ROWS: usize = 16;
/// Words of a decode row: row, start, end, block table, entries per split, number of its first partial result.
pub(super) const DECODE_WORDS: usize = 6;
/// Words of a tile: first row, rows, start and end of what any of them sees, start and end of what all of them see, block
/// table.
pub(super) const TILE_WORDS: usize = 7;

/// The rows of one sequence in a step.
#[derive(Clone, Debug)]
pub struct SequencePlan<'a> {
    /// Its rows among those of the step.
    pub rows: Range<usize>,
    /// The blocks that hold its entries `0..block_len`, `block_len..2 * block_len`, ...
    pub block_table: &'a [u32],
    /// The entries that each of its rows sees.
    pub visible: &'a [Range<u32>],
}

/// The entries that a step's rows attend to, on the device.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(super) words: Buffer,
    /// Rows up to the last of the last sequence.
    pub(super) rows: usize,
    pub(super) decode: Vec<DecodeRow>,
    pub(super) decode_start: usize,
    pub(super) tiles: usize,
    pub(super) tiles_start: usize,
    pub(super) block_len: usize,
    /// One more than the largest block in use.
    pub(super) blocks: usize,
}

/// A decode row, as the host keeps it.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecodeRow {
    pub splits: usize,
    pub first_partial: usize,
}

/// Entries per split of a row that sees `entries`. A cube takes a split: 128 entries keep it busy for longer than the
/// second kernel takes to join two, and from 64 splits on, the cubes of 8 heads fill the largest devices.
///
/// The length of what a row sees decides and nothing else, so that a row's result does not depend on its batch.
fn split_len(entries: u32) -> u32 {
    let splits = entries.div_ceil(128).clamp(1, 64);
    entries.div_ceil(splits).next_multiple_of(32).max(1)
}

impl Plan {
    /// Works out and uploads the plan of a step.
    ///
    /// # Errors
    /// [`GpuError::Invalid`] when sequences overlap or descend, a sequence has more or fewer ranges than rows, or an
    /// entry no block; [`GpuError::TooLarge`].
    pub fn new<R: Runtime>(
        gpu: &Gpu<R>,
        sequences: &[SequencePlan],
        block_len: usize,
    ) -> Result<Self, GpuError> {
        check(sequences, block_len)?;
        let rows = sequences.last().map_or(0, |sequence| sequence.rows.end);
        let is_decode = |sequence: &&SequencePlan| sequence.rows.len() <= DECODE_ROWS;
        let decode_rows: usize = sequences.iter().filter(is_decode).map(|sequence| sequence.rows.len()).sum();
        let prefill = sequences.iter().filter(|sequence| !is_decode(sequence));
        let tiles: usize = prefill.map(|sequence| sequence.rows.len().div_ceil(TILE_ROWS)).sum();
        let decode_start = 2 * rows;
        let tiles_start = decode_start + DECODE_WORDS * decode_rows;
        let mut table = tiles_start + TILE_WORDS * tiles;

        let mut visible_words = vec![0; decode_start];
        let (mut decode_words, mut tile_words, mut tables) = (Vec::new(), Vec::new(), Vec::new());
        let mut decode = Vec::with_capacity(decode_rows);
        let mut partials = 0;
        for sequence in sequences {
            for (row, visible) in sequence.rows.clone().zip(sequence.visible) {
                visible_words[2 * row..2 * row + 2].copy_from_slice(&[visible.start, visible.end]);
            }
            if is_decode(&sequence) {
                for (row, visible) in sequence.rows.clone().zip(sequence.visible) {
                    let entries = visible.len() as u32;
                    let len = split_len(entries);
                    let splits = entries.div_ceil(len) as usize;
                    let end = visible.start + entries;
                    decode_words.extend([row as u32, visible.start, end, table as u32, len, partials as u32]);
                    decode.push(DecodeRow { splits, first_partial: partials });
                    partials += if splits > 1 { splits } else { 0 };
                }
            } else {
                for (i, visible) in sequence.visible.chunks(TILE_ROWS).enumerate() {
                    let first = (sequence.rows.start + i * TILE_ROWS) as u32;
                    let (any, all) = (hull(visible), common(visible));
                    let seen = [any.start, any.end, all.start, all.end];
                    tile_words.extend([first, visible.len() as u32]);
                    tile_words.extend(seen.into_iter().chain([table as u32]));
                }
            }
            tables.extend_from_slice(sequence.block_table);
            table += sequence.block_table.len();
        }
        let blocks = tables.iter().max().map_or(0, |&block| block as usize + 1);
        let words = [visible_words, decode_words, tile_words, tables].concat();
        // An empty step has nothing to launch, but no buffer is empty.
        let words = gpu.upload("the attention plan", if words.is_empty() { &[0] } else { &words })?;
        Ok(Self { words, rows, decode, decode_start, tiles, tiles_start, block_len, blocks })
    }
}

/// The entries that any row sees.
fn hull(visible: &[Range<u32>]) -> Range<u32> {
    let seen = || visible.iter().filter(|range| !range.is_empty());
    let start = seen().map(|range| range.start).min().unwrap_or(0);
    start..seen().map(|range| range.end).max().unwrap_or(0)
}

/// The entries that every row sees.
fn common(visible: &[Range<u32>]) -> Range<u32> {
    let start = visible.iter().map(|range| range.start).max().unwrap_or(0);
    start..visible.iter().map(|range| range.end).min().unwrap_or(0)
}

fn check(sequences: &[SequencePlan], block_len: usize) -> Result<(), GpuError> {
    let mut end = 0;
    for SequencePlan { rows, block_table, visible } in sequences {
        let entries = hull(visible).end as usize;
        let problem = if rows.start < end || rows.end < rows.start {
            "rows that overlap or descend"
        } else if visible.len() != rows.len() {
            "not one visible range per row"
        } else if entries > block_table.len() * block_len {
            "entries without a block"
        } else {
            end = rows.end;
            continue;
        };
        return Err(GpuError::Invalid(format!("an attention plan with {problem} at {rows:?}")));
    }
    Ok(())
}

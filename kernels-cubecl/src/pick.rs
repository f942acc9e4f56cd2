//! The `k` largest logits of each row, for greedy choice (`k = 1`) and for sampling on the host.
//!
//! Layout: logits `[rows, vocab]`; the result is `[rows, k]` pairs of words (token, bits of its logit), largest logit
//! first and the lower token first among equals. A NaN counts as larger than everything, so that a broken row is seen.
//!
//! Work: a bitonic top-k. A cube reads its part of a row in tiles of `TILE` candidates, sorts groups of `width` (the
//! power of two from `k` on) and halves the number of groups by taking the better of two candidates at a time, until one
//! group is left; it joins the next tile. With `k = 1` this is a tree of maxima. What the cubes of a row keep is merged by
//! one more cube in a second launch. Moved: `4 * rows * vocab` bytes in; the rest is small.
use crate::grid::Grid;
use crate::{Buffer, Gpu};
use cubecl::prelude::*;

/// Units of a cube.
const UNITS: u32 = 256;
/// Candidates in shared memory, eight bytes each.
const TILE: u32 = 2048;
/// Largest `k`.
pub const MAX_K: usize = 64;
/// The token of the pairs that fill a row up when `k` exceeds the vocabulary; their logit is -inf.
pub const NO_TOKEN: u32 = u32::MAX;
/// [`order_key`] of -inf, the smallest there is.
const LOWEST_KEY: u32 = 0x007f_ffff;

/// The bits of an `f32` as an integer with the same order: NaN above +inf, -0 equal to +0.
#[cube]
fn order_key(bits: u32) -> u32 {
    let magnitude = bits & 0x7fff_ffff;
    let negative = select(magnitude == 0, 0x8000_0000u32, !bits);
    let number = select(bits >= 0x8000_0000u32, negative, bits | 0x8000_0000u32);
    select(magnitude > 0x7f80_0000, 0xffff_ffffu32, number)
}

/// The `f32` bits behind an [`order_key`].
#[cube]
fn key_bits(key: u32) -> u32 {
    select(key >= 0x8000_0000u32, key & 0x7fff_ffff, !key)
}

/// True if candidate `i` comes before candidate `j`.
#[cube]
fn before(keys: &SharedMemory<u32>, ids: &SharedMemory<u32>, i: u32, j: u32) -> bool {
    let a = keys[i as usize];
    let b = keys[j as usize];
    a > b || (a == b && ids[i as usize] < ids[j as usize])
}

/// Sorts the groups of `size` among the first `len` candidates, each of which is bitonic: best first in groups that lie
/// below `turn` or, where that is zero, in every other group.
#[cube]
fn sort_bitonic(keys: &mut SharedMemory<u32>, ids: &mut SharedMemory<u32>, len: u32, size: u32, turn: u32) {
    let mut stride = size / 2;
    while stride > 0 {
        let mut pair = UNIT_POS;
        while pair < len / 2 {
            let i = 2 * pair - (pair & (stride - 1));
            let j = i + stride;
            let best_first = select(turn == 0, (i & size) == 0, i < turn);
            if before(keys, ids, i, j) != best_first {
                let key = keys[i as usize];
                let id = ids[i as usize];
                keys[i as usize] = keys[j as usize];
                ids[i as usize] = ids[j as usize];
                keys[j as usize] = key;
                ids[j as usize] = id;
            }
            pair += UNITS;
        }
        sync_cube();
        stride /= 2;
    }
}

/// Leaves the best `width` of a tile in its first places, best first.
#[cube]
fn top_of_tile(keys: &mut SharedMemory<u32>, ids: &mut SharedMemory<u32>, width: u32) {
    let mut size = 2u32.runtime();
    while size < width {
        sort_bitonic(keys, ids, TILE, size, 0);
        size *= 2;
    }
    // Best first below the middle and best last above it: a group and its partner half the length away form a
    // bitonic sequence, whose better halves are again one.
    let mut len = TILE.runtime();
    sort_bitonic(keys, ids, len, width, len / 2);
    while len > width {
        len /= 2;
        let mut i = UNIT_POS;
        while i < len {
            if before(keys, ids, i + len, i) {
                keys[i as usize] = keys[(i + len) as usize];
                ids[i as usize] = ids[(i + len) as usize];
            }
            i += UNITS;
        }
        sync_cube();
        // The last group is sorted best first.
        sort_bitonic(keys, ids, len, width, max(len / 2, width));
    }
}

/// The best `keep` of each span of `span` candidates of a row of `len`; `candidates` holds logits, or (token, logit)
/// pairs.
#[cube(launch_unchecked)]
fn top_k_kernel(
    candidates: &Array<u32>,
    picked: &mut Array<u32>,
    grid: Grid,
    len: u32,
    span: u32,
    width: u32,
    keep: u32,
    #[comptime] pairs: bool,
) {
    if grid.row() >= grid.rows {
        terminate!();
    }
    let mut keys = SharedMemory::<u32>::new(TILE as usize);
    let mut ids = SharedMemory::<u32>::new(TILE as usize);
    let row = grid.row() as usize;
    let mut begin = grid.column() * span;
    let end = min(begin + span, len);
    let first = begin;
    while begin < end {
        let mut slot = UNIT_POS;
        while slot < TILE {
            // The first `width` places keep what earlier tiles left.
            let i = begin + slot - width;
            if slot < width {
                if begin == first {
                    keys[slot as usize] = LOWEST_KEY;
                    ids[slot as usize] = NO_TOKEN;
                }
            } else if i < end {
                let at = row * len as usize + i as usize;
                if comptime!(pairs) {
                    ids[slot as usize] = candidates[2 * at];
                    keys[slot as usize] = order_key(candidates[2 * at + 1]);
                } else {
                    ids[slot as usize] = i;
                    keys[slot as usize] = order_key(candidates[at]);
                }
            } else {
                keys[slot as usize] = LOWEST_KEY;
                ids[slot as usize] = NO_TOKEN;
            }
            slot += UNITS;
        }
        sync_cube();
        top_of_tile(&mut keys, &mut ids, width);
        begin += TILE - width;
    }
    if UNIT_POS < keep {
        // Cubes are numbered row by row.
        let at = 2 * (CUBE_POS * keep as usize + UNIT_POS as usize);
        picked[at] = ids[UNIT_POS as usize];
        picked[at + 1] = key_bits(keys[UNIT_POS as usize]);
    }
}

/// The `k` largest logits of each of the rows of `logits` `[rows, vocab]`: `[rows, k]` pairs of (token, `f32` bits).
///
/// Best first, the lower token among equal logits; NaN before everything, -0 as +0. Where `k` exceeds the vocabulary the
/// rest is ([`NO_TOKEN`], -inf).
///
/// # Panics
/// If `k` is not in `1..=`[`MAX_K`], or `logits` is not a whole number of rows.
pub fn top_k<R: Runtime>(gpu: &Gpu<R>, logits: &Buffer, rows: usize, k: usize) -> Buffer {
    assert!((1..=MAX_K).contains(&k), "the {k} largest logits");
    assert!(rows > 0 && logits.len.is_multiple_of(rows), "{} logits in {rows} rows", logits.len);
    let vocab = logits.len / rows;
    let fresh = TILE as usize - k.next_power_of_two();
    let tiles = vocab.div_ceil(fresh).max(1);
    // Few enough cubes that one tile holds all they keep.
    let tiles_per_cube = tiles.div_ceil(fresh / k);
    let cubes = tiles.div_ceil(tiles_per_cube);
    let picked = launch(gpu, logits, rows, vocab, tiles_per_cube * fresh, k, false);
    if cubes == 1 {
        return picked;
    }
    launch(gpu, &picked, rows, cubes * k, fresh, k, true)
}

fn launch<R: Runtime>(
    gpu: &Gpu<R>,
    candidates: &Buffer,
    rows: usize,
    len: usize,
    span: usize,
    k: usize,
    pairs: bool,
) -> Buffer {
    let cubes = len.div_ceil(span).max(1);
    let grid = Grid::of(cubes, rows);
    let picked = gpu.empty(rows * cubes * k * 2);
    // SAFETY: candidates are read below `len` within their row; every cube writes its own `k` pairs, and `k` is at most
    // the width, so that they exist.
    unsafe {
        top_k_kernel::launch_unchecked::<R>(
            gpu.launch(),
            grid.count(gpu),
            CubeDim { x: UNITS, y: 1, z: 1 },
            candidates.arg(),
            picked.arg(),
            grid.arg(),
            len as u32,
            span as u32,
            k.next_power_of_two() as u32,
            k as u32,
            pairs,
        );
    }
    picked
}

//! Joining what the teams of a cube, and then the splits of a row, have seen: see [`decode`](super::decode).
use super::LOWEST;
use super::decode::{Shape, UNITS};
use super::plan::DECODE_WORDS;
use super::team::{State, unit_word};
use crate::kv::{data_words, per_word};
use cubecl::prelude::*;

/// Units of a cube that joins splits.
pub(super) const JOIN_UNITS: u32 = 64;

/// Joins the teams of the cube and writes their results for each head from `to` on: the quotients, or for a split the
/// largest score, the sum of the weights, and the sums. The quotients of a row that `sees` nothing are zeros.
#[cube]
pub(super) fn join_teams(
    state: &mut State,
    out: &mut Array<f32>,
    to: usize,
    sees: bool,
    #[comptime] is_split: bool,
    #[comptime] shape: Shape,
) {
    let (dim, teams, heads) = comptime!((shape.layout.head_dim, shape.teams(), shape.heads));
    let stride = comptime!(if is_split { dim + 2 } else { dim });
    let mut totals = SharedMemory::<f32>::new(heads);
    share_state(&mut totals, state, shape);
    if comptime!(is_split) && UNIT_POS < comptime!(heads as u32) {
        let h = UNIT_POS as usize;
        out[to + h * stride] = state.peaks[h];
        out[to + h * stride + 1] = totals[h];
    }
    let mut i = UNIT_POS as usize;
    while i < comptime!(heads * dim) {
        let mut sum = f32::new(0.0);
        for team in 0..teams {
            sum += state.scratch[team * comptime!(heads * dim) + i];
        }
        let (h, e) = (i / dim, i % dim);
        if comptime!(is_split) {
            out[to + h * stride + 2 + e] = sum;
        } else {
            out[to + h * stride + e] = select(sees, sum / totals[h], f32::new(0.0));
        }
        i += UNITS;
    }
}

/// Puts what the teams have into shared memory: for each head their largest score (into the first of `peaks`) and the
/// sum of their weights relative to it, and every team's sums likewise.
#[cube]
fn share_state(totals: &mut SharedMemory<f32>, state: &mut State, #[comptime] shape: Shape) {
    let (teams, heads) = comptime!((shape.teams(), shape.heads));
    let team = UNIT_POS as usize / shape.lanes;
    let mut parts = SharedMemory::<f32>::new(comptime!(teams * heads));
    let lane = UNIT_POS as usize % shape.lanes;
    if lane == 0 {
        #[unroll]
        for h in 0..heads {
            state.peaks[team * heads + h] = state.largest[h];
            parts[team * heads + h] = state.total[h];
        }
    }
    sync_cube();
    let h = UNIT_POS as usize;
    if h < heads {
        let mut largest = f32::new(LOWEST);
        for team in 0..teams {
            largest = f32::max(largest, state.peaks[team * heads + h]);
        }
        let mut total = f32::new(0.0);
        for team in 0..teams {
            total += parts[team * heads + h] * f32::exp(state.peaks[team * heads + h] - largest);
        }
        totals[h] = total;
        state.peaks[h] = largest;
    }
    sync_cube();
    share_sums(state, shape);
    sync_cube();
}

/// Puts the unit's sums, relative to the cube's largest scores, into the team's part of the shared memory.
#[cube]
fn share_sums(state: &mut State, #[comptime] shape: Shape) {
    let (dim, words, per_word) =
        comptime!((shape.layout.head_dim, data_words(shape.layout), per_word(shape.layout.ty)));
    let base = UNIT_POS as usize / shape.lanes * comptime!(shape.heads * dim);
    #[unroll]
    for h in 0..shape.heads {
        let factor = f32::exp(state.largest[h] - state.peaks[h]);
        #[unroll]
        for w in 0..comptime!(shape.unit_words()) {
            let to = base + h * dim + unit_word(w, shape) * per_word;
            if comptime!(!shape.overhangs(w)) || unit_word(w, shape) < words {
                share_word(h, w, to, factor, state, shape);
            }
        }
    }
}

/// Puts the elements of word `w` of head `h` into shared memory from `to` on.
#[cube]
fn share_word(
    #[comptime] h: usize,
    #[comptime] w: usize,
    to: usize,
    factor: f32,
    state: &mut State,
    #[comptime] shape: Shape,
) {
    let (per_word, elements) = comptime!((per_word(shape.layout.ty), shape.unit_elements()));
    #[unroll]
    for e in 0..per_word {
        state.scratch[to + e] = state.sums[comptime!(h * elements + w * per_word + e)] * factor;
    }
}

/// One cube per row and head joins the row's splits.
#[cube(launch_unchecked)]
pub(super) fn join_splits_kernel(
    partial: &Array<f32>,
    plan: &Array<u32>,
    out: &mut Array<f32>,
    records: u32,
    first_partial: u32,
    #[comptime] n_heads: usize,
    #[comptime] dim: usize,
) {
    let record = records as usize + CUBE_POS_Y as usize * DECODE_WORDS;
    let entries = plan[record + 2] - plan[record + 1];
    let split_len = plan[record + 4];
    // A row of one split has its result.
    if entries > split_len {
        let splits = entries.div_ceil(split_len) as usize;
        let head = CUBE_POS_X as usize;
        let stride = comptime!(n_heads * (dim + 2));
        let first = (plan[record + 5] - first_partial) as usize * stride + head * comptime!(dim + 2);
        let mut largest = f32::new(LOWEST);
        for split in 0..splits {
            largest = f32::max(largest, partial[first + split * stride]);
        }
        let to = (plan[record] as usize * n_heads + head) * dim;
        let mut i = UNIT_POS as usize;
        while i < dim {
            let (mut sum, mut total) = (f32::new(0.0), f32::new(0.0));
            for split in 0..splits {
                let at = first + split * stride;
                let factor = f32::exp(partial[at] - largest);
                total += partial[at + 1] * factor;
                sum += partial[at + 2 + i] * factor;
            }
            out[to + i] = sum / total;
            i += JOIN_UNITS as usize;
        }
    }
}

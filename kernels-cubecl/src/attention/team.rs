//! Online softmax of a team of units over its entries: see [`decode`](super::decode).
use super::LOWEST;
use super::decode::{BATCH, Shape, UNITS};
use crate::kv::{KvType, data_words, element, per_word, step};
use cubecl::prelude::*;

/// Softmax state of a unit over its team's entries so far.
#[derive(CubeType)]
pub(super) struct State {
    /// `[heads, unit elements]`, scaled.
    pub queries: Array<f32>,
    /// `[heads]`: the largest score, and the sum of the weights relative to it.
    pub largest: Array<f32>,
    pub total: Array<f32>,
    /// `[heads, unit elements]`: the weighted sums of the values.
    pub sums: Array<f32>,
    /// `[BATCH, heads]`: scores, then weights.
    pub weights: Array<f32>,
    pub scratch: SharedMemory<f32>,
    /// `[teams, heads]`: the largest scores of all teams.
    pub peaks: SharedMemory<f32>,
}

#[cube]
impl State {
    pub fn new(#[comptime] shape: Shape) -> Self {
        let elements = comptime!(shape.heads * shape.unit_elements());
        let mut largest = Array::<f32>::new(shape.heads);
        let mut total = Array::<f32>::new(shape.heads);
        let mut sums = Array::<f32>::new(elements);
        #[unroll]
        for h in 0..shape.heads {
            largest[h] = f32::new(LOWEST);
            total[h] = f32::new(0.0);
        }
        #[unroll]
        for i in 0..elements {
            sums[i] = f32::new(0.0);
        }
        State {
            queries: Array::<f32>::new(elements),
            largest,
            total,
            sums,
            weights: Array::<f32>::new(comptime!(BATCH * shape.heads)),
            scratch: SharedMemory::<f32>::new(comptime!(shape.scratch())),
            peaks: SharedMemory::<f32>::new(comptime!(shape.teams() * shape.heads)),
        }
    }
}

/// Word `w` of a unit: its place in the row, or past the end of rows that the team does not divide evenly.
#[cube]
pub(super) fn unit_word(#[comptime] w: usize, #[comptime] shape: Shape) -> usize {
    UNIT_POS as usize % shape.lanes + comptime!(w * shape.lanes)
}

/// [`unit_word`], or the last one instead of one past the end.
#[cube]
fn readable_word(#[comptime] w: usize, #[comptime] shape: Shape) -> usize {
    let word = unit_word(w, shape);
    let last = comptime!(data_words(shape.layout) - 1);
    if comptime!(shape.overhangs(w)) { select(word < last, word, last) } else { word }
}

/// The unit's word `w` of the row of keys at `row`; zero past its end, where the queries are the last word's again.
#[cube]
fn key_word(k: &Array<u32>, row: usize, #[comptime] w: usize, #[comptime] shape: Shape) -> u32 {
    let packed = k[row + readable_word(w, shape)];
    if comptime!(shape.overhangs(w)) {
        select(unit_word(w, shape) < comptime!(data_words(shape.layout)), packed, 0u32)
    } else {
        packed
    }
}

/// The unit's elements of the queries at `base`.
#[cube]
pub(super) fn load_queries(
    q: &Array<f32>,
    base: usize,
    scale: f32,
    state: &mut State,
    #[comptime] shape: Shape,
) {
    let (per_word, elements) = comptime!((per_word(shape.layout.ty), shape.unit_elements()));
    #[unroll]
    for w in 0..comptime!(shape.unit_words()) {
        let from = base + readable_word(w, shape) * per_word;
        #[unroll]
        for h in 0..shape.heads {
            #[unroll]
            for e in 0..per_word {
                let x = q[from + comptime!(h * shape.layout.head_dim + e)];
                state.queries[comptime!(h * elements + w * per_word + e)] = x * scale;
            }
        }
    }
}

/// Takes the entries `first..last` into the state.
#[cube]
pub(super) fn attend(
    k: &Array<u32>,
    v: &Array<u32>,
    plan: &Array<u32>,
    table: usize,
    first: usize,
    last: usize,
    head: usize,
    state: &mut State,
    #[comptime] shape: Shape,
) {
    let (block_len, n_kv_heads) = comptime!((shape.layout.block_len, shape.layout.n_kv_heads));
    let kv_head = head / comptime!(shape.n_heads / shape.layout.n_kv_heads);
    let team = UNIT_POS as usize / shape.lanes;
    let teams = comptime!(shape.teams());
    let rounds = (last - first).div_ceil(comptime!(teams * BATCH));
    for round in 0..rounds {
        let from = first + round * comptime!(teams * BATCH) + team;
        let mut rows = Array::<u32>::new(BATCH);
        #[unroll]
        for b in 0..BATCH {
            let entry = from + b * teams;
            let entry = select(entry < last, entry, last - 1);
            let block = plan[table + entry / block_len] as usize;
            let position = (block * n_kv_heads + kv_head) * block_len + entry % block_len;
            rows[b] = (position * comptime!(shape.layout.row_words())) as u32;
        }
        score(k, &rows, state, shape);
        weigh(from, last, state, shape);
        add_values(v, &rows, state, shape);
    }
}

/// The scaled products of the unit's words of a batch of keys with its queries, summed over the team.
#[cube]
fn score(k: &Array<u32>, rows: &Array<u32>, state: &mut State, #[comptime] shape: Shape) {
    let (per_word, elements) = comptime!((per_word(shape.layout.ty), shape.unit_elements()));
    #[unroll]
    for i in 0..comptime!(BATCH * shape.heads) {
        state.weights[i] = f32::new(0.0);
    }
    #[unroll]
    for b in 0..BATCH {
        let row = rows[b] as usize;
        #[unroll]
        for w in 0..comptime!(shape.unit_words()) {
            let packed = key_word(k, row, w, shape);
            let step = step(k, row, readable_word(w, shape), shape.layout);
            #[unroll]
            for e in 0..per_word {
                let x = scaled(element(packed, e, shape.layout.ty), step, shape.layout.ty);
                #[unroll]
                for h in 0..shape.heads {
                    let i = comptime!(b * shape.heads + h);
                    state.weights[i] =
                        state.weights[i] + state.queries[comptime!(h * elements + w * per_word + e)] * x;
                }
            }
        }
    }
    if comptime!(shape.planes) {
        #[unroll]
        for i in 0..comptime!(BATCH * shape.heads) {
            let mut sum = state.weights[i];
            #[unroll]
            for bit in 0..comptime!(shape.lanes.ilog2()) {
                sum += plane_shuffle_xor(sum, comptime!(1u32 << bit));
            }
            state.weights[i] = sum;
        }
    } else {
        sum_in_shared_memory(state, shape);
    }
}

/// `x` in steps of a q8_0 block.
#[cube]
fn scaled(x: f32, step: f32, #[comptime] ty: KvType) -> f32 {
    if comptime!(ty == KvType::Q8_0) { x * step } else { x }
}

/// Sums each of the units' products over the team: every unit sums its share of them.
#[cube]
fn sum_in_shared_memory(state: &mut State, #[comptime] shape: Shape) {
    let products = comptime!(BATCH * shape.heads);
    let lane = UNIT_POS as usize % shape.lanes;
    let first = UNIT_POS as usize - lane;
    let mut totals = SharedMemory::<f32>::new(comptime!(products * shape.teams()));
    let team = first / shape.lanes * products;
    #[unroll]
    for i in 0..products {
        state.scratch[i * UNITS + UNIT_POS as usize] = state.weights[i];
    }
    sync_cube();
    let mut i = lane;
    while i < products {
        let mut sum = f32::new(0.0);
        for unit in 0..shape.lanes {
            sum += state.scratch[i * UNITS + first + unit];
        }
        totals[team + i] = sum;
        i += shape.lanes;
    }
    sync_cube();
    #[unroll]
    for i in 0..products {
        state.weights[i] = totals[team + i];
    }
}

/// Turns the scores of the team's entries `from, from + teams, …` below `last` into weights relative to the largest so
/// far, and what has been summed along with them.
#[cube]
fn weigh(from: usize, last: usize, state: &mut State, #[comptime] shape: Shape) {
    let elements = comptime!(shape.unit_elements());
    #[unroll]
    for h in 0..shape.heads {
        let before = state.largest[h];
        let mut largest = before;
        #[unroll]
        for b in 0..BATCH {
            let inside = from + comptime!(b * shape.teams()) < last;
            let score = select(inside, state.weights[comptime!(b * shape.heads + h)], f32::new(LOWEST));
            largest = f32::max(largest, score);
        }
        let shrink = f32::exp(before - largest);
        let mut total = state.total[h] * shrink;
        #[unroll]
        for b in 0..BATCH {
            let i = comptime!(b * shape.heads + h);
            let inside = from + comptime!(b * shape.teams()) < last;
            let weight = select(inside, f32::exp(state.weights[i] - largest), f32::new(0.0));
            state.weights[i] = weight;
            total += weight;
        }
        state.largest[h] = largest;
        state.total[h] = total;
        #[unroll]
        for i in 0..elements {
            let at = comptime!(h * elements + i);
            state.sums[at] = state.sums[at] * shrink;
        }
    }
}

/// Adds the unit's words of a batch of values by their weights.
#[cube]
fn add_values(v: &Array<u32>, rows: &Array<u32>, state: &mut State, #[comptime] shape: Shape) {
    let (per_word, elements) = comptime!((per_word(shape.layout.ty), shape.unit_elements()));
    #[unroll]
    for b in 0..BATCH {
        let row = rows[b] as usize;
        #[unroll]
        for w in 0..comptime!(shape.unit_words()) {
            let word = readable_word(w, shape);
            let packed = v[row + word];
            let step = step(v, row, word, shape.layout);
            #[unroll]
            for e in 0..per_word {
                let x = scaled(element(packed, e, shape.layout.ty), step, shape.layout.ty);
                #[unroll]
                for h in 0..shape.heads {
                    let at = comptime!(h * elements + w * per_word + e);
                    state.sums[at] = state.sums[at] + state.weights[comptime!(b * shape.heads + h)] * x;
                }
            }
        }
    }
}

//! Attention of single rows, bound by the bytes of the keys and values they see.
//!
//! Work: one cube of 128 units per split of a row's entries and group of query heads that share a key/value head. A
//! team of neighbouring units takes an entry at a time: each unit holds the words `lane, lane + lanes, …` of a row, so
//! that a team reads it in contiguous pieces, once for all query heads. Dot products meet by plane shuffles, or in
//! shared memory where there are none. Every team runs its own online softmax; the teams of a cube are joined in shared
//! memory, the splits of a row by a second kernel.
//!
//! Moved: the keys and values of each row and head once, and `4 (d + 2)` bytes per split and query head.
use super::plan::{DECODE_WORDS, DecodeRow};
use super::{LOWEST, Problem};
use crate::Gpu;
use crate::kv::{KvLayout, KvType, element, step};
use cubecl::prelude::*;

/// Units of a cube.
const UNITS: usize = 128;
/// Entries whose scores a team computes before it rescales its sums: their loads overlap.
const BATCH: usize = 4;
/// Query heads of a cube at most; a larger group takes several cubes.
const MAX_HEADS: usize = 8;
/// Elements of the queries, and of the sums, that a unit holds in registers: teams grow up to the width of a plane to
/// keep to it, then cubes take fewer heads. The sums of a cube meet in 16 KiB of shared memory.
const UNIT_ELEMENTS: usize = 32;
/// Bytes of the splits' results of one launch at most; the rows of larger steps take several.
const MAX_PARTIAL_BYTES: usize = 64 << 20;
/// Units of a cube that joins splits.
const JOIN_UNITS: u32 = 64;

/// What [`decode_kernel`] is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Shape {
    layout: KvLayout,
    n_heads: usize,
    /// Query heads of a cube.
    heads: usize,
    /// Units of a team.
    lanes: usize,
    /// Whether dot products meet by plane shuffles.
    planes: bool,
}

impl Shape {
    fn new(layout: KvLayout, n_heads: usize, plane: Option<u32>) -> Self {
        let (group, dim) = (n_heads / layout.n_kv_heads, layout.head_dim);
        let widest = plane.map_or(8, |plane| plane as usize).min(UNITS);
        let fits = |heads: &usize| group.is_multiple_of(*heads) && heads * dim <= widest * UNIT_ELEMENTS;
        let heads = (1..=MAX_HEADS).rev().find(fits).unwrap_or(1);
        let mut lanes = widest.min(8);
        while lanes < widest && heads * dim > lanes * UNIT_ELEMENTS {
            lanes *= 2;
        }
        Self { layout, n_heads, heads, lanes, planes: plane.is_some() }
    }

    fn teams(&self) -> usize {
        UNITS / self.lanes
    }

    /// Words of a row that a unit reads; the last may lie past the end.
    fn unit_words(&self) -> usize {
        self.layout.data_words().div_ceil(self.lanes)
    }

    fn unit_elements(&self) -> usize {
        self.unit_words() * self.layout.ty.per_word()
    }

    /// Words of shared memory in which dot products, and later the teams' sums, meet.
    fn scratch(&self) -> usize {
        let products = if self.planes { 0 } else { BATCH * self.heads * UNITS };
        products.max(self.teams() * self.heads * self.layout.head_dim)
    }
}

#[cube(launch_unchecked)]
fn decode_kernel(
    q: &Array<f32>,
    k: &Array<u32>,
    v: &Array<u32>,
    plan: &Array<u32>,
    out: &mut Array<f32>,
    partial: &mut Array<f32>,
    records: u32,
    first_partial: u32,
    scale: f32,
    #[comptime] shape: Shape,
) {
    let record = records as usize + CUBE_POS_Z as usize * DECODE_WORDS;
    let row = plan[record] as usize;
    let start = plan[record + 1] as usize;
    let end = plan[record + 2] as usize;
    let split_len = plan[record + 4] as usize;
    let split = CUBE_POS_X as usize;
    let first = start + split * split_len;
    // The first split of a row that sees nothing has its zeros to write.
    if first < end || split == 0 {
        let head = CUBE_POS_Y as usize * shape.heads;
        let last = select(first + split_len < end, first + split_len, end);
        let mut state = State::new(shape);
        load_queries(q, (row * shape.n_heads + head) * shape.layout.head_dim, scale, &mut state, shape);
        attend(k, v, plan, plan[record + 3] as usize, first, last, head, &mut state, shape);
        if end - start > split_len {
            let number = plan[record + 5] as usize - first_partial as usize + split;
            let to = (number * shape.n_heads + head) * comptime!(shape.layout.head_dim + 2);
            join_teams(&mut state, partial, to, true, shape);
        } else {
            join_teams(&mut state, out, (row * shape.n_heads + head) * shape.layout.head_dim, false, shape);
        }
    }
}

/// What a unit knows of its team's entries so far.
#[derive(CubeType)]
struct State {
    /// `[heads, unit elements]`, scaled.
    queries: Array<f32>,
    /// `[heads]`: the largest score, and the sum of the weights relative to it.
    largest: Array<f32>,
    total: Array<f32>,
    /// `[heads, unit elements]`: the weighted sums of the values.
    sums: Array<f32>,
    /// `[BATCH, heads]`: scores, then weights.
    weights: Array<f32>,
    scratch: SharedMemory<f32>,
    /// `[teams, heads]`: the largest scores of all teams.
    peaks: SharedMemory<f32>,
}

#[cube]
impl State {
    fn new(#[comptime] shape: Shape) -> Self {
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
fn unit_word(#[comptime] w: usize, #[comptime] shape: Shape) -> usize {
    UNIT_POS as usize % shape.lanes + comptime!(w * shape.lanes)
}

/// Whether word `w` of some unit lies past the end of a row.
fn overhangs(w: usize, shape: Shape) -> bool {
    (w + 1) * shape.lanes > shape.layout.data_words()
}

/// [`unit_word`], or the last one instead of one past the end.
#[cube]
fn readable_word(#[comptime] w: usize, #[comptime] shape: Shape) -> usize {
    let word = unit_word(w, shape);
    let last = comptime!(shape.layout.data_words() - 1);
    if comptime!(overhangs(w, shape)) { select(word < last, word, last) } else { word }
}

/// The unit's elements of the queries at `base`; zero past the end of a row, so that what it reads there counts nothing.
#[cube]
fn load_queries(q: &Array<f32>, base: usize, scale: f32, state: &mut State, #[comptime] shape: Shape) {
    let (per_word, elements) = comptime!((shape.layout.ty.per_word(), shape.unit_elements()));
    #[unroll]
    for w in 0..comptime!(shape.unit_words()) {
        let from = base + readable_word(w, shape) * per_word;
        let mut factor = scale;
        if comptime!(overhangs(w, shape)) {
            factor = select(unit_word(w, shape) < comptime!(shape.layout.data_words()), scale, f32::new(0.0));
        }
        #[unroll]
        for h in 0..shape.heads {
            #[unroll]
            for e in 0..per_word {
                let x = q[from + comptime!(h * shape.layout.head_dim + e)];
                state.queries[comptime!(h * elements + w * per_word + e)] = x * factor;
            }
        }
    }
}

/// Takes the entries `first..last` into the state.
#[cube]
fn attend(
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
    let (per_word, elements) = comptime!((shape.layout.ty.per_word(), shape.unit_elements()));
    #[unroll]
    for i in 0..comptime!(BATCH * shape.heads) {
        state.weights[i] = f32::new(0.0);
    }
    #[unroll]
    for b in 0..BATCH {
        let row = rows[b] as usize;
        #[unroll]
        for w in 0..comptime!(shape.unit_words()) {
            let word = readable_word(w, shape);
            let packed = k[row + word];
            let step = step(k, row, word, shape.layout);
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
    let (per_word, elements) = comptime!((shape.layout.ty.per_word(), shape.unit_elements()));
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

/// Joins the teams of the cube and writes their results for each head from `to` on: the quotients, or for a split the
/// largest score, the sum of the weights, and the sums.
#[cube]
fn join_teams(
    state: &mut State,
    out: &mut Array<f32>,
    to: usize,
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
            out[to + h * stride + e] = quotient(sum, totals[h]);
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
    if UNIT_POS as usize % shape.lanes == 0 {
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
        comptime!((shape.layout.head_dim, shape.layout.data_words(), shape.layout.ty.per_word()));
    let base = UNIT_POS as usize / shape.lanes * comptime!(shape.heads * dim);
    #[unroll]
    for h in 0..shape.heads {
        let factor = f32::exp(state.largest[h] - state.peaks[h]);
        #[unroll]
        for w in 0..comptime!(shape.unit_words()) {
            let to = base + h * dim + unit_word(w, shape) * per_word;
            if comptime!(!overhangs(w, shape)) {
                share_word(h, w, to, factor, state, shape);
            } else if unit_word(w, shape) < words {
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
    let (per_word, elements) = comptime!((shape.layout.ty.per_word(), shape.unit_elements()));
    #[unroll]
    for e in 0..per_word {
        state.scratch[to + e] = state.sums[comptime!(h * elements + w * per_word + e)] * factor;
    }
}

/// Zero where nothing has been seen.
#[cube]
pub(super) fn quotient(sum: f32, total: f32) -> f32 {
    select(total > f32::new(0.0), sum / total, f32::new(0.0))
}

/// One cube per row and head joins the row's splits.
#[cube(launch_unchecked)]
fn join_splits_kernel(
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
            out[to + i] = quotient(sum, total);
            i += JOIN_UNITS as usize;
        }
    }
}

/// Attention of the plan's decode rows.
pub(super) fn launch<R: Runtime>(gpu: &Gpu<R>, problem: &Problem) {
    let row_words = problem.n_heads * (problem.pages.layout.head_dim + 2);
    let limit = (MAX_PARTIAL_BYTES as u64).min(gpu.caps().max_buffer) as usize / 4 / row_words;
    let rows = &problem.plan.decode;
    let mut start = 0;
    while start < rows.len() {
        // As many rows as the results of their splits fit for; 32768 is within every device's grid.
        let mut partials = 0;
        let fitting = rows[start..].iter().take(32_768).take_while(|row| {
            partials += if row.splits > 1 { row.splits } else { 0 };
            partials <= limit
        });
        let end = start + fitting.count().max(1);
        launch_rows(gpu, problem, &rows[start..end], start);
        start = end;
    }
}

fn launch_rows<R: Runtime>(gpu: &Gpu<R>, problem: &Problem, rows: &[DecodeRow], start: usize) {
    let &Problem { q, pages, plan, scale, n_heads, out } = problem;
    let shape = Shape::new(pages.layout, n_heads, gpu.caps().plane);
    let partials: usize = rows.iter().map(|row| if row.splits > 1 { row.splits } else { 0 }).sum();
    let splits = rows.iter().map(|row| row.splits).max().unwrap_or(1).max(1);
    let dim = pages.layout.head_dim;
    let partial = gpu.empty((partials * n_heads * (dim + 2)).max(1));
    let records = (plan.decode_start + start * DECODE_WORDS) as u32;
    let first_partial = rows[0].first_partial as u32;
    // SAFETY: rows, entries and blocks lie within the buffers: `Plan::new` and `paged_attention` have checked them. A
    // unit's words stay within a row, and a row's splits within the partial results counted here.
    unsafe {
        decode_kernel::launch_unchecked::<R>(
            gpu.launch(),
            CubeCount::Static(splits as u32, (n_heads / shape.heads) as u32, rows.len() as u32),
            CubeDim { x: UNITS as u32, y: 1, z: 1 },
            q.arg(),
            pages.k.arg(),
            pages.v.arg(),
            plan.words.arg(),
            out.arg(),
            partial.arg(),
            records,
            first_partial,
            scale,
            shape,
        );
        if partials > 0 {
            join_splits_kernel::launch_unchecked::<R>(
                gpu.launch(),
                CubeCount::Static(n_heads as u32, rows.len() as u32, 1),
                CubeDim { x: JOIN_UNITS, y: 1, z: 1 },
                partial.arg(),
                plan.words.arg(),
                out.arg(),
                records,
                first_partial,
                n_heads,
                dim,
            );
        }
    }
}

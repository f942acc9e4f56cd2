//! Attention of single rows, bound by the bytes of the keys and values they see.
//!
//! Work: one cube of 128 units per split of a row's entries and group of query heads that share a key/value head. A
//! team of neighbouring units takes an entry at a time: each unit holds the words `lane, lane + lanes, …` of a row, so
//! that a team reads it in contiguous pieces, once for all query heads. Dot products meet by plane shuffles, or in
//! shared memory where there are none. Every team runs its own online softmax; the teams of a cube are joined in shared
//! memory, the splits of a row by a second kernel.
//!
//! Moved: the keys and values of each row and head once, and `4 (d + 2)` bytes per split and query head.
use super::Problem;
use super::join::{JOIN_UNITS, join_splits_kernel, join_teams};
use super::plan::{DECODE_WORDS, DecodeRow};
use super::team::{State, attend, load_queries};
use crate::Gpu;
use crate::grid::MAX_CUBES;
use crate::kv::{KvLayout, data_words, per_word};
use cubecl::prelude::*;

/// Units of a cube.
pub(super) const UNITS: usize = 128;
/// Entries whose scores a team computes before it rescales its sums: their loads overlap.
pub(super) const BATCH: usize = 4;
/// Query heads of a cube at most; a larger group takes several cubes.
const MAX_HEADS: usize = 8;
/// Elements of the queries, and of the sums, that a unit holds in registers: teams grow up to the width of a plane to
/// keep to it, then cubes take fewer heads. The sums of a cube meet in 16 KiB of shared memory.
const UNIT_ELEMENTS: usize = 32;
/// Bytes of the splits' results of one launch at most; the rows of larger steps take several.
const MAX_PARTIAL_BYTES: usize = 64 << 20;

/// The variant of [`decode_kernel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    pub layout: KvLayout,
    pub n_heads: usize,
    /// Query heads of a cube.
    pub heads: usize,
    /// Units of a team.
    pub lanes: usize,
    /// True if dot products meet by plane shuffles.
    pub planes: bool,
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

    pub fn teams(&self) -> usize {
        UNITS / self.lanes
    }

    /// Words of a row that a unit reads; the last may lie past the end.
    pub fn unit_words(&self) -> usize {
        data_words(self.layout).div_ceil(self.lanes)
    }

    /// True if word `w` of some unit lies past the end of a row.
    pub fn overhangs(&self, w: usize) -> bool {
        (w + 1) * self.lanes > data_words(self.layout)
    }

    pub fn unit_elements(&self) -> usize {
        self.unit_words() * per_word(self.layout.ty)
    }

    /// Words of shared memory in which dot products, and later the teams' sums, meet.
    pub fn scratch(&self) -> usize {
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
            join_teams(&mut state, partial, to, true, true, shape);
        } else {
            let to = (row * shape.n_heads + head) * shape.layout.head_dim;
            join_teams(&mut state, out, to, start < end, false, shape);
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
        // As many rows as the results of their splits fit for, within a device's grid.
        let mut partials = 0;
        let fitting = rows[start..].iter().take(MAX_CUBES).take_while(|row| {
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

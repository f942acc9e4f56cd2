//! Attention of long runs of rows, bound by arithmetic.
//!
//! Work: one cube of 128 units per tile of up to 16 rows of a sequence and one, two or four query heads that share a
//! key/value head; "queries" are all pairs of such a row and head, head after head. The queries stay in shared memory;
//! the keys of a strip of 4 to 16 entries come there as f32, then its values in their place. Each unit computes a few
//! scores of a strip, and a block of the weighted sums: four elements for a share of the queries. The softmax runs
//! online, strip after strip, over the entries that any row of the tile sees. Strips that not every row sees all of, a few
//! at the edges, are masked row by row.
//!
//! Vectors of four elements keep shared memory from being the bottleneck; rows of them have an odd length, so that
//! neighbouring rows meet in different banks.
//!
//! Moved: per tile and cube its queries and results once, and the keys and values its rows see.
use super::plan::{TILE_ROWS, TILE_WORDS};
use super::tile::{Shape, Tile, UNITS, Vec4};
use super::{LOWEST, Problem};
use crate::Gpu;
use crate::grid::MAX_CUBES;
use crate::kv::{data_words, element, per_word, step};
use cubecl::prelude::*;

/// The weight of an entry that a row does not see: none that it sees has it, not even NaN.
const HIDDEN: f32 = -1.0;

#[cube(launch_unchecked)]
fn prefill_kernel(
    q: &Array<f32>,
    k: &Array<u32>,
    v: &Array<u32>,
    plan: &Array<u32>,
    out: &mut Array<f32>,
    records: u32,
    scale: f32,
    #[comptime] shape: Shape,
) {
    let record = records as usize + CUBE_POS_X as usize * TILE_WORDS;
    let skipped = CUBE_POS_Z as usize * shape.rows;
    let tile_rows = plan[record + 1] as usize;
    if skipped < tile_rows {
        let first_row = plan[record] as usize + skipped;
        let last_row = plan[record] as usize + tile_rows - 1;
        let end = plan[record + 3] as usize;
        let table = plan[record + 6] as usize;
        let head = CUBE_POS_Y as usize * shape.heads;
        let mut tile = Tile::new(shape);
        let mut sums = Array::<Vec4>::new(comptime!(shape.unit_sums()));
        #[unroll]
        for i in 0..comptime!(shape.unit_sums()) {
            sums[i] = Vec4::new(f32::new(0.0));
        }
        load_queries(q, first_row, last_row, head, scale, &mut tile, shape);
        // A tile that sees nothing has no strip to wait in before its totals are read.
        sync_cube();

        let mut from = plan[record + 2] as usize;
        while from < end {
            // Every row sees all of the strip.
            let whole = from >= plan[record + 4] as usize && from + shape.strip <= plan[record + 5] as usize;
            stage(k, plan, table, from, end, head, &mut tile, shape);
            sync_cube();
            score(&mut tile, shape);
            sync_cube();
            stage(v, plan, table, from, end, head, &mut tile, shape);
            weigh(plan, first_row, last_row, from, whole, &mut tile, shape);
            sync_cube();
            if whole {
                add_values(&tile, &mut sums, false, shape);
            } else {
                add_values(&tile, &mut sums, true, shape);
            }
            sync_cube();
            from += shape.strip;
        }
        write(plan, &tile, &sums, out, first_row, last_row, head, shape);
    }
}

/// Row of query `query`: one past the last repeats the last.
#[cube]
fn row_of(query: usize, first_row: usize, last_row: usize, #[comptime] shape: Shape) -> usize {
    let row = first_row + query % shape.rows;
    select(row < last_row, row, last_row)
}

#[cube]
fn load_queries(
    q: &Array<f32>,
    first_row: usize,
    last_row: usize,
    head: usize,
    scale: f32,
    tile: &mut Tile,
    #[comptime] shape: Shape,
) {
    let (dim, vectors) = comptime!((shape.layout.head_dim, shape.vectors()));
    let mut i = UNIT_POS as usize;
    while i < comptime!(shape.queries() * vectors) {
        let (query, vector) = (i / vectors, i % vectors);
        let row = row_of(query, first_row, last_row, shape);
        let base = (row * shape.n_heads + head + query / shape.rows) * dim;
        let mut x = Vec4::empty();
        #[unroll]
        for e in 0..4usize {
            x[e] = f32::new(0.0);
            let element = 4 * vector + e;
            if element < dim {
                x[e] = q[base + element] * scale;
            }
        }
        tile.queries[query * comptime!(shape.stride()) + vector] = x;
        i += UNITS;
    }
    let mut query = UNIT_POS as usize;
    while query < comptime!(shape.queries()) {
        tile.largest[query] = f32::new(LOWEST);
        tile.total[query] = f32::new(0.0);
        query += UNITS;
    }
}

/// Brings the entries of a strip from their pages into shared memory; zeros for those from `end` on.
#[cube]
fn stage(
    pages: &Array<u32>,
    plan: &Array<u32>,
    table: usize,
    from: usize,
    end: usize,
    head: usize,
    tile: &mut Tile,
    #[comptime] shape: Shape,
) {
    let (block_len, n_kv_heads) = comptime!((shape.layout.block_len, shape.layout.n_kv_heads));
    let (vectors, per_word) = comptime!((shape.vectors(), per_word(shape.layout.ty)));
    let kv_head = head / comptime!(shape.n_heads / n_kv_heads);
    let mut i = UNIT_POS as usize;
    while i < comptime!(shape.strip * vectors) {
        let (slot, vector) = (i / vectors, i % vectors);
        let entry = from + slot;
        let mut x = Vec4::new(f32::new(0.0));
        if entry < end {
            let block = plan[table + entry / block_len] as usize;
            let position = (block * n_kv_heads + kv_head) * block_len + entry % block_len;
            let row = position * comptime!(shape.layout.row_words());
            #[unroll]
            for w in 0..comptime!(4 / per_word) {
                let word = vector * comptime!(4 / per_word) + w;
                if word < comptime!(data_words(shape.layout)) {
                    let packed = pages[row + word];
                    let step = step(pages, row, word, shape.layout);
                    #[unroll]
                    for e in 0..per_word {
                        x[comptime!(w * per_word + e)] = element(packed, e, shape.layout.ty) * step;
                    }
                }
            }
        }
        tile.entries[slot * comptime!(shape.stride()) + vector] = x;
        i += UNITS;
    }
}

/// The unit's scores of a strip: the queries `y, y + score_rows, …` times the entries `x, x + score_columns, …`.
#[cube]
fn score(tile: &mut Tile, #[comptime] shape: Shape) {
    let (columns, stride) = comptime!((shape.score_columns(), shape.stride()));
    let (rows_of_unit, columns_of_unit) = comptime!((shape.unit_scores(), shape.strip / columns));
    let x = UNIT_POS as usize % columns;
    let y = UNIT_POS as usize / columns;
    let mut sums = Array::<Vec4>::new(comptime!(rows_of_unit * columns_of_unit));
    #[unroll]
    for i in 0..comptime!(rows_of_unit * columns_of_unit) {
        sums[i] = Vec4::new(f32::new(0.0));
    }
    for vector in 0..comptime!(shape.vectors()) {
        let mut keys = Array::<Vec4>::new(columns_of_unit);
        #[unroll]
        for c in 0..columns_of_unit {
            keys[c] = tile.entries[(x + comptime!(c * columns)) * stride + vector];
        }
        #[unroll]
        for r in 0..rows_of_unit {
            let query = tile.queries[unit_query(r, y, shape.score_rows(), shape) * stride + vector];
            #[unroll]
            for c in 0..columns_of_unit {
                let i = comptime!(r * columns_of_unit + c);
                sums[i] = fma(query, keys[c], sums[i]);
            }
        }
    }
    #[unroll]
    for r in 0..rows_of_unit {
        let query = unit_query(r, y, shape.score_rows(), shape);
        let own = y + comptime!(r * shape.score_rows()) < comptime!(shape.queries());
        #[unroll]
        for c in 0..columns_of_unit {
            let sum = sums[comptime!(r * columns_of_unit + c)];
            let slot = x + comptime!(c * columns);
            // A query that is repeated is written by one unit only.
            if own {
                tile.weights[query * shape.strip + slot] = sum[0] + sum[1] + (sum[2] + sum[3]);
            }
        }
    }
}

/// The `i`th of a unit's queries `y, y + rows, …`: one past the last repeats the last.
#[cube]
fn unit_query(#[comptime] i: usize, y: usize, #[comptime] rows: usize, #[comptime] shape: Shape) -> usize {
    let (query, last) = (y + comptime!(i * rows), comptime!(shape.queries() - 1));
    if comptime!((i + 1) * rows > shape.queries()) { select(query < last, query, last) } else { query }
}

/// Turns the scores of the strip at `from` into weights, a query per unit.
#[cube]
fn weigh(
    plan: &Array<u32>,
    first_row: usize,
    last_row: usize,
    from: usize,
    whole: bool,
    tile: &mut Tile,
    #[comptime] shape: Shape,
) {
    let query = UNIT_POS as usize;
    if query < comptime!(shape.queries()) {
        let (mut seen_from, mut seen_to) = (from, from + shape.strip);
        if !whole {
            let row = row_of(query, first_row, last_row, shape);
            seen_from = plan[2 * row] as usize;
            seen_to = plan[2 * row + 1] as usize;
        }
        let before = tile.largest[query];
        let mut largest = before;
        for slot in 0..shape.strip {
            let seen = from + slot >= seen_from && from + slot < seen_to;
            let score = tile.weights[query * shape.strip + slot];
            largest = f32::max(largest, select(seen, score, f32::new(LOWEST)));
        }
        let shrink = f32::exp(before - largest);
        let mut total = tile.total[query] * shrink;
        for slot in 0..shape.strip {
            let at = query * shape.strip + slot;
            let seen = from + slot >= seen_from && from + slot < seen_to;
            let weight = f32::exp(tile.weights[at] - largest);
            tile.weights[at] = select(seen, weight, f32::new(HIDDEN));
            total += select(seen, weight, f32::new(0.0));
        }
        tile.largest[query] = largest;
        tile.total[query] = total;
        tile.shrink[query] = shrink;
    }
}

/// Adds the values of a strip, `masked` or not, to the unit's sums: four elements of the queries `y, y + sum_rows, …`.
#[cube]
fn add_values(tile: &Tile, sums: &mut Array<Vec4>, #[comptime] masked: bool, #[comptime] shape: Shape) {
    let vector = UNIT_POS as usize % comptime!(shape.vectors());
    let y = UNIT_POS as usize / comptime!(shape.vectors());
    #[unroll]
    for i in 0..comptime!(shape.unit_sums()) {
        let query = unit_query(i, y, shape.sum_rows(), shape);
        sums[i] = sums[i] * Vec4::new(tile.shrink[query]);
    }
    for slot in 0..shape.strip {
        let value = tile.entries[slot * comptime!(shape.stride()) + vector];
        #[unroll]
        for i in 0..comptime!(shape.unit_sums()) {
            let weight = tile.weights[unit_query(i, y, shape.sum_rows(), shape) * shape.strip + slot];
            if comptime!(!masked) || u32::reinterpret(weight) != HIDDEN.to_bits() {
                sums[i] = fma(value, Vec4::new(weight), sums[i]);
            }
        }
    }
}

/// Writes the unit's sums over the totals of their queries; zeros for rows that see nothing.
#[cube]
fn write(
    plan: &Array<u32>,
    tile: &Tile,
    sums: &Array<Vec4>,
    out: &mut Array<f32>,
    first_row: usize,
    last_row: usize,
    head: usize,
    #[comptime] shape: Shape,
) {
    let dim = comptime!(shape.layout.head_dim);
    let vector = UNIT_POS as usize % comptime!(shape.vectors());
    let y = UNIT_POS as usize / comptime!(shape.vectors());
    #[unroll]
    for i in 0..comptime!(shape.unit_sums()) {
        let query = y + comptime!(i * shape.sum_rows());
        let row = first_row + query % shape.rows;
        // Units past the last vector, queries past the last, rows past the tile's.
        if y < comptime!(shape.sum_rows()) && query < comptime!(shape.queries()) && row <= last_row {
            let total = tile.total[query];
            let sees = plan[2 * row] < plan[2 * row + 1];
            let base = (row * shape.n_heads + head + query / shape.rows) * dim + 4 * vector;
            #[unroll]
            for e in 0..4usize {
                if 4 * vector + e < dim {
                    out[base + e] = select(sees, sums[i][e] / total, f32::new(0.0));
                }
            }
        }
    }
}

/// Attention of the plan's tiles.
pub(super) fn launch<R: Runtime>(gpu: &Gpu<R>, problem: &Problem) {
    let &Problem { pages, plan, n_heads, .. } = problem;
    let shape = Shape::new(pages.layout, n_heads, gpu.caps().shared_memory);
    for start in (0..plan.tiles).step_by(MAX_CUBES) {
        launch_tiles(gpu, problem, shape, start, MAX_CUBES.min(plan.tiles - start));
    }
}

/// Attention of `tiles` tiles from number `start` on.
fn launch_tiles<R: Runtime>(gpu: &Gpu<R>, problem: &Problem, shape: Shape, start: usize, tiles: usize) {
    let &Problem { q, pages, plan, scale, n_heads, out } = problem;
    let parts = TILE_ROWS / shape.rows;
    // SAFETY: rows, entries and blocks lie within the buffers: `Plan::new` and `paged_attention` have checked them. A
    // unit's queries, entries and vectors stay within shared memory, and it writes none past the tile.
    unsafe {
        prefill_kernel::launch_unchecked::<R>(
            gpu.launch(),
            CubeCount::Static(tiles as u32, (n_heads / shape.heads) as u32, parts as u32),
            CubeDim { x: UNITS as u32, y: 1, z: 1 },
            q.arg(),
            pages.k.arg(),
            pages.v.arg(),
            plan.words.arg(),
            out.arg(),
            (plan.tiles_start + start * TILE_WORDS) as u32,
            scale,
            shape,
        );
    }
}

//! Rotary position embedding, and all that lies between the query/key/value product and attention.
//!
//! A pair `(a, b)` of a head's first `rotated` elements becomes `(a cos - b sin, a sin + b cos)`; the rest pass
//! through. Before, Qwen3 normalises each query and key head: `x / sqrt(mean(x²) + eps) * w`. After, Mistral 3 scales
//! queries by a factor of their row.
//!
//! Work: one cube of 64 units per row and head (of queries, keys and values), which holds the head in shared memory:
//! every element is read once and written once, keys and values straight into their pages.
use crate::grid::Grid;
use crate::kv::{KvLayout, KvPages, store_row};
use crate::norm::cube_sum;
use crate::{Buffer, Gpu, GpuError};
use cubecl::prelude::*;
pub use ember_formats::Pairing;

/// Slots, query factors and angles of the rows of a step, the same for all layers: one upload.
#[derive(Clone, Debug)]
pub struct RowTable {
    /// Per row: slot, factor of the queries, cosines, sines.
    words: Buffer,
    rotated: usize,
    rows: usize,
    slots: usize,
}

impl RowTable {
    /// Uploads the angles `cos` and `sin` `[rows, rotated / 2]`, the slots of the rows (block number times block length
    /// plus position in the block), and the factors of their queries.
    ///
    /// # Errors
    /// [`GpuError::Invalid`] when the lengths do not fit together, [`GpuError::TooLarge`].
    pub fn new<R: Runtime>(
        gpu: &Gpu<R>,
        cos: &[f32],
        sin: &[f32],
        slots: &[u32],
        query_scale: Option<&[f32]>,
    ) -> Result<Self, GpuError> {
        let rows = slots.len();
        let half = cos.len() / rows.max(1);
        let scales = query_scale.map_or(rows, <[f32]>::len);
        if cos.len() != rows * half || sin.len() != cos.len() || scales != rows {
            let message =
                format!("{} cosines, {} sines and {scales} factors for {rows} rows", cos.len(), sin.len());
            return Err(GpuError::Invalid(message));
        }
        let mut words = Vec::with_capacity(rows * (2 + 2 * half));
        for (row, &slot) in slots.iter().enumerate() {
            let angles = row * half..(row + 1) * half;
            words.extend([slot, query_scale.map_or(1.0, |scale| scale[row]).to_bits()]);
            words.extend(cos[angles.clone()].iter().chain(&sin[angles]).map(|x| x.to_bits()));
        }
        let slots = slots.iter().max().map_or(0, |&slot| slot as usize + 1);
        Ok(Self { words: gpu.upload("the row table", &words)?, rotated: 2 * half, rows, slots })
    }
}

/// The products of a layer's query, key and value matrices.
#[derive(Clone, Copy, Debug)]
pub struct HeadInput<'a> {
    /// `[t, h, d]`.
    pub q: &'a Buffer,
    /// `[t, g, d]`.
    pub k: &'a Buffer,
    /// `[t, g, d]`.
    pub v: &'a Buffer,
    /// RMSNorm of single heads: weights of the queries and of the keys, `[d]` each, and epsilon.
    pub norms: Option<(&'a Buffer, &'a Buffer, f32)>,
    /// Pairs of elements that are rotated together.
    pub pairing: Pairing,
}

/// Units of a cube.
const UNITS: u32 = 64;

/// The variant of [`heads_kernel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Shape {
    layout: KvLayout,
    n_heads: usize,
    rotated: usize,
    pairing: Pairing,
    norms: bool,
}

#[cube(launch_unchecked)]
fn heads_kernel(
    q: &Array<f32>,
    k: &Array<f32>,
    v: &Array<f32>,
    table: &Array<u32>,
    q_norm: &Array<f32>,
    k_norm: &Array<f32>,
    rotated_q: &mut Array<f32>,
    pool: &mut Array<u32>,
    grid: Grid,
    v_start: u32,
    eps: f32,
    #[comptime] shape: Shape,
) {
    if grid.row() >= grid.rows {
        terminate!();
    }
    let dim = comptime!(shape.layout.head_dim);
    let (n_heads, n_kv_heads) = comptime!((shape.n_heads, shape.layout.n_kv_heads));
    let row = grid.row() as usize;
    let part_head = grid.column() as usize;
    let record = row * comptime!(2 + shape.rotated);
    let mut head = SharedMemory::<f32>::new(dim);

    if part_head < n_heads {
        let base = (row * n_heads + part_head) * dim;
        load_head(q, base, q_norm, eps, &mut head, shape);
        rotate_head(table, record + 2, &mut head, shape);
        let scale = f32::reinterpret(table[record + 1]);
        let mut i = UNIT_POS as usize;
        while i < dim {
            rotated_q[base + i] = head[i] * scale;
            i += comptime!(UNITS as usize);
        }
    } else {
        let mut kv_head = part_head - n_heads;
        let mut start = 0;
        if kv_head < n_kv_heads {
            load_head(k, (row * n_kv_heads + kv_head) * dim, k_norm, eps, &mut head, shape);
            rotate_head(table, record + 2, &mut head, shape);
        } else {
            kv_head -= n_kv_heads;
            start = v_start as usize;
            let unnormed = comptime!(Shape { norms: false, ..shape });
            load_head(v, (row * n_kv_heads + kv_head) * dim, k_norm, eps, &mut head, unnormed);
        }
        let slot = table[record] as usize;
        let block_len = comptime!(shape.layout.block_len);
        let position = (slot / block_len * n_kv_heads + kv_head) * block_len + slot % block_len;
        let to = start + position * comptime!(shape.layout.row_words());
        store_row(&head, pool, to, shape.layout, comptime!(UNITS as usize));
    }
}

/// Reads the head at `base` into shared memory, normalised where the model does that.
#[cube]
fn load_head(
    x: &Array<f32>,
    base: usize,
    weight: &Array<f32>,
    eps: f32,
    head: &mut SharedMemory<f32>,
    #[comptime] shape: Shape,
) {
    let dim = comptime!(shape.layout.head_dim);
    let mut squares = f32::new(0.0);
    let mut i = UNIT_POS as usize;
    while i < dim {
        let value = x[base + i];
        head[i] = value;
        squares += value * value;
        i += comptime!(UNITS as usize);
    }
    if comptime!(shape.norms) {
        let mut partial = SharedMemory::<f32>::new(comptime!(UNITS as usize));
        let total = cube_sum(squares, &mut partial, UNITS);
        let scale = f32::new(1.0) / f32::sqrt(total / f32::cast_from(dim as u32) + eps);
        let mut i = UNIT_POS as usize;
        while i < dim {
            // Each unit reads back only what it wrote itself.
            head[i] = head[i] * scale * weight[i];
            i += comptime!(UNITS as usize);
        }
    }
    sync_cube();
}

/// Rotates the head in shared memory by the cosines, then sines, that start at `angles`.
#[cube]
fn rotate_head(table: &Array<u32>, angles: usize, head: &mut SharedMemory<f32>, #[comptime] shape: Shape) {
    let half = comptime!(shape.rotated / 2);
    let mut pair = UNIT_POS as usize;
    while pair < half {
        let cos = f32::reinterpret(table[angles + pair]);
        let sin = f32::reinterpret(table[angles + half + pair]);
        let (first, second) = pair_elements(pair, half, shape.pairing);
        let (a, b) = (head[first], head[second]);
        head[first] = a * cos - b * sin;
        head[second] = a * sin + b * cos;
        pair += comptime!(UNITS as usize);
    }
    sync_cube();
}

/// The two elements of a pair.
#[cube]
fn pair_elements(pair: usize, #[comptime] half: usize, #[comptime] pairing: Pairing) -> (usize, usize) {
    if comptime!(pairing == Pairing::Half) { (pair, pair + half) } else { (2 * pair, 2 * pair + 1) }
}

/// Normalises (where the model does), rotates and scales the queries, and returns them `[t, h, d]`; normalises and
/// rotates the keys and writes them, and the values, into the slots of their rows.
///
/// # Panics
/// If the sizes do not fit together, a slot lies outside of the pages, or the pages are those of
/// [`KvPages::dense`].
pub fn rotate_and_write<R: Runtime>(
    gpu: &Gpu<R>,
    input: &HeadInput,
    table: &RowTable,
    pages: &KvPages,
) -> Buffer {
    let layout = pages.layout;
    let (dim, n_kv_heads) = (layout.head_dim, layout.n_kv_heads);
    let n_heads = input.q.len / (table.rows * dim).max(1);
    let (pool, v_start) = pages.pool.as_ref().expect("pages that are written have been allocated as pages");
    assert!(
        table.rotated <= dim && table.slots <= pages.n_blocks() * layout.block_len,
        "{table:?} for {layout:?}"
    );
    assert_eq!(input.q.len, table.rows * n_heads * dim, "queries of whole heads");
    assert!(
        input.k.len == table.rows * n_kv_heads * dim && input.v.len == input.k.len,
        "keys and values of {layout:?}"
    );
    let (q_norm, k_norm, eps) = input.norms.unwrap_or((input.q, input.k, 0.0));
    assert!(input.norms.is_none() || (q_norm.len, k_norm.len) == (dim, dim), "norms of {layout:?}");
    let rotated_q = gpu.empty(input.q.len);
    let shape = Shape {
        layout,
        n_heads,
        rotated: table.rotated,
        pairing: input.pairing,
        norms: input.norms.is_some(),
    };
    let grid = Grid::of(n_heads + 2 * n_kv_heads, table.rows);
    // SAFETY: a cube is a row and one of its heads, whose elements lie within the buffers by the checks above; the
    // norm's weights are only read where there are some.
    unsafe {
        heads_kernel::launch_unchecked::<R>(
            gpu.launch(),
            grid.count(gpu),
            CubeDim { x: UNITS, y: 1, z: 1 },
            input.q.arg(),
            input.k.arg(),
            input.v.arg(),
            table.words.arg(),
            q_norm.arg(),
            k_norm.arg(),
            rotated_q.arg(),
            pool.arg(),
            grid.arg(),
            *v_start as u32,
            eps,
            shape,
        );
    }
    rotated_q
}

#[cube(launch_unchecked)]
fn rope_kernel(
    x: &Array<f32>,
    cos: &Array<f32>,
    sin: &Array<f32>,
    y: &mut Array<f32>,
    n_heads: u32,
    len: u32,
    #[comptime] dim: usize,
    #[comptime] half: usize,
    #[comptime] pairing: Pairing,
) {
    // A head has `half` pairs, then the elements that pass through.
    let per_head = comptime!(dim - half);
    if ABSOLUTE_POS < len as usize {
        let head = ABSOLUTE_POS / per_head;
        let i = ABSOLUTE_POS % per_head;
        let base = head * dim;
        if i < half {
            let angle = head / n_heads as usize * half + i;
            let (first, second) = pair_elements(i, half, pairing);
            let (a, b) = (x[base + first], x[base + second]);
            y[base + first] = a * cos[angle] - b * sin[angle];
            y[base + second] = a * sin[angle] + b * cos[angle];
        } else {
            y[base + half + i] = x[base + half + i];
        }
    }
}

/// Rotates each head of `x` `[t, n_heads, d]` by its row's angles: `cos` and `sin` are `[t, rotated / 2]`.
pub fn rope<R: Runtime>(
    gpu: &Gpu<R>,
    x: &Buffer,
    cos: &Buffer,
    sin: &Buffer,
    rows: usize,
    head_dim: usize,
    pairing: Pairing,
) -> Buffer {
    let half = cos.len / rows;
    assert!(2 * half <= head_dim && sin.len == cos.len, "{half} angles for heads of {head_dim}");
    let y = gpu.empty(x.len);
    let units = x.len / head_dim * (head_dim - half);
    // SAFETY: units past the end do nothing, and a head's pairs lie within it.
    unsafe {
        rope_kernel::launch_unchecked::<R>(
            gpu.launch(),
            gpu.grid(units.div_ceil(UNITS as usize)),
            CubeDim { x: UNITS, y: 1, z: 1 },
            x.arg(),
            cos.arg(),
            sin.arg(),
            y.arg(),
            (x.len / head_dim / rows) as u32,
            units as u32,
            head_dim,
            half,
            pairing,
        );
    }
    y
}

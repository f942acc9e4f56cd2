//! Products with packed matrices: `y = x · Wᵀ`.
//!
//! The kernel is read off a table of the device's capabilities and the number of rows of `x`; nothing is tried
//! out at run time.
//!
//! | rows of `x` | kernel                                                               |
//! |-------------|----------------------------------------------------------------------|
//! | 1 to 4      | `matvec`: every weight is read once, and used for all rows of `x`  |
//! | 5 and more  | `tile`: blocks of 16, 32 or 64 rows of `x` by 64 rows of the matrix |
//! | 16 and more | `cmma` where there are matrix units, except for F32 matrices       |
mod cmma;
mod matvec;
mod narrow;
mod tile;

use crate::matrix::Shard;
use crate::{Buffer, DeviceMatrix, Gpu};
use cubecl::prelude::*;
use ember_formats::GgmlType;

/// Most outputs of one product.
pub const MAX_SEGMENTS: usize = 3;

/// Most rows of `x` that are multiplied as vectors.
const MAX_VECTORS: usize = 4;

/// Fewest rows of `x` that are worth a matrix unit's.
const MIN_MATRIX_UNIT: usize = 16;

/// `x · Wᵀ` for consecutive groups of rows of `matrix`, in one launch per shard (and one before them, where `x` is
/// narrowed for matrix units).
///
/// `x` is `[t, cols]`; group `i` has `segments[i]` rows and starts where the one before ends, the first at `first_row`.
/// Output `i` is `[t, segments[i]]`; all are windows into one allocation.
///
/// # Panics
/// If the shapes do not fit, or there are more than [`MAX_SEGMENTS`] segments.
pub fn linear<R: Runtime>(
    gpu: &Gpu<R>,
    x: &Buffer,
    matrix: &DeviceMatrix,
    first_row: usize,
    segments: &[usize],
) -> Vec<Buffer> {
    let cols = matrix.cols();
    assert!(x.len > 0 && x.len.is_multiple_of(cols), "{} inputs for rows of {cols}", x.len);
    let rows: usize = segments.iter().sum();
    assert!(first_row + rows <= matrix.rows(), "rows {first_row} + {rows} of {}", matrix.rows());
    let tokens = x.len / cols;
    let placement = Placement::new(segments, tokens, (gpu.caps().alignment as usize).div_ceil(4));
    let y = gpu.empty(placement.words);
    let unit = gpu.caps().matrix.filter(|_| tokens >= MIN_MATRIX_UNIT && matrix.ty() != GgmlType::F32);
    let narrowed = unit.map(|unit| (unit, narrow::narrow(gpu, x, cols)));
    for shard in matrix.shards() {
        let span = Span::of(shard, first_row, rows);
        if span.rows == 0 {
            continue;
        }
        let product = Product { gpu, x, matrix, shard, y: &y, tokens, span, placement: &placement };
        match &narrowed {
            Some((unit, inputs)) => cmma::launch(&product, *unit, inputs),
            None if tokens <= MAX_VECTORS => matvec::launch(&product),
            None => tile::launch(&product),
        }
    }
    segments.iter().zip(placement.starts).map(|(rows, start)| y.slice(start, rows * tokens)).collect()
}

/// One launch: the rows of one shard that are asked for.
struct Product<'a, R: Runtime> {
    gpu: &'a Gpu<R>,
    x: &'a Buffer,
    matrix: &'a DeviceMatrix,
    shard: &'a Shard,
    y: &'a Buffer,
    /// Rows of `x`.
    tokens: usize,
    span: Span,
    placement: &'a Placement,
}

/// The rows of a shard that take part, and where the first of them is among the rows asked for.
#[derive(Clone, Copy)]
struct Span {
    local: usize,
    output: usize,
    rows: usize,
}

impl Span {
    fn of(shard: &Shard, first_row: usize, rows: usize) -> Self {
        let start = first_row.max(shard.first);
        let end = (first_row + rows).min(shard.first + shard.rows);
        if start >= end {
            return Self { local: 0, output: 0, rows: 0 };
        }
        Self { local: start - shard.first, output: start - first_row, rows: end - start }
    }
}

/// Places of the outputs in their allocation.
struct Placement {
    rows: [usize; MAX_SEGMENTS],
    /// First word of each segment.
    starts: [usize; MAX_SEGMENTS],
    words: usize,
}

impl Placement {
    fn new(segments: &[usize], tokens: usize, alignment: usize) -> Self {
        assert!((1..=MAX_SEGMENTS).contains(&segments.len()), "{} segments", segments.len());
        let (mut rows, mut starts, mut words) = ([0; MAX_SEGMENTS], [0; MAX_SEGMENTS], 0);
        for (i, &segment) in segments.iter().enumerate() {
            rows[i] = segment;
            starts[i] = words;
            words = (words + segment * tokens).next_multiple_of(alignment);
        }
        Self { rows, starts, words }
    }
}

/// [`Span`] and [`Placement`] as a kernel takes them.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Outputs {
    /// First row of the shard, its place among the rows asked for, and how many there are.
    local: u32,
    output: u32,
    rows: u32,
    /// Rows of the segments, and the first words of the second and third.
    rows_0: u32,
    rows_1: u32,
    rows_2: u32,
    start_1: u32,
    start_2: u32,
}

impl<R: Runtime> Product<'_, R> {
    fn outputs(&self) -> OutputsLaunch<R> {
        let (Span { local, output, rows }, place) = (self.span, self.placement);
        OutputsLaunch::new(
            local as u32,
            output as u32,
            rows as u32,
            place.rows[0] as u32,
            place.rows[1] as u32,
            place.rows[2] as u32,
            place.starts[1] as u32,
            place.starts[2] as u32,
        )
    }
}

/// Floats that one load of `x` takes: four where its rows are whole groups.
fn load_floats(cols: usize) -> usize {
    if cols.is_multiple_of(8) { 4 } else { 1 }
}

/// The word of `y` for row `row` of the span and row `token` of `x`.
#[cube]
fn output_word(outputs: &Outputs, row: u32, token: u32) -> usize {
    let row = outputs.output + row;
    let end_0 = outputs.rows_0;
    let end_1 = end_0 + outputs.rows_1;
    let (in_0, in_1) = (row < end_0, row < end_1);
    let start = select(in_0, 0, select(in_1, outputs.start_1, outputs.start_2));
    let first = select(in_0, 0, select(in_1, end_0, end_1));
    let rows = select(in_0, outputs.rows_0, select(in_1, outputs.rows_1, outputs.rows_2));
    (start + token * rows + row - first) as usize
}

/// Eight elements of a row of `x`, zeros past its end. `floats` is the size of a load, `cols` the length of a row.
#[cube]
fn load_group<N: Size>(
    x: &Array<Vector<f32, N>>,
    token: u32,
    group: u32,
    cols: u32,
    #[comptime] floats: u32,
) -> Sequence<f32> {
    let mut values = Sequence::<f32>::new();
    if comptime!(floats == 4) {
        let at = (token * (cols / 4) + 2 * group) as usize;
        let (first, second) = (x[at], x[at + 1]);
        #[unroll]
        for i in 0..4usize {
            values.push(first[i]);
        }
        #[unroll]
        for i in 0..4usize {
            values.push(second[i]);
        }
    } else {
        #[unroll]
        for i in 0..8u32 {
            let col = group * 8 + i;
            let value = x[(token * cols + min(col, cols - 1)) as usize][0];
            values.push(select(col < cols, value, f32::new(0.0)));
        }
    }
    values
}

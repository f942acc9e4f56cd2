//! Products with many rows of `x`, on matrix units.
//!
//! `y[t, r] = f[t] * sum_i n[t, i] * W[r, i]`, where `n` are the narrowed rows of `x` and `f` their factors (see
//! [`narrow`](super::narrow)), and `W` is narrowed as it is decoded; products are exact and sums are f32. A cube of 256
//! units makes a tile of 32 or 128 rows of `x` by 64 rows of the matrix. It walks along the rows 64 or 32 elements at a
//! time: both sides go to shared memory (15 KiB at most), rows padded by 16 bytes against bank conflicts, and each plane
//! multiplies its fragments. Sums leave through 8 KiB of shared memory, since only there a fragment has a layout.
//!
//! The narrow type is f16 for every matrix: its eleven binary digits err an eighth as much as bf16's eight, it holds BF16
//! weights exactly from 6e-5 on (and to 3e-8 below), and more devices have it. Its range would be too small for
//! activations, which are scaled, but not for weights.
use super::narrow::{Narrowed, narrow_arg};
use super::{Outputs, Product, output_word};
use crate::dequant::{Layout, weights};
use crate::format::Format;
use crate::gpu::MatrixUnit;
use crate::grid::Grid;
use cubecl::cmma::{Matrix, MatrixIdent, MatrixLayout};
use cubecl::prelude::*;
use half::f16;

/// Units of a cube.
const UNITS: u32 = 256;
/// Rows of the matrix in a tile.
const ROWS: u32 = 64;

/// The variant of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Config {
    format: Format,
    /// Rows, columns and depth of a fragment.
    size: u32,
    /// Units of a plane.
    plane: u32,
    /// Rows of `x` in a tile.
    tokens: u32,
    /// Groups of eight elements in a step along the rows.
    groups: u32,
    /// Planes side by side along the rows of the matrix; the others lie along the rows of `x`.
    across: u32,
    /// True if the last step is shorter than the others.
    ragged: bool,
}

impl Config {
    /// Vectors of four elements from row to row in shared memory.
    const fn stride(self) -> u32 {
        2 * self.groups + 2
    }

    /// Fragments of a plane along the rows of `x`.
    const fn lines(self) -> u32 {
        self.tokens / (UNITS / self.plane / self.across) / self.size
    }

    /// Fragments of a plane along the rows of the matrix.
    const fn columns(self) -> u32 {
        ROWS / self.across / self.size
    }
}

#[cube(launch_unchecked)]
fn cmma_kernel<V: Size, W: Size>(
    x: &Array<Vector<f16, V>>,
    factors: &Array<f32>,
    low: &Array<Vector<u32, W>>,
    words: &Array<u32>,
    y: &mut Array<f32>,
    layout: Layout,
    outputs: Outputs,
    grid: Grid,
    tokens: u32,
    #[comptime] config: Config,
) {
    if grid.row() >= grid.rows {
        terminate!();
    }
    let stride = comptime!(config.stride());
    // Fragments are loaded from addresses that are multiples of 32 bytes.
    let mut inputs =
        SharedMemory::<Vector<f16, V>>::new_aligned(comptime!((config.tokens * stride) as usize), 32usize);
    let mut matrix =
        SharedMemory::<Vector<f16, V>>::new_aligned(comptime!((ROWS * stride) as usize), 32usize);
    let first_row = grid.column() * ROWS;
    let first_token = grid.row() * config.tokens;
    // The first row of `x` and of the matrix that the fragments of this plane cover, within the tile.
    let plane = UNIT_POS / config.plane;
    let line = plane / config.across * comptime!(config.lines() * config.size);
    let column = plane % config.across * comptime!(config.columns() * config.size);

    let mut sums = Sequence::<Matrix<f32>>::new();
    #[unroll]
    for _ in 0..comptime!(config.lines() * config.columns()) {
        sums.push(Matrix::<f32>::from_value(
            MatrixIdent::Accumulator,
            comptime!(config.size as usize),
            comptime!(config.size as usize),
            comptime!(config.size as usize),
            MatrixLayout::Undefined,
            f32::new(0.0),
        ));
    }
    let mut step = 0u32.runtime();
    while step < layout.groups {
        fetch_inputs::<V>(x, &mut inputs, &layout, first_token, tokens, step, config);
        fetch_weights::<V, W>(low, words, &mut matrix, &layout, &outputs, first_row, step, config);
        sync_cube();
        #[unroll]
        for k in 0..comptime!(8 * config.groups / config.size) {
            multiply::<V>(&inputs, &matrix, &sums, line, column, k, config);
        }
        sync_cube();
        step += config.groups;
    }
    store(&sums, factors, y, &outputs, first_token + line, first_row + column, tokens, config);
}

/// Copies a step of the tile's rows of `x` to shared memory. Rows past the last one repeat it, and are not stored.
#[cube]
fn fetch_inputs<V: Size>(
    x: &Array<Vector<f16, V>>,
    inputs: &mut SharedMemory<Vector<f16, V>>,
    layout: &Layout,
    first_token: u32,
    tokens: u32,
    step: u32,
    #[comptime] config: Config,
) {
    #[unroll]
    for i in 0..comptime!(config.tokens * config.groups / UNITS) {
        let item = UNIT_POS + comptime!(i * UNITS);
        let (token, offset) = (item / config.groups, item % config.groups);
        let group = min(step + offset, layout.groups - 1);
        let from = (min(first_token + token, tokens - 1) * layout.groups + group) * 2;
        let to = token * comptime!(config.stride()) + offset * 2;
        inputs[to as usize] = x[from as usize];
        inputs[(to + 1) as usize] = x[(from + 1) as usize];
    }
}

/// Decodes a step of the tile's rows of the matrix to shared memory: zeros past the end of the rows.
#[cube]
fn fetch_weights<V: Size, W: Size>(
    low: &Array<Vector<u32, W>>,
    words: &Array<u32>,
    matrix: &mut SharedMemory<Vector<f16, V>>,
    layout: &Layout,
    outputs: &Outputs,
    first_row: u32,
    step: u32,
    #[comptime] config: Config,
) {
    #[unroll]
    for i in 0..comptime!(ROWS * config.groups / UNITS) {
        let item = UNIT_POS + comptime!(i * UNITS);
        let (row, offset) = (item / config.groups, item % config.groups);
        let group = min(step + offset, layout.groups - 1);
        let from = (outputs.local + min(first_row + row, outputs.rows - 1)) * layout.words;
        let values = weights::<W>(low, words, from, group, layout, config.format);
        let to = row * comptime!(config.stride()) + offset * 2;
        #[unroll]
        for half in 0..2u32 {
            let mut vector = Vector::<f16, V>::empty();
            #[unroll]
            for i in 0..4usize {
                let value = values[comptime!(4 * half as usize + i)];
                if comptime!(config.ragged) {
                    vector[i] = f16::cast_from(select(step + offset < layout.groups, value, f32::new(0.0)));
                } else {
                    vector[i] = f16::cast_from(value);
                }
            }
            matrix[(to + half) as usize] = vector;
        }
    }
}

/// Adds the products of slice `k` of the step to a plane's fragments, `[lines, columns]`.
#[cube]
fn multiply<V: Size>(
    inputs: &SharedMemory<Vector<f16, V>>,
    matrix: &SharedMemory<Vector<f16, V>>,
    sums: &Sequence<Matrix<f32>>,
    line: u32,
    column: u32,
    #[comptime] k: u32,
    #[comptime] config: Config,
) {
    let size = comptime!(config.size as usize);
    let stride = comptime!(config.stride());
    let depth = comptime!(k * config.size / 4);
    let mut factors = Sequence::<Matrix<Vector<f16, V>>>::new();
    #[unroll]
    for j in 0..comptime!(config.columns()) {
        let start = ((column + comptime!(j * config.size)) * stride + depth) as usize;
        factors.push(Matrix::<Vector<f16, V>>::from_slice(
            MatrixIdent::B,
            size,
            size,
            size,
            MatrixLayout::ColMajor,
            &matrix.slice(start, comptime!((ROWS * stride) as usize)),
            comptime!(4 * stride),
        ));
    }
    #[unroll]
    for i in 0..comptime!(config.lines()) {
        let start = ((line + comptime!(i * config.size)) * stride + depth) as usize;
        let input = Matrix::<Vector<f16, V>>::from_slice(
            MatrixIdent::A,
            size,
            size,
            size,
            MatrixLayout::RowMajor,
            &inputs.slice(start, comptime!((config.tokens * stride) as usize)),
            comptime!(4 * stride),
        );
        #[unroll]
        for j in 0..comptime!(config.columns()) {
            let sum = sums.index(comptime!((i * config.columns() + j) as usize));
            cubecl::cmma::execute(&input, factors.index(comptime!(j as usize)), sum, sum);
        }
    }
}

/// Writes a plane's fragments, whose first row of `x` and of the matrix are given.
#[cube]
fn store(
    sums: &Sequence<Matrix<f32>>,
    factors: &Array<f32>,
    y: &mut Array<f32>,
    outputs: &Outputs,
    first_token: u32,
    first_row: u32,
    tokens: u32,
    #[comptime] config: Config,
) {
    let area = comptime!(config.size * config.size);
    let mut shared =
        SharedMemory::<f32>::new_aligned(comptime!((UNITS / config.plane * area) as usize), 32usize);
    let start = UNIT_POS / config.plane * area;
    let lane = UNIT_POS % config.plane;
    #[unroll]
    for fragment in 0..comptime!(config.lines() * config.columns()) {
        cubecl::cmma::store(
            &mut shared.slice_mut(start as usize, (start + area) as usize),
            sums.index(comptime!(fragment as usize)),
            config.size,
            MatrixLayout::RowMajor,
        );
        sync_cube();
        let first_token = first_token + comptime!(fragment / config.columns() * config.size);
        let first_row = first_row + comptime!(fragment % config.columns() * config.size);
        #[unroll]
        for i in 0..comptime!(area / config.plane) {
            let at = lane + comptime!(i * config.plane);
            let (token, row) = (first_token + at / config.size, first_row + at % config.size);
            if token < tokens && row < outputs.rows {
                y[output_word(outputs, row, token)] = shared[(start + at) as usize] * factors[token as usize];
            }
        }
        sync_cube();
    }
}

/// The product on `unit`, with any number of rows of `x`.
pub(super) fn launch<R: Runtime>(product: &Product<'_, R>, unit: MatrixUnit, inputs: &Narrowed) {
    let Product { gpu, matrix, shard, y, tokens, span, .. } = *product;
    let planes = matrix.planes();
    // Few rows: small tiles, so that there are enough of them, in long steps, so that more loads are under way.
    let (tile, groups) = if tokens <= 32 { (32, 8) } else { (128, 4) };
    // Of eight planes of 32 units or four of 64, a large tile takes two side by side and a small one four.
    let across = if tile == 32 { 4 } else { 2 };
    let config = Config {
        format: Format::of(matrix.ty()),
        size: unit.size,
        plane: unit.plane,
        tokens: tile,
        groups,
        across,
        ragged: !planes.groups.is_multiple_of(groups as usize),
    };
    let grid = Grid::of(span.rows.div_ceil(ROWS as usize), tokens.div_ceil(tile as usize));
    // SAFETY: groups and rows of both sides are clamped to those there are, and only rows there are are written.
    unsafe {
        cmma_kernel::launch_unchecked::<R>(
            gpu.launch(),
            grid.count(gpu),
            CubeDim { x: UNITS, y: 1, z: 1 },
            4,
            config.format.load_words(),
            narrow_arg(&inputs.rows),
            inputs.factors.arg(),
            shard.words.arg(),
            shard.words.arg(),
            y.arg(),
            planes.arg(),
            product.outputs(),
            grid.arg(),
            tokens as u32,
            config,
        );
    }
}

//! Products with many rows of `x`, in f32.
//!
//! `y[t, r] = sum_i x[t, i] * W[r, i]`. A cube of 256 units makes a tile of 16, 32 or 64 rows of `x` by 64 rows of the
//! matrix. It walks along the rows 32 elements at a time: each unit decodes one group of eight weights into shared
//! memory (8 KiB), `[32, 64]` with a column of padding against bank conflicts, and some load a group of `x` likewise.
//! A unit then has a block of 1, 2 or 4 by 4 results in registers, 16 apart in both directions. Moved per cube: 64
//! packed rows and the tile's rows of `x`.
use super::{Outputs, Product, load_floats, load_group, output_word};
use crate::dequant::{Layout, weights};
use crate::format::Format;
use crate::grid::Grid;
use cubecl::prelude::*;

/// Units of a cube, 16 by 16.
const UNITS: u32 = 256;
/// Rows of the matrix in a tile.
const ROWS: u32 = 64;
/// Groups of eight elements in a step along the rows.
const GROUPS: u32 = 4;
/// Words between elements in shared memory: a row of weights, with padding.
const ROWS_PADDED: u32 = ROWS + 1;

/// The variant of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Config {
    format: Format,
    /// Floats of a load of `x`.
    floats: u32,
    /// Rows of `x` in a unit's block; a tile has 16 times as many.
    block: u32,
}

#[cube(launch_unchecked)]
fn tile_kernel<N: Size, W: Size>(
    x: &Array<Vector<f32, N>>,
    low: &Array<Vector<u32, W>>,
    words: &Array<u32>,
    y: &mut Array<f32>,
    layout: Layout,
    outputs: Outputs,
    grid: Grid,
    cols: u32,
    tokens: u32,
    #[comptime] config: Config,
) {
    if grid.row() >= grid.rows {
        terminate!();
    }
    let tile_tokens = comptime!(16 * config.block);
    let padded = comptime!(tile_tokens + 1);
    let mut inputs = SharedMemory::<f32>::new(comptime!((8 * GROUPS * padded) as usize));
    let mut matrix = SharedMemory::<f32>::new(comptime!((8 * GROUPS * ROWS_PADDED) as usize));
    let first_row = grid.column() * ROWS;
    let first_token = grid.row() * tile_tokens;
    let (column, line) = (UNIT_POS % 16, UNIT_POS / 16);

    let mut sums = Array::<f32>::new(comptime!((4 * config.block) as usize));
    #[unroll]
    for i in 0..comptime!((4 * config.block) as usize) {
        sums[i] = f32::new(0.0);
    }
    // The group that this unit fetches in each step, of a row of the matrix and of a row of `x`.
    let (fetched, offset) = (UNIT_POS / GROUPS, UNIT_POS % GROUPS);
    let row = (outputs.local + min(first_row + fetched, outputs.rows - 1)) * layout.words;
    let mut step = 0u32.runtime();
    while step < layout.groups {
        let group = step + offset;
        // Past the end of the rows both sides are zero.
        let inside = group < layout.groups;
        let group = min(group, layout.groups - 1);
        let values = weights::<W>(low, words, row, group, &layout, config.format);
        #[unroll]
        for i in 0..8u32 {
            let at = (offset * 8 + i) * ROWS_PADDED + fetched;
            matrix[at as usize] = select(inside, values[i as usize], f32::new(0.0));
        }
        if fetched < tile_tokens {
            let token = first_token + fetched;
            let values = load_group::<N>(x, min(token, tokens - 1), group, cols, config.floats);
            #[unroll]
            for i in 0..8u32 {
                let at = (offset * 8 + i) * padded + fetched;
                inputs[at as usize] = select(inside, values[i as usize], f32::new(0.0));
            }
        }
        sync_cube();
        for k in 0..comptime!(8 * GROUPS) {
            multiply(&inputs, &matrix, &mut sums, k * padded + line, k * ROWS_PADDED + column, config.block);
        }
        sync_cube();
        step += GROUPS;
    }
    #[unroll]
    for i in 0..config.block {
        let token = first_token + line + comptime!(16 * i);
        if token < tokens {
            #[unroll]
            for j in 0..4u32 {
                let row = first_row + column + comptime!(16 * j);
                if row < outputs.rows {
                    y[output_word(&outputs, row, token)] = sums[comptime!((4 * i + j) as usize)];
                }
            }
        }
    }
}

/// Adds one element's products to a unit's block, `[block, 4]`.
#[cube]
fn multiply(
    inputs: &SharedMemory<f32>,
    matrix: &SharedMemory<f32>,
    sums: &mut Array<f32>,
    input: u32,
    weight: u32,
    #[comptime] block: u32,
) {
    let mut factors = Sequence::<f32>::new();
    #[unroll]
    for j in 0..4u32 {
        factors.push(matrix[(weight + comptime!(16 * j)) as usize]);
    }
    #[unroll]
    for i in 0..block {
        let value = inputs[(input + comptime!(16 * i)) as usize];
        #[unroll]
        for j in 0..4u32 {
            sums[comptime!((4 * i + j) as usize)] += value * factors[j as usize];
        }
    }
}

/// The product with any number of rows of `x`.
pub(super) fn launch<R: Runtime>(product: &Product<'_, R>) {
    let Product { gpu, x, matrix, shard, y, tokens, span, .. } = *product;
    let format = Format::of(matrix.ty());
    // The least work that is wasted on rows that are not there, as long as weights are not decoded more often for it.
    let block = match tokens {
        0..=16 => 1,
        17..=32 => 2,
        _ => 4,
    };
    let config = Config { format, floats: load_floats(matrix.cols()) as u32, block };
    let grid = Grid::of(span.rows.div_ceil(ROWS as usize), tokens.div_ceil(16 * block as usize));
    // SAFETY: groups and rows of both sides are clamped to those there are, and only rows there are are written.
    unsafe {
        tile_kernel::launch_unchecked::<R>(
            gpu.launch(),
            grid.count(gpu),
            CubeDim { x: UNITS, y: 1, z: 1 },
            load_floats(matrix.cols()),
            format.load_words(),
            x.arg(),
            shard.words.arg(),
            shard.words.arg(),
            y.arg(),
            matrix.planes().arg(),
            product.outputs(),
            grid.arg(),
            matrix.cols() as u32,
            tokens as u32,
            config,
        );
    }
}

//! Products with few rows of `x`: what limits them is reading the weights.
//!
//! `y[t, r] = sum_i x[t, i] * W[r, i]`. The lanes of a plane (or, without plane operations, the units of a cube) share
//! a block of one to four rows of the matrix: lane `l` takes the groups of eight elements `l, l + lanes, …`, so that the
//! lanes read neighbouring words. A group of `x` is loaded once for all rows of the block and a group of weights is
//! decoded once for all rows of `x`; its scale multiplies the sum over the group. Lanes are added up at the end, by a
//! plane operation or by a tree in shared memory. Moved: the packed rows once; `x` comes from cache.
use super::{Outputs, Product, load_floats, load_group, output_word};
use crate::dequant::{Layout, codes, scale};
use crate::format::Format;
use cubecl::prelude::*;

/// Units of a cube of planes, each of which has rows of its own.
const PLANE_UNITS: u32 = 128;

/// Units of a cube that adds up in shared memory.
const SHARED_UNITS: u32 = 64;

/// Compile-time constants of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Config {
    format: Format,
    /// Floats of a load of `x`.
    floats: u32,
    /// Rows of `x`.
    tokens: u32,
    /// Rows of the matrix that the lanes share.
    rows: u32,
    /// Groups that a lane takes in one step, so that more loads are under way.
    steps: u32,
    /// Units that add up together: a plane, or the cube.
    lanes: u32,
    /// Planes of a cube, or zero when the cube adds up in shared memory.
    planes: u32,
}

#[cube(launch_unchecked)]
fn matvec_kernel<N: Size, W: Size>(
    x: &Array<Vector<f32, N>>,
    low: &Array<Vector<u32, W>>,
    words: &Array<u32>,
    y: &mut Array<f32>,
    layout: Layout,
    outputs: Outputs,
    cols: u32,
    #[comptime] config: Config,
) {
    let lane = UNIT_POS_X;
    let set = CUBE_POS as u32 * CUBE_DIM_Y + UNIT_POS_Y;
    let first = set * config.rows;
    let mut sums = Array::<f32>::new(comptime!((config.rows * config.tokens) as usize));
    #[unroll]
    for i in 0..comptime!((config.rows * config.tokens) as usize) {
        sums[i] = f32::new(0.0);
    }
    let mut group = lane;
    if comptime!(config.steps > 1) {
        while group + comptime!((config.steps - 1) * config.lanes) < layout.groups {
            #[unroll]
            for step in 0..config.steps {
                let at = group + comptime!(step * config.lanes);
                accumulate::<N, W>(x, low, words, &mut sums, &layout, &outputs, first, at, cols, config);
            }
            group += comptime!(config.steps * config.lanes);
        }
    }
    while group < layout.groups {
        accumulate::<N, W>(x, low, words, &mut sums, &layout, &outputs, first, group, cols, config);
        group += config.lanes;
    }
    if comptime!(config.planes > 0) {
        #[unroll]
        for i in 0..comptime!((config.rows * config.tokens) as usize) {
            sums[i] = plane_sum(sums[i]);
        }
    } else {
        add_up(&mut sums, comptime!(config.rows * config.tokens), config.lanes);
    }
    if lane == 0 {
        #[unroll]
        for r in 0..config.rows {
            if first + r < outputs.rows {
                #[unroll]
                for token in 0..config.tokens {
                    y[output_word(&outputs, first + r, token)] =
                        sums[comptime!((r * config.tokens + token) as usize)];
                }
            }
        }
    }
}

/// Adds the products of one group to `sums`, `[rows, tokens]`.
#[cube]
fn accumulate<N: Size, W: Size>(
    x: &Array<Vector<f32, N>>,
    low: &Array<Vector<u32, W>>,
    words: &Array<u32>,
    sums: &mut Array<f32>,
    layout: &Layout,
    outputs: &Outputs,
    first: u32,
    group: u32,
    cols: u32,
    #[comptime] config: Config,
) {
    let scales = comptime!(config.format.scales);
    let mut inputs = Sequence::<Sequence<f32>>::new();
    let mut totals = Sequence::<f32>::new();
    #[unroll]
    for token in 0..config.tokens {
        let values = load_group::<N>(x, token, group, cols, config.floats);
        if comptime!(scales.has_min()) {
            totals.push(
                ((values[0] + values[1]) + (values[2] + values[3]))
                    + ((values[4] + values[5]) + (values[6] + values[7])),
            );
        }
        inputs.push(values);
    }
    #[unroll]
    for r in 0..config.rows {
        // The last block may reach past the last row: it repeats that row, and drops the result.
        let row = (outputs.local + min(first + r, outputs.rows - 1)) * layout.words;
        let values = codes::<W>(low, words, row, group, layout, comptime!(config.format.codes));
        let scale = scale(words, row, group, layout, scales);
        #[unroll]
        for token in 0..config.tokens {
            let input = inputs.index(comptime!(token as usize));
            let mut dot = values[0] * input[0];
            #[unroll]
            for i in 1..8usize {
                dot += values[i] * input[i];
            }
            let at = comptime!((r * config.tokens + token) as usize);
            if comptime!(scales.has_min()) {
                sums[at] += scale.d * dot + scale.m * totals[comptime!(token as usize)];
            } else {
                sums[at] += scale.d * dot;
            }
        }
    }
}

/// Adds `count` sums up over the units of the cube, a power of two; unit 0 gets the results.
#[cube]
fn add_up(sums: &mut Array<f32>, #[comptime] count: u32, #[comptime] units: u32) {
    let mut partial = SharedMemory::<f32>::new(comptime!((count * units) as usize));
    let unit = UNIT_POS_X;
    #[unroll]
    for i in 0..count {
        partial[(unit + comptime!(i * units)) as usize] = sums[i as usize];
    }
    sync_cube();
    #[unroll]
    for step in 0..comptime!(units.ilog2()) {
        let half = comptime!(units >> (step + 1));
        if unit < half {
            #[unroll]
            for i in 0..count {
                let at = unit + comptime!(i * units);
                partial[at as usize] = partial[at as usize] + partial[(at + half) as usize];
            }
        }
        sync_cube();
    }
    #[unroll]
    for i in 0..count {
        sums[i as usize] = partial[comptime!((i * units) as usize)];
    }
}

/// The product with at most four rows of `x`.
pub(super) fn launch<R: Runtime>(product: &Product<'_, R>) {
    let Product { gpu, x, matrix, shard, y, span, .. } = *product;
    let config = config(product);
    let (units, sets) = (config.lanes, config.planes.max(1));
    let cubes = span.rows.div_ceil((config.rows * sets) as usize);
    // SAFETY: groups stay below the row's, rows are clamped to the span, and only rows in it are written.
    unsafe {
        matvec_kernel::launch_unchecked::<R>(
            gpu.launch(),
            gpu.grid(cubes),
            CubeDim { x: units, y: sets, z: 1 },
            load_floats(matrix.cols()),
            config.format.load_words(),
            x.arg(),
            shard.words.arg(),
            shard.words.arg(),
            y.arg(),
            matrix.planes().arg(),
            product.outputs(),
            matrix.cols() as u32,
            config,
        );
    }
}

/// The variant for a product, by the number of rows of both sides.
///
/// Blocks of several rows save loads of `x`, but leave fewer planes to hide latency: they are for matrices that fill
/// the device anyway. With several rows of `x` the accumulators take the registers that more steps would need.
fn config<R: Runtime>(product: &Product<'_, R>) -> Config {
    let caps = product.gpu.caps();
    let floats = load_floats(product.matrix.cols()) as u32;
    let (rows, steps) = match (product.span.rows, product.tokens) {
        (0..2048, 1) => (1, 4),
        (0..2048, _) => (1, 1),
        (2048..8192, 1) => (2, 2),
        (2048..8192, _) | (_, 3..) => (2, 1),
        // Rows that are no whole number of loads take registers for their ends.
        (_, 1) if floats > 1 => (4, 2),
        (_, _) => (4, 1),
    };
    let (lanes, planes) = match caps.plane {
        Some(size) => (size, (PLANE_UNITS / size).max(1)),
        None => (SHARED_UNITS, 0),
    };
    let format = product.matrix.ty().format();
    Config { format, floats, tokens: product.tokens as u32, rows, steps, lanes, planes }
}

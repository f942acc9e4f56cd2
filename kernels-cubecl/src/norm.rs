//! RMSNorm.
//!
//! `y[r, i] = x[r, i] / sqrt(mean_i(x[r, i]²) + eps) * w[i]`, optionally of `x + residual`, which is kept.
//!
//! Layout: rows one after another. Work: one cube of 256 units per row; unit `u` takes the elements `u, u + 256, …`,
//! and the sums of squares meet in shared memory. Moved: `4 * rows * dim` bytes in and out (twice with a residual),
//! and the weight once per row from cache.
use crate::grid::Grid;
use crate::{Buffer, Gpu};
use cubecl::prelude::*;

/// Units of a cube.
const UNITS: u32 = 256;

#[cube(launch_unchecked)]
fn rms_norm_kernel(
    x: &Array<f32>,
    weight: &Array<f32>,
    y: &mut Array<f32>,
    grid: Grid,
    dim: u32,
    eps: f32,
    #[comptime] units: u32,
) {
    if grid.row() >= grid.rows {
        terminate!();
    }
    let base = grid.row() as usize * dim as usize;
    let mut squares = f32::new(0.0);
    let mut i = UNIT_POS as usize;
    while i < dim as usize {
        let value = x[base + i];
        squares += value * value;
        i += units as usize;
    }
    scale_row(x, weight, y, base, dim, squares, eps, units);
}

#[cube(launch_unchecked)]
fn add_rms_norm_kernel(
    x: &Array<f32>,
    residual: &Array<f32>,
    weight: &Array<f32>,
    sum: &mut Array<f32>,
    y: &mut Array<f32>,
    grid: Grid,
    dim: u32,
    eps: f32,
    #[comptime] units: u32,
) {
    if grid.row() >= grid.rows {
        terminate!();
    }
    let base = grid.row() as usize * dim as usize;
    let mut squares = f32::new(0.0);
    let mut i = UNIT_POS as usize;
    while i < dim as usize {
        let value = x[base + i] + residual[base + i];
        sum[base + i] = value;
        squares += value * value;
        i += units as usize;
    }
    // Each unit reads back only what it wrote itself.
    scale_row(sum, weight, y, base, dim, squares, eps, units);
}

/// Writes the norm of the row of `x` at `base`, given the sum of the squares of each unit's elements.
#[cube]
fn scale_row(
    x: &Array<f32>,
    weight: &Array<f32>,
    y: &mut Array<f32>,
    base: usize,
    dim: u32,
    squares: f32,
    eps: f32,
    #[comptime] units: u32,
) {
    let mut partial = SharedMemory::<f32>::new(units as usize);
    let total = cube_sum(squares, &mut partial, units);
    let scale = f32::new(1.0) / f32::sqrt(total / f32::cast_from(dim) + eps);
    let mut i = UNIT_POS as usize;
    while i < dim as usize {
        y[base + i] = x[base + i] * scale * weight[i];
        i += units as usize;
    }
}

/// The sum of every unit's `value`, by a tree in shared memory of `units` (a power of two) words.
#[cube]
pub(crate) fn cube_sum(value: f32, partial: &mut SharedMemory<f32>, #[comptime] units: u32) -> f32 {
    let unit = UNIT_POS;
    partial[unit as usize] = value;
    sync_cube();
    let steps = comptime!(units.ilog2());
    #[unroll]
    for step in 0..steps {
        let half = comptime!(units >> (step + 1));
        if unit < half {
            partial[unit as usize] = partial[unit as usize] + partial[(unit + half) as usize];
        }
        sync_cube();
    }
    partial[0]
}

/// RMSNorm of each row of `x` `[rows, weight.len]`.
pub fn rms_norm<R: Runtime>(gpu: &Gpu<R>, x: &Buffer, weight: &Buffer, eps: f32) -> Buffer {
    let grid = Grid::of(1, x.len / weight.len);
    let y = gpu.empty(x.len);
    // SAFETY: cubes are rows, and a unit's elements stay below `weight.len` within its row.
    unsafe {
        rms_norm_kernel::launch_unchecked::<R>(
            gpu.launch(),
            grid.count(gpu),
            CubeDim { x: UNITS, y: 1, z: 1 },
            x.arg(),
            weight.arg(),
            y.arg(),
            grid.arg(),
            weight.len as u32,
            eps,
            UNITS,
        );
    }
    y
}

/// `x + residual` and its RMSNorm, both `[rows, weight.len]`.
pub fn add_rms_norm<R: Runtime>(
    gpu: &Gpu<R>,
    residual: &Buffer,
    x: &Buffer,
    weight: &Buffer,
    eps: f32,
) -> (Buffer, Buffer) {
    let grid = Grid::of(1, x.len / weight.len);
    let (sum, y) = (gpu.empty(x.len), gpu.empty(x.len));
    // SAFETY: as in `rms_norm`; `residual` and `sum` have the length of `x`.
    unsafe {
        add_rms_norm_kernel::launch_unchecked::<R>(
            gpu.launch(),
            grid.count(gpu),
            CubeDim { x: UNITS, y: 1, z: 1 },
            x.arg(),
            residual.arg(),
            weight.arg(),
            sum.arg(),
            y.arg(),
            grid.arg(),
            weight.len as u32,
            eps,
            UNITS,
        );
    }
    (sum, y)
}

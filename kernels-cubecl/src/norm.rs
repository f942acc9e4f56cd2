//! RMSNorm.
//!
//! `y[r, i] = x[r, i] / sqrt(mean_i(x[r, i]²) + eps) * w[i]`, optionally of `x + residual`, which is kept.
//!
//! Layout: rows one after another. Work: one cube of 256 units per row; unit `u` takes the elements `u, u + 256, …`,
//! and the sums of squares meet in shared memory. Moved: `4 * rows * dim` bytes in and out (twice with a residual),
//! and the weight once per row from cache.
use crate::{Buffer, Gpu};
use cubecl::prelude::*;

/// Units of a cube.
const UNITS: u32 = 256;

#[cube(launch_unchecked)]
fn rms_norm_kernel(
    x: &Array<f32>,
    residual: &Array<f32>,
    weight: &Array<f32>,
    sum: &mut Array<f32>,
    y: &mut Array<f32>,
    dim: u32,
    eps: f32,
    #[comptime] add: bool,
    #[comptime] units: u32,
) {
    let dim = dim as usize;
    let base = CUBE_POS * dim;
    let mut squares = f32::new(0.0);
    let mut i = UNIT_POS as usize;
    while i < dim {
        let mut value = x[base + i];
        if comptime!(add) {
            value += residual[base + i];
            sum[base + i] = value;
        }
        squares += value * value;
        i += units as usize;
    }
    let mut partial = SharedMemory::<f32>::new(units as usize);
    let total = cube_sum(squares, &mut partial, units);
    let scale = f32::new(1.0) / f32::sqrt(total / f32::cast_from(dim as u32) + eps);
    let mut i = UNIT_POS as usize;
    while i < dim {
        // Each unit reads back only what it wrote itself.
        let value = if comptime!(add) { sum[base + i] } else { x[base + i] };
        y[base + i] = value * scale * weight[i];
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
    launch(gpu, x, None, weight, eps).1
}

/// `x + residual` and its RMSNorm, both `[rows, weight.len]`.
pub fn add_rms_norm<R: Runtime>(
    gpu: &Gpu<R>,
    residual: &Buffer,
    x: &Buffer,
    weight: &Buffer,
    eps: f32,
) -> (Buffer, Buffer) {
    launch(gpu, x, Some(residual), weight, eps)
}

fn launch<R: Runtime>(
    gpu: &Gpu<R>,
    x: &Buffer,
    residual: Option<&Buffer>,
    weight: &Buffer,
    eps: f32,
) -> (Buffer, Buffer) {
    let dim = weight.len;
    let rows = x.len / dim;
    let y = gpu.empty(x.len);
    let sum = if residual.is_some() { gpu.empty(x.len) } else { y.clone() };
    // SAFETY: cubes are rows, and a unit's elements stay below `dim` within its row. `sum` and `y` are the same memory
    // only in the variant that never touches `sum`.
    unsafe {
        rms_norm_kernel::launch_unchecked::<R>(
            gpu.launch(),
            CubeCount::Static(rows as u32, 1, 1),
            CubeDim { x: UNITS, y: 1, z: 1 },
            x.arg(),
            residual.unwrap_or(x).arg(),
            weight.arg(),
            sum.arg(),
            y.arg(),
            dim as u32,
            eps,
            residual.is_some(),
            UNITS,
        );
    }
    (sum, y)
}

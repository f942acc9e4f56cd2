//! The floors that benchmarks stand beside: the best that a device does.
//!
//! - Copy: every unit moves one vector of four words, neighbours next to each other. 8 bytes moved per word.
//! - Matrix units: every plane multiplies fragments that stay in registers, into four sums that do not wait for each
//!   other; `2 * size³` operations per multiplication, nothing read.
//! - Without matrix units: every unit does multiply-adds into eight sums, two operations each.
use crate::gpu::MatrixUnit;
use crate::{Buffer, Gpu, GpuError};
use cubecl::cmma::{Matrix, MatrixIdent, MatrixLayout};
use cubecl::prelude::*;
use half::f16;
use std::time::Instant;

/// Units of a cube.
const UNITS: u32 = 256;
/// Largest buffer that is copied: more than caches hold.
const COPY_WORDS: usize = 64 << 20;
/// Cubes of the arithmetic: enough for any device to be full.
const CUBES: u32 = 2048;
/// Multiplications of a plane, or multiply-adds per sum of a unit.
const STEPS: u32 = 1024;
/// Sums that do not wait for each other, with matrix units and without.
const FRAGMENTS: u32 = 4;
const SUMS: u32 = 8;
/// Measured rounds, after one that is not.
const ROUNDS: usize = 5;

/// The best that a device does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Floor {
    /// Bytes read and written per second by a copy.
    pub copy_bytes_per_second: f64,
    /// Operations per second of products in f16 with f32 sums on matrix units, or in f32 where there are none.
    pub operations_per_second: f64,
}

/// Measures a device.
///
/// # Errors
/// [`GpuError::Device`] when it fails.
pub fn floor<R: Runtime>(gpu: &Gpu<R>) -> Result<Floor, GpuError> {
    let words = COPY_WORDS.min(gpu.caps().max_buffer as usize / 8);
    let (from, to) = (gpu.empty(words), gpu.empty(words));
    let seconds = fastest(gpu, &to, || copy(gpu, &from, &to))?;
    let out = gpu.empty((CUBES * UNITS) as usize);
    let arithmetic = fastest(gpu, &out, || arithmetic(gpu, &out))?;
    Ok(Floor {
        copy_bytes_per_second: 8.0 * words as f64 / seconds,
        operations_per_second: operations(gpu) / arithmetic,
    })
}

/// Seconds of the fastest round; `written` is what the work writes.
fn fastest<R: Runtime>(gpu: &Gpu<R>, written: &Buffer, work: impl Fn()) -> Result<f64, GpuError> {
    let mut fastest = f64::INFINITY;
    for round in 0..=ROUNDS {
        let started = Instant::now();
        work();
        gpu.read(&written.slice(0, 1))?;
        if round > 0 {
            fastest = fastest.min(started.elapsed().as_secs_f64());
        }
    }
    Ok(fastest)
}

#[cube(launch_unchecked)]
fn copy_kernel<N: Size>(from: &Array<Vector<u32, N>>, to: &mut Array<Vector<u32, N>>, len: u32) {
    if ABSOLUTE_POS < len as usize {
        to[ABSOLUTE_POS] = from[ABSOLUTE_POS];
    }
}

fn copy<R: Runtime>(gpu: &Gpu<R>, from: &Buffer, to: &Buffer) {
    let vectors = from.len / 4;
    // SAFETY: units past the end do nothing, and both buffers have as many words.
    unsafe {
        copy_kernel::launch_unchecked::<R>(
            gpu.launch(),
            gpu.grid(vectors.div_ceil(UNITS as usize)),
            CubeDim { x: UNITS, y: 1, z: 1 },
            4,
            from.arg(),
            to.arg(),
            vectors as u32,
        );
    }
}

#[cube(launch_unchecked)]
fn fragments_kernel(out: &mut Array<f32>, seed: f32, #[comptime] unit: MatrixUnit) {
    let size = comptime!(unit.size as usize);
    let half = f16::cast_from(seed);
    let layout = MatrixLayout::RowMajor;
    let a = Matrix::<f16>::from_value(MatrixIdent::A, size, size, size, layout, half);
    let b = Matrix::<f16>::from_value(MatrixIdent::B, size, size, size, MatrixLayout::ColMajor, half);
    let mut sums = Sequence::<Matrix<f32>>::new();
    #[unroll]
    for _ in 0..FRAGMENTS {
        sums.push(Matrix::<f32>::from_value(
            MatrixIdent::Accumulator,
            size,
            size,
            size,
            MatrixLayout::Undefined,
            f32::new(0.0),
        ));
    }
    for _ in 0..STEPS {
        #[unroll]
        for i in 0..comptime!(FRAGMENTS as usize) {
            cubecl::cmma::execute(&a, &b, sums.index(i), sums.index(i));
        }
    }
    let area = comptime!(unit.size * unit.size);
    let start = UNIT_POS / unit.plane * area;
    let mut shared =
        SharedMemory::<f32>::new_aligned(comptime!((UNITS / unit.plane * area) as usize), 32usize);
    let mut total = f32::new(0.0);
    #[unroll]
    for i in 0..comptime!(FRAGMENTS as usize) {
        cubecl::cmma::store(
            &mut shared.slice_mut(start as usize, (start + area) as usize),
            sums.index(i),
            unit.size,
            layout,
        );
        sync_cube();
        total += shared[(start + UNIT_POS % unit.plane) as usize];
        sync_cube();
    }
    out[ABSOLUTE_POS] = total;
}

#[cube(launch_unchecked)]
fn multiply_add_kernel(out: &mut Array<f32>, factor: f32) {
    let mut sums = Array::<f32>::new(comptime!(SUMS as usize));
    #[unroll]
    for i in 0..comptime!(SUMS as usize) {
        sums[i] = f32::cast_from(UNIT_POS + i as u32);
    }
    for _ in 0..STEPS {
        #[unroll]
        for i in 0..comptime!(SUMS as usize) {
            sums[i] = sums[i] * factor + factor;
        }
    }
    let mut total = f32::new(0.0);
    #[unroll]
    for i in 0..comptime!(SUMS as usize) {
        total += sums[i];
    }
    out[ABSOLUTE_POS] = total;
}

/// Operations of one [`arithmetic`].
fn operations<R: Runtime>(gpu: &Gpu<R>) -> f64 {
    let per_cube = match gpu.caps().matrix {
        Some(unit) => {
            let planes = f64::from(UNITS / unit.plane);
            planes * f64::from(FRAGMENTS) * 2.0 * f64::from(unit.size).powi(3)
        }
        None => f64::from(UNITS) * f64::from(SUMS) * 2.0,
    };
    f64::from(CUBES) * f64::from(STEPS) * per_cube
}

fn arithmetic<R: Runtime>(gpu: &Gpu<R>, out: &Buffer) {
    let (count, dim) = (CubeCount::Static(CUBES, 1, 1), CubeDim { x: UNITS, y: 1, z: 1 });
    // SAFETY: `out` has a word for every unit of the grid, and shared memory one fragment for every plane.
    unsafe {
        match gpu.caps().matrix {
            Some(unit) => {
                fragments_kernel::launch_unchecked::<R>(gpu.launch(), count, dim, out.arg(), 0.5, unit);
            }
            None => multiply_add_kernel::launch_unchecked::<R>(gpu.launch(), count, dim, out.arg(), 0.5),
        }
    }
}

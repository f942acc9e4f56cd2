//! Single products on a GPU beside what it does at best.
use crate::{DeviceError, Floor, gpu};
use burn_cubecl::cubecl::Runtime;
use ember_kernels_cubecl::{DeviceMatrix, GgmlType, Gpu, GpuError, linear};
use ember_models::ModelError;
use std::time::Instant;

/// Rows and columns: a matrix far larger than caches, in any of the types.
const MOST_ROWS: usize = 32_768;
const COLS: usize = 4096;
/// Seconds that the largest product may take at best: slow devices get fewer rows.
const MOST_SECONDS: f64 = 0.02;
/// Rows of the input: decode of one and of four sequences, and a prefill chunk.
const TOKENS: [usize; 3] = [1, 4, 512];
/// Launches between two looks at the clock, and such rounds.
const LAUNCHES: usize = 10;
const ROUNDS: usize = 5;

/// Measures single products of a device beside what it does at best; `report` gets a line for each.
///
/// # Errors
/// A device that fails.
pub fn measure<R: Runtime>(device: &R::Device, report: &mut dyn FnMut(String)) -> Result<(), DeviceError> {
    let floor = gpu::floor::<R>(device)?;
    Ok(products::<R>(device, floor, report).map_err(ModelError::from)?)
}

fn products<R: Runtime>(
    device: &R::Device,
    floor: Floor,
    report: &mut dyn FnMut(String),
) -> Result<(), GpuError> {
    let (bytes, operations) = (floor.bytes_per_second, floor.operations_per_second);
    report(format!("copy {:.0} GB/s; matrix units or f32 {:.2} TFLOP/s", bytes / 1e9, operations / 1e12));
    let gpu = Gpu::<R>::open(device);
    let affordable = operations * MOST_SECONDS / (2 * TOKENS[2] * COLS) as f64;
    let n = (affordable as usize).clamp(64, MOST_ROWS);
    for ty in [GgmlType::F16, GgmlType::Q8_0, GgmlType::Q4_0, GgmlType::Q4_K, GgmlType::Q6_K] {
        // What the weights are does not change the time.
        let rows = vec![0; n * ty.row_bytes(COLS)];
        let matrix = DeviceMatrix::upload(&gpu, "a matrix to measure", ty, COLS, &[&rows], &mut |_| ())?;
        for tokens in TOKENS {
            let seconds = seconds(&gpu, &matrix, tokens)?;
            let read = matrix.device_bytes() as f64 / seconds;
            let done = 2.0 * (tokens * n * COLS) as f64 / seconds;
            report(format!(
                "{ty:?} {n} x {COLS}, {tokens} rows: {:.1} us, {:.0} GB/s ({:.0} %), {:.2} TFLOP/s ({:.0} %)",
                1e6 * seconds,
                read / 1e9,
                100.0 * read / bytes,
                done / 1e12,
                100.0 * done / operations,
            ));
        }
    }
    Ok(())
}

/// Seconds of one product, of the fastest round after one that is not counted.
fn seconds<R: Runtime>(gpu: &Gpu<R>, matrix: &DeviceMatrix, tokens: usize) -> Result<f64, GpuError> {
    let x = gpu.upload("an input to measure", &vec![0; tokens * COLS])?;
    let mut fastest = f64::INFINITY;
    for round in 0..=ROUNDS {
        let started = Instant::now();
        let mut last = x.clone();
        for _ in 0..LAUNCHES {
            last = linear::linear(gpu, &x, matrix, 0, &[matrix.rows()]).remove(0);
        }
        gpu.read(&last.slice(0, 1))?;
        if round > 0 {
            fastest = fastest.min(started.elapsed().as_secs_f64() / LAUNCHES as f64);
        }
    }
    Ok(fastest)
}

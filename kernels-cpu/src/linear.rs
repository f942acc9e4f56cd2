//! `y = x W^T` for matrices in any block format.

use std::cell::RefCell;

use crate::activations::{ActFormat, ActRow, QuantizedRows, quantize_row};
use crate::block::Matrix;
use crate::dot::{Kernel, PANEL_ROWS, kernel};
use crate::isa::Isa;
use crate::pool::{self, ThreadPool};

/// Multiplies `x` (`[m, cols]`, row-major) with every matrix of `weights` (each `[rows, cols]`) and writes
/// `out[g]` (`[m, weights[g].rows]`, row-major), on the best instruction set and the global pool.
///
/// Matrices that share their input (query, key and value; gate and up) belong in one call: the activations are
/// rounded once and the rows of all are spread over the threads together. Quantized weights meet activations rounded
/// to int8 (see the crate's page); float weights meet them as they are. An output is the same to the last bit
/// whatever `m`, its place in the batch, the threads and the instruction set. A NaN or an infinity in a row of `x`
/// makes that row's outputs NaN where the weights are quantized.
///
/// # Panics
/// When a length does not match: `x` with `m * cols`, `out[g]` with `m * rows`, `cols` among the matrices.
pub fn linear(x: &[f32], m: usize, weights: &[Matrix<'_>], out: &mut [&mut [f32]]) {
    linear_with(Isa::best(), pool::global(), x, m, weights, out);
}

/// [`linear`] on a given instruction set and pool.
///
/// # Panics
/// As [`linear`], and when the processor lacks `isa`.
pub fn linear_with(
    isa: Isa,
    pool: &ThreadPool,
    x: &[f32],
    m: usize,
    weights: &[Matrix<'_>],
    out: &mut [&mut [f32]],
) {
    assert!(isa.is_available(), "this processor lacks {isa:?}");
    assert_eq!(weights.len(), out.len(), "one output per matrix");
    let Some(cols) = weights.first().map(Matrix::cols) else { return };
    assert_eq!(x.len(), m * cols, "x is [m, cols] = [{m}, {cols}]");
    for (weight, out) in weights.iter().zip(&*out) {
        assert_eq!(weight.cols(), cols, "all matrices of a call have the same number of columns");
        assert_eq!(out.len(), m * weight.rows(), "out is [m, rows] = [{m}, {}]", weight.rows());
    }
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.quantize(isa, pool, x, m, weights);
        let acts = Activations { x, m, cols, scratch };
        multiply(isa, pool, &acts, weights, out);
    });
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Rounded activations of the present call, kept to reuse the memory.
#[derive(Default)]
struct Scratch {
    q8x32: QuantizedRows,
    q8x256: QuantizedRows,
}

impl Scratch {
    fn quantize(&mut self, isa: Isa, _pool: &ThreadPool, x: &[f32], m: usize, weights: &[Matrix<'_>]) {
        let cols = weights[0].cols();
        for (format, rows) in [(ActFormat::Q8x32, &mut self.q8x32), (ActFormat::Q8x256, &mut self.q8x256)] {
            if !weights.iter().any(|weight| kernel(isa, weight.ty()).format == format) {
                continue;
            }
            rows.resize(format, m, cols);
            let (blocks, groups) = (cols / format.block_len(), cols / format.sum_len());
            for t in 0..m {
                quantize_row(
                    format,
                    &x[t * cols..][..cols],
                    &mut rows.q[t * cols..][..cols],
                    &mut rows.d[t * blocks..][..blocks],
                    &mut rows.sums[t * groups..][..groups],
                );
            }
        }
    }
}

/// The activations of a call in every format that its weights need.
struct Activations<'a> {
    x: &'a [f32],
    m: usize,
    cols: usize,
    scratch: &'a Scratch,
}

impl Activations<'_> {
    fn row(&self, format: ActFormat, index: usize) -> ActRow<'_> {
        match format {
            ActFormat::F32 => {
                ActRow { x: &self.x[index * self.cols..][..self.cols], q: &[], d: &[], sums: &[] }
            }
            ActFormat::Q8x32 => self.scratch.q8x32.row(format, index, self.cols),
            ActFormat::Q8x256 => self.scratch.q8x256.row(format, index, self.cols),
        }
    }
}

/// A pointer to an output that several tasks write disjoint parts of.
#[derive(Clone, Copy)]
struct Output(*mut f32);

// SAFETY: tasks write disjoint elements (each row of a matrix belongs to one task) and nobody reads before the pool's
// call has ended.
unsafe impl Sync for Output {}

/// Rows `first_row..first_row + rows` of matrix `matrix`.
struct Task {
    matrix: usize,
    first_row: usize,
    rows: usize,
}

/// Bytes of weights per task: small enough that threads end together, large enough to hide a task's cost.
const TASK_BYTES: usize = 64 << 10;

fn tasks(weights: &[Matrix<'_>]) -> Vec<Task> {
    let mut tasks = Vec::new();
    for (matrix, weight) in weights.iter().enumerate() {
        let step = (TASK_BYTES / weight.row_bytes().max(1)).next_multiple_of(PANEL_ROWS).max(PANEL_ROWS);
        let starts = (0..weight.rows()).step_by(step);
        tasks.extend(starts.map(|first_row| Task {
            matrix,
            first_row,
            rows: step.min(weight.rows() - first_row),
        }));
    }
    tasks
}

fn multiply(
    isa: Isa,
    pool: &ThreadPool,
    acts: &Activations<'_>,
    weights: &[Matrix<'_>],
    out: &mut [&mut [f32]],
) {
    let outputs: Vec<Output> = out.iter_mut().map(|out| Output(out.as_mut_ptr())).collect();
    let tasks = tasks(weights);
    pool.parallel(tasks.len(), &|index| {
        let task = &tasks[index];
        run_task(
            kernel(isa, weights[task.matrix].ty()),
            acts,
            &weights[task.matrix],
            task,
            &outputs[task.matrix],
        );
    });
}

fn run_task(kernel: Kernel, acts: &Activations<'_>, weight: &Matrix<'_>, task: &Task, out: &Output) {
    let row_bytes = weight.row_bytes();
    for first in (task.first_row..task.first_row + task.rows).step_by(PANEL_ROWS) {
        let count = PANEL_ROWS.min(task.first_row + task.rows - first);
        let rows = &weight.bytes()[first * row_bytes..][..count * row_bytes];
        for t in 0..acts.m {
            // SAFETY: `linear_with` has checked that the instruction set is there; `rows` are `count` whole rows of
            // `cols` elements, as many as the activations have.
            let dots = unsafe { (kernel.rows)(rows, count, acts.row(kernel.format, t)) };
            for (i, dot) in dots[..count].iter().enumerate() {
                // SAFETY: the output is `[m, rows]` by the check in `linear_with`, t < m and first + i < rows; no
                // other task writes this element.
                unsafe { *out.0.add(t * weight.rows() + first + i) = *dot };
            }
        }
    }
}

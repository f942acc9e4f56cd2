//! `y = x W^T` for matrices in any block format.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Mutex;

use crate::activations::{ActFormat, ActRow, QuantizedTokens};
use crate::dot::{
    Kernel, PANEL_ROWS, Panel, PanelKernel, TILE_TOKENS, Tokens, VectorBytes, kernel, quantize_row,
};
use crate::isa::Isa;
use crate::matrix::Matrix;
use crate::pool::{self, ThreadPool};

/// From this many tokens on, rearranging rows into panels pays.
const PANEL_MIN_TOKENS: usize = 8;

/// Tasks shrink towards the end of a call, so that threads end together: each is the remaining bytes divided by this
/// and by the number of threads.
const TASK_SHARES: usize = 3;

/// But not smaller, or the cost of a task shows.
const TASK_MIN_BYTES: usize = 16 << 10;

/// Panels of a task, and the int8 tokens that meet them, stay within a core's second-level cache together.
const PANELS_BYTES: usize = 128 << 10;
const TOKENS_BYTES: usize = 128 << 10;

/// Panels of floats and the tokens that meet them at once: what the kernel takes of them at a time stays within that
/// cache, together with their sums, with room for what else shares it. Tokens go by threes.
const FLOAT_PANELS: usize = 8;
const FLOAT_TOKENS: usize = 96;

/// Tokens that are rounded or rearranged at once: it bounds the memory that takes, and keeps them in the third-level cache.
/// Rearranging the weights again for the next costs little beside so many.
const CALL_TOKENS: usize = 1024;

/// Memory of a task's float panels at most.
const FLOAT_PANELS_BYTES: usize = 4 << 20;

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
/// If a length does not match: `x` with `m * cols`, `out[g]` with `m * rows`, `cols` among the matrices.
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
    assert_eq!(Some(x.len()), m.checked_mul(cols), "x is [m, cols] = [{m}, {cols}]");
    for (weight, out) in weights.iter().zip(&*out) {
        assert_eq!(weight.cols(), cols, "all matrices of a call have the same number of columns");
        assert_eq!(
            Some(out.len()),
            m.checked_mul(weight.rows()),
            "out is [m, rows] = [{m}, {}]",
            weight.rows()
        );
    }
    // Equal parts, of which none is so small that panels do not pay.
    let part = m.div_ceil(m.div_ceil(CALL_TOKENS).max(1));
    for start in (0..m).step_by(part.max(1)) {
        let tokens = start..m.min(start + part);
        let outputs = out.iter_mut().zip(weights).map(|(out, weight)| {
            let rows = weight.rows();
            Output(out[tokens.start * rows..tokens.end * rows].as_mut_ptr())
        });
        let outputs: Vec<_> = outputs.collect();
        let (x, m) = (&x[tokens.start * cols..tokens.end * cols], tokens.len());
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.quantize(isa, pool, x, m, weights);
            scratch.pack_floats(isa, pool, x, m, weights);
            let acts = Activations { x, m, cols, scratch };
            multiply(isa, pool, &acts, weights, &outputs);
        });
    }
}

thread_local! {
    /// Rounded and rearranged activations of the thread's calls.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
    /// Panels of the thread's tasks, and their products.
    static PANELS: RefCell<(Vec<Panel>, Vec<[f32; PANEL_ROWS]>)> = RefCell::default();
}

/// Activations of the present call as the kernels want them, kept to reuse the memory.
#[derive(Default)]
struct Scratch {
    /// Blocks of [`FLOAT_TOKENS`] rearranged tokens, if a kernel asks for them.
    floats: Vec<VectorBytes>,
    q8x32: QuantizedTokens,
    q8x256: QuantizedTokens,
}

impl Scratch {
    /// Rounds `x` (`[m, cols]`) to every int8 format that the weights need.
    fn quantize(&mut self, isa: Isa, pool: &ThreadPool, x: &[f32], m: usize, weights: &[Matrix<'_>]) {
        let cols = weights[0].cols();
        for (format, quantized) in
            [(ActFormat::Q8x32, &mut self.q8x32), (ActFormat::Q8x256, &mut self.q8x256)]
        {
            if m * cols == 0 || !weights.iter().any(|weight| kernel(isa, weight.ty()).format == format) {
                continue;
            }
            quantized.resize(format, m, cols);
            let tokens: Vec<_> =
                x.chunks_exact(cols).zip(quantized.tokens_mut(format, cols)).map(Mutex::new).collect();
            pool.parallel(m, &|t| {
                let mut token = tokens[t].lock().expect("each token is locked once");
                let (x, (q, (d, sums))) = &mut *token;
                // SAFETY: `linear_with` has checked that the instruction set is there.
                unsafe { quantize_row(isa, format, x, q, d, sums) };
            });
        }
    }

    /// Rearranges the tokens of `x` (`[m, cols]`) where the panels of float weights want them so.
    fn pack_floats(&mut self, isa: Isa, pool: &ThreadPool, x: &[f32], m: usize, weights: &[Matrix<'_>]) {
        let cols = weights[0].cols();
        let kernels = weights.iter().map(|weight| kernel(isa, weight.ty()));
        let panels = kernels
            .filter(|kernel| kernel.format == ActFormat::F32)
            .filter_map(|kernel| panel_kernel(kernel, m));
        // One function for all float types.
        let Some(pack) = panels.filter_map(|panel| panel.pack_tokens).next() else {
            return self.floats.clear();
        };
        let vectors = cols.div_ceil(VectorBytes::FLOATS);
        self.floats.resize(m * vectors, VectorBytes::ZERO);
        if self.floats.is_empty() {
            return;
        }
        let blocks: Vec<_> = self.floats.chunks_mut(FLOAT_TOKENS * vectors).map(Mutex::new).collect();
        pool.parallel(blocks.len(), &|b| {
            let to = &mut *blocks[b].lock().expect("each block is locked once");
            let tokens = x[b * FLOAT_TOKENS * cols..].chunks_exact(cols).take(to.len() / vectors);
            let tokens: Vec<_> = tokens.map(ActRow::float).collect();
            // SAFETY: `linear_with` has checked that the instruction set is there; `to` has the tokens' place.
            unsafe { pack(&tokens, to) };
        });
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
            ActFormat::F32 => ActRow::float(&self.x[index * self.cols..][..self.cols]),
            ActFormat::Q8x32 => self.scratch.q8x32.token(format, index, self.cols),
            ActFormat::Q8x256 => self.scratch.q8x256.token(format, index, self.cols),
        }
    }

    /// The rearranged form of a block of tokens, where there is one.
    fn packed(&self, format: ActFormat, tokens: Range<usize>) -> &[VectorBytes] {
        match format {
            ActFormat::F32 => {
                let vectors = self.cols.div_ceil(VectorBytes::FLOATS);
                self.scratch.floats.get(tokens.start * vectors..tokens.end * vectors).unwrap_or_default()
            }
            _ => &[],
        }
    }
}

/// A pointer to an output that several tasks write disjoint parts of.
#[derive(Clone, Copy)]
struct Output(*mut f32);

// SAFETY: tasks write disjoint elements (each row of a matrix belongs to one task) and nobody reads before the pool's
// call has ended.
unsafe impl Sync for Output {}

/// Rows `first..first + count` of matrix `matrix`.
struct MatrixRows {
    matrix: usize,
    first: usize,
    count: usize,
}

/// Splits the rows of all matrices into tasks.
fn tasks(isa: Isa, threads: usize, weights: &[Matrix<'_>], m: usize) -> Vec<MatrixRows> {
    let mut tasks = Vec::new();
    let mut rest: usize = weights.iter().map(|weight| weight.bytes().len()).sum();
    for (matrix, weight) in weights.iter().enumerate() {
        let most = match panel_kernel(kernel(isa, weight.ty()), m) {
            Some(_) => panels_per_task(weight) * PANEL_ROWS,
            None => usize::MAX,
        };
        let mut first = 0;
        while first < weight.rows() {
            let bytes = (rest / (TASK_SHARES * threads)).max(TASK_MIN_BYTES);
            let count = (bytes / weight.row_bytes().max(1)).next_multiple_of(PANEL_ROWS).max(PANEL_ROWS);
            let count = count.min(most).min(weight.rows() - first);
            tasks.push(MatrixRows { matrix, first, count });
            first += count;
            rest -= count * weight.row_bytes();
        }
    }
    tasks
}

fn panel_kernel(kernel: Kernel, m: usize) -> Option<PanelKernel> {
    kernel.panel.filter(|_| m >= PANEL_MIN_TOKENS)
}

fn panels_per_task(weight: &Matrix<'_>) -> usize {
    let cols = weight.cols().max(1);
    if weight.ty().block_len() == 1 {
        return (FLOAT_PANELS_BYTES / (4 * cols * PANEL_ROWS)).clamp(1, FLOAT_PANELS);
    }
    // A panel has a byte per element and a little more.
    (PANELS_BYTES / (cols * PANEL_ROWS)).clamp(1, 64)
}

fn tokens_per_block(format: ActFormat, cols: usize) -> usize {
    match format {
        ActFormat::F32 => FLOAT_TOKENS,
        _ => (TOKENS_BYTES / cols.max(1)).max(1).next_multiple_of(TILE_TOKENS),
    }
}

/// `outputs`: `[m, rows]` of each matrix.
fn multiply(isa: Isa, pool: &ThreadPool, acts: &Activations<'_>, weights: &[Matrix<'_>], outputs: &[Output]) {
    let tasks = tasks(isa, pool.threads(), weights, acts.m);
    pool.parallel(tasks.len(), &|index| {
        let task = &tasks[index];
        let work = Work { acts, weight: &weights[task.matrix], out: outputs[task.matrix], rows: task };
        let kernel = kernel(isa, weights[task.matrix].ty());
        match panel_kernel(kernel, acts.m) {
            Some(panel) => work.run_panels(kernel.format, panel),
            None => work.run_rows(kernel),
        }
    });
}

/// Up to [`PANEL_ROWS`] rows.
struct RowGroup<'a> {
    first: usize,
    count: usize,
    rows: &'a [u8],
    /// The rows of the group after this one; none after the last of a task.
    next: &'a [u8],
}

/// The operands of a task.
struct Work<'a> {
    acts: &'a Activations<'a>,
    weight: &'a Matrix<'a>,
    out: Output,
    rows: &'a MatrixRows,
}

impl Work<'_> {
    /// The groups of rows of the task that kernels take.
    fn row_groups(&self) -> impl Iterator<Item = RowGroup<'_>> {
        let (end, row_bytes) = (self.rows.first + self.rows.count, self.weight.row_bytes());
        (self.rows.first..end).step_by(PANEL_ROWS).map(move |first| {
            let count = PANEL_ROWS.min(end - first);
            let bytes = &self.weight.bytes()[first * row_bytes..end * row_bytes];
            let (rows, rest) = bytes.split_at(count * row_bytes);
            RowGroup { first, count, rows, next: &rest[..rest.len().min(rows.len())] }
        })
    }

    /// Writes the outputs of rows `first..first + dots.len()` for token `t`.
    #[inline(always)]
    fn write(&self, t: usize, first: usize, dots: &[f32]) {
        let rows = self.weight.rows();
        assert!(t < self.acts.m && first + dots.len() <= rows);
        // SAFETY: the output is `[m, rows]` by the slice that `linear_with` took, and the place is inside by the check
        // above; no other task has these rows.
        unsafe { std::ptr::copy_nonoverlapping(dots.as_ptr(), self.out.0.add(t * rows + first), dots.len()) };
    }

    /// Rows as they are in the file.
    fn run_rows(&self, kernel: Kernel) {
        for group in self.row_groups() {
            for t in 0..self.acts.m {
                let next = if t == 0 { group.next } else { &[] };
                let x = self.acts.row(kernel.format, t);
                // SAFETY: `linear_with` has checked that the instruction set is there; `rows` are whole rows of `cols`
                // elements, as many as the activations have.
                let dots = unsafe { (kernel.rows)(group.rows, group.count, next, x) };
                self.write(t, group.first, &dots[..group.count]);
            }
        }
    }

    /// Rows rearranged first.
    fn run_panels(&self, format: ActFormat, kernel: PanelKernel) {
        PANELS.with_borrow_mut(|(panels, dots)| {
            let groups: Vec<_> = self.row_groups().collect();
            panels.resize_with(groups.len().max(panels.len()), Panel::default);
            for (group, panel) in groups.iter().zip(panels.iter_mut()) {
                // SAFETY: `linear_with` has checked that the instruction set is there; `rows` are whole rows.
                unsafe { (kernel.pack)(group.rows, group.count, panel) };
            }
            let panels = &panels[..groups.len()];
            let step = tokens_per_block(format, self.acts.cols);
            for start in (0..self.acts.m).step_by(step) {
                let tokens = start..self.acts.m.min(start + step);
                let x: Vec<ActRow<'_>> = tokens.clone().map(|t| self.acts.row(format, t)).collect();
                let packed = self.acts.packed(format, tokens.clone());
                // What was there before is not read.
                dots.resize(panels.len() * x.len(), [0.0; PANEL_ROWS]);
                // SAFETY: `linear_with` has checked that the instruction set is there; the panels were packed from
                // rows of `cols` elements, as many as the activations have.
                unsafe { (kernel.multiply)(panels, Tokens { acts: &x, packed }, dots) };
                for (i, t) in tokens.enumerate() {
                    for (group, dots) in groups.iter().zip(dots[i..].iter().step_by(x.len())) {
                        // A copy of a known size is two instructions.
                        match group.count {
                            PANEL_ROWS => self.write(t, group.first, dots),
                            count => self.write(t, group.first, &dots[..count]),
                        }
                    }
                }
            }
        });
    }
}

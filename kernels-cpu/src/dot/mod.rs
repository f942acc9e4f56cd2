//! Dot products of matrix rows with activations: one table of functions per instruction set.
//!
//! The order of operations of an output is fixed here and shared by every kernel (`w` a row, `x` a token):
//!
//! - Blocks of 32: `acc = fma(f32(sum q_w q_x), d_w * d_x, acc)` block after block; formats with a minimum then add
//!   `acc = fma(m_w, d_x * f32(sum q_x), acc)`.
//! - Superblocks of 256: `acc = fma(f32(sum scale_j q_w q_x), d_w * d_x, acc)`; formats with minima then add
//!   `acc = fma(-(dmin_w * d_x), f32(sum min_j sum q_x), acc)`.
//! - Floats: eight lanes, `lane[k % 8] = fma(w_k, x_k, lane[k % 8])` in order of `k` (a last partial group of eight is
//!   filled with zeros), then `((l0+l1)+(l2+l3)) + ((l4+l5)+(l6+l7))`.
//!
//! Sums of integers are exact, so a kernel may split and order them as it likes. Since an output has one accumulator,
//! rows can be the lanes of a vector, whether they come from the file's layout or a repacked one.

mod format;
mod scalar;

use crate::activations::{ActFormat, ActRow};
use crate::block::BlockType;
use crate::isa::Isa;

/// Rows that one call of a kernel handles.
pub(crate) const PANEL_ROWS: usize = 8;

/// Dot products of up to [`PANEL_ROWS`] consecutive rows with one token.
///
/// `rows` holds `row_count` rows of `rows.len() / row_count` bytes; entries of the result past `row_count` are
/// unspecified.
///
/// # Safety
/// The instruction set of the kernel must be available, and `rows` must be whole rows of as many elements as `x`.
pub(crate) type RowsKernel = unsafe fn(rows: &[u8], row_count: usize, x: ActRow<'_>) -> [f32; PANEL_ROWS];

/// The kernels for one type of weights on one instruction set.
#[derive(Clone, Copy)]
pub(crate) struct Kernel {
    /// What `rows` wants the activations as.
    pub format: ActFormat,
    pub rows: RowsKernel,
}

/// The kernels for weights of type `ty`.
pub(crate) fn kernel(_isa: Isa, ty: BlockType) -> Kernel {
    scalar::kernel(ty)
}

/// Activations that weights of type `ty` are multiplied with.
const fn act_format(ty: BlockType) -> ActFormat {
    match ty.block_len() {
        1 => ActFormat::F32,
        32 => ActFormat::Q8x32,
        _ => ActFormat::Q8x256,
    }
}

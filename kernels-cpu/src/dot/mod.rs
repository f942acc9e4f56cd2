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

#[cfg(target_arch = "x86_64")]
mod avx2;
mod format;
mod scalar;

use ember_formats::GgmlType;

use crate::activations::{self, ActFormat, ActRow};
use crate::isa::Isa;

/// Rows that one call of a kernel handles.
pub(crate) const PANEL_ROWS: usize = 8;

/// Tokens that panels of integers meet at a time.
pub(crate) const TILE_TOKENS: usize = 4;

/// Dot products of up to [`PANEL_ROWS`] consecutive rows with one token.
///
/// `rows` holds `row_count` > 0 rows of `rows.len() / row_count` bytes; entries of the result past `row_count` are
/// unspecified. `next` are rows that will be asked for soon (or nothing), for the kernel to fetch ahead.
///
/// # Safety
/// The instruction set of the kernel must be available, and `rows` must be whole rows of as many elements as `x`, which
/// must be in the kernel's format.
pub(crate) type RowsKernel =
    unsafe fn(rows: &[u8], row_count: usize, next: &[u8], x: ActRow<'_>) -> [f32; PANEL_ROWS];

/// The kernels for one type of weights on one instruction set.
#[derive(Clone, Copy)]
pub(crate) struct Kernel {
    /// The activations that the kernels take.
    pub format: ActFormat,
    /// For few tokens.
    pub rows: RowsKernel,
    /// For many tokens, where the instruction set has something faster than `rows` for each.
    pub panel: Option<PanelKernel>,
}

/// Kernels that first rearrange eight rows and then multiply them with many tokens.
#[derive(Clone, Copy)]
pub(crate) struct PanelKernel {
    /// Rearranges `row_count` > 0 rows.
    ///
    /// # Safety
    /// The instruction set must be available and `rows` must be whole rows.
    pub pack: unsafe fn(rows: &[u8], row_count: usize, panel: &mut Panel),
    /// Rearranges tokens, where `multiply` wants that.
    pub pack_tokens: Option<PackTokens>,
    /// Dot products of the rows of panels with tokens: `out` is `[panels, tokens]`.
    ///
    /// # Safety
    /// The instruction set must be available, `panels` come from this pair's `pack`, and each of `x` have as many
    /// elements as their rows, in the kernel's format.
    pub multiply: unsafe fn(panels: &[Panel], x: Tokens<'_>, out: &mut [[f32; PANEL_ROWS]]),
}

/// Rearranges tokens into a vector per token and eight elements, the last filled with zeros.
///
/// # Safety
/// The instruction set must be available, the tokens of equal length, and `to` as long as they ask for.
pub(crate) type PackTokens = unsafe fn(x: &[ActRow<'_>], to: &mut [VectorBytes]);

/// Tokens that panels are multiplied with.
#[derive(Clone, Copy)]
pub(crate) struct Tokens<'a> {
    /// In the kernel's format.
    pub acts: &'a [ActRow<'a>],
    /// The same as [`PanelKernel::pack_tokens`] rearranged them, if there is one.
    pub packed: &'a [VectorBytes],
}

/// Eight rows in a layout that their [`PanelKernel`] knows.
#[derive(Default)]
pub(crate) struct Panel {
    vectors: Vec<VectorBytes>,
}

/// A vector's worth of bytes.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub(crate) struct VectorBytes([u8; 32]);

impl VectorBytes {
    /// Elements of f32.
    pub(crate) const FLOATS: usize = 8;
    /// All zeros.
    pub(crate) const ZERO: Self = Self([0; 32]);
}

impl Panel {
    /// Makes the panel `len` vectors long; their contents are whatever was there before.
    pub(crate) fn resize(&mut self, len: usize) -> &mut [VectorBytes] {
        self.vectors.resize(len, VectorBytes::ZERO);
        &mut self.vectors
    }

    /// The contents.
    pub(crate) fn vectors(&self) -> &[VectorBytes] {
        &self.vectors
    }
}

/// The kernels for weights of type `ty`.
pub(crate) fn kernel(isa: Isa, ty: GgmlType) -> Kernel {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::kernel(ty),
        _ => scalar::kernel(ty),
    }
}

/// Rounds one row of activations, see [`activations::quantize_row`].
///
/// # Safety
/// `isa` must be available.
pub(crate) unsafe fn quantize_row(
    isa: Isa,
    format: ActFormat,
    x: &[f32],
    q: &mut [i8],
    d: &mut [f32],
    sums: &mut [i16],
) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: by this function's contract.
        Isa::Avx2 => unsafe { avx2::quantize_row(format, x, q, d, sums) },
        _ => activations::quantize_row(format, x, q, d, sums),
    }
}

/// Activations that weights of type `ty` are multiplied with.
const fn act_format(ty: GgmlType) -> ActFormat {
    match ty.block_len() {
        1 => ActFormat::F32,
        32 => ActFormat::Q8x32,
        _ => ActFormat::Q8x256,
    }
}

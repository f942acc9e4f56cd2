//! Float weights with f32 activations: a few tokens. `float_panel.rs` has the kernel for many.

use std::arch::x86_64::*;

use ember_formats::GgmlType;

use super::rows::{Ahead, row_starts, to_array};
use super::vector::load_half;
use crate::activations::ActRow;
use crate::dot::PANEL_ROWS;

/// A float format that widens to f32.
pub(crate) trait Float {
    /// Bytes per element.
    const BYTES: usize;

    /// Eight elements.
    ///
    /// # Safety
    /// AVX2 and F16C must be available and `at` readable for eight elements.
    unsafe fn load(at: *const u8) -> __m256;
}

pub(crate) struct F32;
pub(crate) struct F16;
pub(crate) struct Bf16;

impl Float for F32 {
    const BYTES: usize = GgmlType::F32.block_bytes();
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn load(at: *const u8) -> __m256 {
        // SAFETY: by the trait's contract.
        unsafe { _mm256_loadu_ps(at.cast()) }
    }
}

impl Float for F16 {
    const BYTES: usize = GgmlType::F16.block_bytes();
    #[target_feature(enable = "avx2,f16c")]
    #[inline]
    unsafe fn load(at: *const u8) -> __m256 {
        // SAFETY: by the trait's contract.
        _mm256_cvtph_ps(unsafe { load_half(at) })
    }
}

impl Float for Bf16 {
    const BYTES: usize = GgmlType::BF16.block_bytes();
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn load(at: *const u8) -> __m256 {
        // SAFETY: by the trait's contract.
        let halves = _mm256_cvtepu16_epi32(unsafe { load_half(at) });
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(halves))
    }
}

/// The first `count` < 8 elements at `at`, then zeros.
///
/// # Safety
/// AVX2 and F16C must be available and `at` readable for `count` elements.
#[target_feature(enable = "avx2,f16c")]
#[inline]
pub(super) unsafe fn load_part<F: Float>(at: *const u8, count: usize) -> __m256 {
    let mut padded = [0u8; 32];
    // SAFETY: `count` elements are readable, and eight fit into `padded`, all zeros where not written.
    unsafe {
        std::ptr::copy_nonoverlapping(at, padded.as_mut_ptr(), count * F::BYTES);
        F::load(padded.as_ptr())
    }
}

/// Lane sums of eight vectors in the order that [`crate::dot`] fixes.
#[target_feature(enable = "avx2")]
#[inline]
fn sum_lanes(rows: [__m256; 8]) -> __m256 {
    let [a, b, c, d, e, f, g, h] = rows;
    let quads = |a, b, c, d| _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    let (top, bottom) = (quads(a, b, c, d), quads(e, f, g, h));
    _mm256_add_ps(_mm256_permute2f128_ps::<0x20>(top, bottom), _mm256_permute2f128_ps::<0x31>(top, bottom))
}

/// Kernel for a few tokens.
///
/// # Safety
/// As [`RowsKernel`](crate::dot::RowsKernel).
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn rows<F: Float>(
    rows: &[u8],
    row_count: usize,
    next: &[u8],
    x: ActRow<'_>,
) -> [f32; PANEL_ROWS] {
    let mut starts = row_starts(rows, row_count);
    let mut ahead = Ahead::new(next);
    let mut acc = [_mm256_setzero_ps(); PANEL_ROWS];
    let (groups, rest) = x.x.as_chunks::<8>();
    for x in groups {
        // SAFETY: `x` has eight elements, and so have the rows at this place.
        let x = unsafe { _mm256_loadu_ps(x.as_ptr()) };
        for (acc, at) in acc.iter_mut().zip(&mut starts) {
            // SAFETY: as above.
            *acc = _mm256_fmadd_ps(unsafe { F::load(*at) }, x, *acc);
            *at = at.wrapping_add(8 * F::BYTES);
        }
        ahead.step(PANEL_ROWS * 8 * F::BYTES);
    }
    if !rest.is_empty() {
        // SAFETY: `rest.len()` elements of `x` and of the rows are left.
        let x = unsafe { load_part::<F32>(rest.as_ptr().cast(), rest.len()) };
        for (acc, at) in acc.iter_mut().zip(starts) {
            // SAFETY: as above.
            *acc = _mm256_fmadd_ps(unsafe { load_part::<F>(at, rest.len()) }, x, *acc);
        }
    }
    to_array(sum_lanes(acc))
}

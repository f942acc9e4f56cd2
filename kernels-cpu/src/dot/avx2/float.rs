//! Float weights with f32 activations.

use std::arch::x86_64::*;

use super::rows::{Ahead, row_starts, to_array};
use super::vector::load_half;
use crate::activations::ActRow;
use crate::dot::{Chunk, PANEL_ROWS, Panel, PanelKernel, TILE_TOKENS};

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
    const BYTES: usize = 4;
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn load(at: *const u8) -> __m256 {
        // SAFETY: by the trait's contract.
        unsafe { _mm256_loadu_ps(at.cast()) }
    }
}

impl Float for F16 {
    const BYTES: usize = 2;
    #[target_feature(enable = "avx2,f16c")]
    #[inline]
    unsafe fn load(at: *const u8) -> __m256 {
        // SAFETY: by the trait's contract.
        _mm256_cvtph_ps(unsafe { load_half(at) })
    }
}

impl Float for Bf16 {
    const BYTES: usize = 2;
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
unsafe fn load_part<F: Float>(at: *const u8, count: usize) -> __m256 {
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

/// Kernel for many tokens. A panel's chunk `8 * g + r` has elements `8g..8g+8` of row `r` as f32.
pub(super) const fn kernel<F: Float>() -> PanelKernel {
    PanelKernel { pack: pack::<F>, multiply }
}

/// # Safety
/// As [`PanelKernel::pack`].
#[target_feature(enable = "avx2,f16c")]
unsafe fn pack<F: Float>(rows: &[u8], row_count: usize, panel: &mut Panel) {
    let mut starts = row_starts(rows, row_count);
    let cols = rows.len() / row_count / F::BYTES;
    for (g, group) in panel.resize(cols.div_ceil(8) * 8).chunks_exact_mut(8).enumerate() {
        let count = (cols - 8 * g).min(8);
        for (chunk, at) in group.iter_mut().zip(&mut starts) {
            // SAFETY: `count` elements are left in every row.
            let w = unsafe { if count == 8 { F::load(*at) } else { load_part::<F>(*at, count) } };
            // SAFETY: a chunk is 32 aligned bytes.
            unsafe { _mm256_store_ps(std::ptr::from_mut(chunk).cast(), w) };
            *at = at.wrapping_add(8 * F::BYTES);
        }
    }
}

/// # Safety
/// As [`PanelKernel::multiply`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn multiply(panel: &Panel, x: &[ActRow<'_>; TILE_TOKENS]) -> [[f32; PANEL_ROWS]; TILE_TOKENS] {
    let mut out = [[_mm256_setzero_ps(); PANEL_ROWS]; TILE_TOKENS];
    for (out, x) in out.as_chunks_mut::<2>().0.iter_mut().zip(x.as_chunks::<2>().0) {
        for half in 0..2 {
            // SAFETY: by this function's contract.
            let [a, b] = unsafe { multiply_4x2(panel.chunks(), 4 * half, x) };
            out[0][4 * half..][..4].copy_from_slice(&a);
            out[1][4 * half..][..4].copy_from_slice(&b);
        }
    }
    out.map(|lanes| to_array(sum_lanes(lanes)))
}

/// The lanes of four rows of a panel times two tokens: as many as registers hold.
///
/// # Safety
/// AVX2, FMA and F16C must be available; tokens must have as many elements as the panel's rows.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
unsafe fn multiply_4x2(panel: &[Chunk], first_row: usize, x: &[ActRow<'_>; 2]) -> [[__m256; 4]; 2] {
    let mut acc = [[_mm256_setzero_ps(); 4]; 2];
    let mut step = |group: &[Chunk; 8], x: [__m256; 2]| {
        for r in 0..4 {
            // SAFETY: a chunk is 32 aligned bytes.
            let w = unsafe { _mm256_load_ps(std::ptr::from_ref(&group[first_row + r]).cast()) };
            for (acc, x) in acc.iter_mut().zip(x) {
                acc[r] = _mm256_fmadd_ps(w, x, acc[r]);
            }
        }
    };
    let groups = panel.as_chunks::<8>().0;
    let cols = x[0].x.len();
    for (g, group) in groups.iter().enumerate().take(cols / 8) {
        // SAFETY: 8g + 8 <= cols, the length of both tokens.
        step(group, x.map(|x| unsafe { _mm256_loadu_ps(x.x.as_ptr().add(8 * g)) }));
    }
    if !cols.is_multiple_of(8) {
        let at = cols / 8 * 8;
        // SAFETY: `cols - at` elements are left.
        step(
            &groups[cols / 8],
            x.map(|x| unsafe { load_part::<F32>(x.x.as_ptr().add(at).cast(), cols - at) }),
        );
    }
    acc
}

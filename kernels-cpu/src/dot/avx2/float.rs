//! Float weights with f32 activations.

use std::arch::x86_64::*;
use std::cell::RefCell;

use super::rows::{Ahead, row_starts, to_array};
use super::vector::load_half;
use crate::activations::ActRow;
use crate::dot::{Chunk, PANEL_ROWS, Panel, PanelKernel};

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

/// Kernel for many tokens. A panel has its first four rows, then the other four: chunk `4 * g + r` of a half has elements
/// `8g..8g+8` of its row `r` as f32.
pub(super) const fn kernel<F: Float>() -> PanelKernel {
    PanelKernel { pack: pack::<F>, multiply }
}

/// Rows of half a panel: with three tokens, their sums fill the registers.
const HALF: usize = PANEL_ROWS / 2;

/// Groups of eight elements after which the sums are set aside: so much of half a panel, and of three tokens, stays in
/// the first-level cache while all tokens pass, and so much of all panels and tokens in the second.
const NEAR_GROUPS: usize = 128;

thread_local! {
    /// Sums of the thread's products.
    static SUMS: RefCell<Vec<[__m256; HALF]>> = RefCell::default();
}

/// # Safety
/// As [`PanelKernel::pack`].
#[target_feature(enable = "avx2,f16c")]
unsafe fn pack<F: Float>(rows: &[u8], row_count: usize, panel: &mut Panel) {
    let starts = row_starts(rows, row_count);
    let cols = rows.len() / row_count / F::BYTES;
    let groups = cols.div_ceil(8);
    let halves = panel.resize(groups * PANEL_ROWS).chunks_exact_mut((groups * HALF).max(1));
    for (half, starts) in halves.zip(starts.as_chunks::<HALF>().0) {
        for (g, group) in half.chunks_exact_mut(HALF).enumerate() {
            let count = (cols - 8 * g).min(8);
            for (chunk, at) in group.iter_mut().zip(starts) {
                let at = at.wrapping_add(8 * g * F::BYTES);
                // SAFETY: `count` elements are left in every row.
                let w = unsafe { if count == 8 { F::load(at) } else { load_part::<F>(at, count) } };
                // SAFETY: a chunk is 32 aligned bytes.
                unsafe { _mm256_store_ps(std::ptr::from_mut(chunk).cast(), w) };
            }
        }
    }
}

/// # Safety
/// As [`PanelKernel::multiply`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn multiply(panels: &[Panel], x: &[ActRow<'_>], out: &mut [[f32; PANEL_ROWS]]) {
    let Some(cols) = x.first().map(|x| x.x.len()).filter(|&cols| cols > 0) else { return };
    SUMS.with_borrow_mut(|sums| {
        // Of each half panel and token; what was there before is not read.
        sums.resize(2 * panels.len() * x.len(), [_mm256_setzero_ps(); HALF]);
        // SAFETY: by this function's contract.
        unsafe { multiply_into(panels, x, cols, sums) };
        for (out, sums) in out.chunks_exact_mut(x.len()).zip(sums.chunks_exact(2 * x.len())) {
            let (first, second) = sums.split_at(x.len());
            for (out, (&[a, b, c, d], &[e, f, g, h])) in out.iter_mut().zip(first.iter().zip(second)) {
                *out = to_array(sum_lanes([a, b, c, d, e, f, g, h]));
            }
        }
    });
}

/// The lanes of each half panel times each token: `sums` is `[half panels, tokens]`.
///
/// # Safety
/// As [`PanelKernel::multiply`]; the tokens have `cols` elements.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
unsafe fn multiply_into(panels: &[Panel], x: &[ActRow<'_>], cols: usize, sums: &mut [[__m256; HALF]]) {
    let groups = cols.div_ceil(8);
    for near in (0..groups).step_by(NEAR_GROUPS) {
        let near = near..groups.min(near + NEAR_GROUPS);
        let halves =
            panels.iter().flat_map(|panel| panel.chunks().as_chunks::<HALF>().0.chunks_exact(groups));
        for (half, sums) in halves.zip(sums.chunks_exact_mut(x.len())) {
            // SAFETY: by this function's contract.
            unsafe { add_tokens(&half[near.clone()], x, 8 * near.start, cols, sums) };
        }
    }
}

/// [`tile`] for every token.
///
/// # Safety
/// As [`tile`].
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
unsafe fn add_tokens(
    panel: &[[Chunk; HALF]],
    x: &[ActRow<'_>],
    start: usize,
    cols: usize,
    sums: &mut [[__m256; HALF]],
) {
    let mut t = 0;
    while t < x.len() {
        let (x, sums) = (&x[t..], &mut sums[t..]);
        // SAFETY: by this function's contract.
        t += unsafe {
            match x.len() {
                1 => tile::<1>(panel, x, start, cols, sums),
                // Two pairs take less time than a tile of three and one alone.
                2 | 4 => tile::<2>(panel, x, start, cols, sums),
                _ => tile::<3>(panel, x, start, cols, sums),
            }
        };
    }
}

/// Adds to `sums`, which from `start` 0 on begin with zero, the lanes of the first `T` tokens' elements from `start` on times
/// those of half a panel, and returns `T`.
///
/// # Safety
/// AVX2, FMA and F16C must be available; tokens must have `cols` elements, and `panel` begin with their element `start`.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
unsafe fn tile<const T: usize>(
    panel: &[[Chunk; HALF]],
    x: &[ActRow<'_>],
    start: usize,
    cols: usize,
    sums: &mut [[__m256; HALF]],
) -> usize {
    let (x, sums) = (x.first_chunk::<T>(), sums.first_chunk_mut::<T>());
    let (x, to) = (x.expect("`T` tokens are left"), sums.expect("one entry for each token"));
    let starts: [*const f32; T] = std::array::from_fn(|t| x[t].x.as_ptr().wrapping_add(start));
    let whole = panel.len().min((cols - start) / 8);
    let mut sums = if start == 0 { [[_mm256_setzero_ps(); HALF]; T] } else { *to };
    for (g, group) in panel[..whole].iter().enumerate() {
        // SAFETY: `start + 8g + 8 <= cols`, the length of every token.
        let x = starts.map(|at| unsafe { _mm256_loadu_ps(at.add(8 * g)) });
        add_products(&mut sums, group, x);
    }
    if let Some(group) = panel.get(whole) {
        let count = cols - start - 8 * whole;
        // SAFETY: `count` < 8 elements of every token are left.
        let x = starts.map(|at| unsafe { load_part::<F32>(at.add(8 * whole).cast(), count) });
        add_products(&mut sums, group, x);
    }
    *to = sums;
    T
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn add_products<const T: usize>(sums: &mut [[__m256; HALF]; T], group: &[Chunk; HALF], x: [__m256; T]) {
    for r in 0..HALF {
        // SAFETY: a chunk is 32 aligned bytes.
        let w = unsafe { _mm256_load_ps(std::ptr::from_ref(&group[r]).cast()) };
        for (sums, x) in sums.iter_mut().zip(x) {
            sums[r] = _mm256_fmadd_ps(w, x, sums[r]);
        }
    }
}

//! Float weights with f32 activations: many tokens.
//!
//! A panel has its first four rows, then the other four: vector `4 * g + r` of a half has elements `8g..8g+8` of its row `r`
//! as f32. Tokens go in tiles of three: with half a panel, their lanes' sums fill the registers. They are rearranged once per
//! call into the order in which tiles read them, so that all reading is in sequence.

use std::arch::x86_64::*;
use std::cell::RefCell;
use std::ops::Range;

use super::float::{F32, Float, load_part};
use super::rows::row_starts;
use crate::activations::ActRow;
use crate::dot::{PANEL_ROWS, Panel, PanelKernel, Tokens, VectorBytes};

pub(super) const fn kernel<F: Float>() -> PanelKernel {
    PanelKernel { pack: pack::<F>, pack_tokens: Some(pack_tokens), multiply }
}

/// Rows of half a panel.
const HALF: usize = PANEL_ROWS / 2;

/// Groups of eight elements after which the sums are set aside: so much of a panel stays in the first-level cache while
/// tile after tile passes, and so much of all panels and tokens of a call in the second.
const NEAR_GROUPS: usize = 64;

/// Groups that a round of the innermost loop takes.
const UNROLL: usize = 4;

thread_local! {
    /// Sums that the thread's products set aside.
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
            for (to, at) in group.iter_mut().zip(starts) {
                let at = at.wrapping_add(8 * g * F::BYTES);
                // SAFETY: `count` elements are left in every row.
                let w = unsafe { if count == 8 { F::load(at) } else { load_part::<F>(at, count) } };
                // SAFETY: they are 32 aligned bytes.
                unsafe { _mm256_store_ps(std::ptr::from_mut(to).cast(), w) };
            }
        }
    }
}

/// Tokens that are multiplied at once: threes, but two pairs rather than three and one alone.
fn tiles(tokens: usize) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let left = tokens - start;
        let tile = start..start + if left == 4 { 2 } else { left.min(3) };
        start = tile.end;
        (left > 0).then_some(tile)
    })
}

/// The groups before which sums are set aside, of `groups`.
fn nears(groups: usize) -> impl Iterator<Item = Range<usize>> {
    (0..groups).step_by(NEAR_GROUPS).map(move |start| start..groups.min(start + NEAR_GROUPS))
}

/// Near after near, tile after tile of `T` tokens: `[groups, T]`, the last group filled with zeros.
///
/// # Safety
/// As [`PackTokens`](crate::dot::PackTokens).
#[target_feature(enable = "avx2,f16c")]
unsafe fn pack_tokens(x: &[ActRow<'_>], mut to: &mut [VectorBytes]) {
    let groups = to.len() / x.len();
    for near in nears(groups) {
        for tile in tiles(x.len()) {
            let tile_len = tile.len();
            let tile_to =
                to.split_off_mut(..near.len() * tile_len).expect("a place for every group of every token");
            for (t, x) in x[tile].iter().enumerate() {
                let x = &x.x[8 * near.start..x.x.len().min(8 * near.end)];
                for (to, x) in tile_to[t..].iter_mut().step_by(tile_len).zip(x.chunks(8)) {
                    let lanes = load_up_to_eight(x);
                    // SAFETY: they are 32 aligned bytes.
                    unsafe { _mm256_store_ps(std::ptr::from_mut(to).cast(), lanes) };
                }
            }
        }
    }
}

#[target_feature(enable = "avx2,f16c")]
#[inline]
fn load_up_to_eight(x: &[f32]) -> __m256 {
    let at = x.as_ptr().cast();
    // SAFETY: `x.len()` elements are readable.
    unsafe { if x.len() == 8 { F32::load(at) } else { load_part::<F32>(at, x.len()) } }
}

/// # Safety
/// As [`PanelKernel::multiply`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn multiply(panels: &[Panel], x: Tokens<'_>, out: &mut [[f32; PANEL_ROWS]]) {
    let count = x.acts.len();
    let groups = x.packed.len() / count;
    if groups == 0 {
        return out.fill([0.0; PANEL_ROWS]);
    }
    SUMS.with_borrow_mut(|sums| {
        // Of each panel and tile of `T` tokens, `[halves, T]`; what was there before is not read.
        sums.resize(2 * panels.len() * count, [_mm256_setzero_ps(); HALF]);
        for near in nears(groups) {
            let tokens = &x.packed[near.start * count..near.end * count];
            let of_panels = sums.chunks_exact_mut(2 * count).zip(out.chunks_exact_mut(count));
            for (panel, (sums, out)) in panels.iter().zip(of_panels) {
                let halves = panel.vectors().as_chunks::<HALF>().0.split_at(groups);
                let halves = [&halves.0[near.clone()], &halves.1[near.clone()]];
                let out = (near.end == groups).then_some(out);
                add_tiles(halves, tokens, near.start == 0, sums, out);
            }
        }
    });
}

/// [`add_tile`] for both halves of a panel and all tokens, and the outputs of the last.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn add_tiles(
    halves: [&[[VectorBytes; HALF]]; 2],
    tokens: &[VectorBytes],
    first: bool,
    sums: &mut [[__m256; HALF]],
    mut out: Option<&mut [[f32; PANEL_ROWS]]>,
) {
    let groups = halves[0].len();
    for tile in tiles(tokens.len() / groups) {
        let x = &tokens[tile.start * groups..tile.end * groups];
        let sums = &mut sums[2 * tile.start..2 * tile.end];
        for (h, (half, sums)) in halves.into_iter().zip(sums.chunks_exact_mut(tile.len())).enumerate() {
            // While a half passes, half of the next tile's tokens are fetched.
            let next = x.as_ptr_range().end.wrapping_add(h * x.len() / 2);
            match tile.len() {
                1 => add_tile::<1>(half, x, next, first, sums),
                2 => add_tile::<2>(half, x, next, first, sums),
                _ => add_tile::<3>(half, x, next, first, sums),
            }
            if let Some(out) = &mut out {
                for (out, sums) in out[tile.clone()].iter_mut().zip(sums) {
                    out.as_chunks_mut().0[h] = sum_lanes(*sums);
                }
            }
        }
    }
}

/// Lane sums of four vectors in the order that [`crate::dot`] fixes.
#[target_feature(enable = "avx2")]
#[inline]
fn sum_lanes([a, b, c, d]: [__m256; HALF]) -> [f32; HALF] {
    let quads = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    let sums = _mm_add_ps(_mm256_castps256_ps128(quads), _mm256_extractf128_ps::<1>(quads));
    let mut out = [0.0; HALF];
    // SAFETY: room for four.
    unsafe { _mm_storeu_ps(out.as_mut_ptr(), sums) };
    out
}

/// Adds to `sums`, which `first` begin with zero, the lanes of `T` tokens (`[groups, T]`) times those of half a panel.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn add_tile<const T: usize>(
    half: &[[VectorBytes; HALF]],
    x: &[VectorBytes],
    next: *const VectorBytes,
    first: bool,
    sums: &mut [[__m256; HALF]],
) {
    let to = sums.first_chunk_mut::<T>().expect("one entry for each token");
    let mut sums = if first { [[_mm256_setzero_ps(); HALF]; T] } else { *to };
    let x = x.as_chunks::<T>().0;
    // Unrolled, so that the processor foresees the end of the loop.
    let ((half, half_rest), (x, x_rest)) = (half.as_chunks::<UNROLL>(), x.as_chunks::<UNROLL>());
    for (u, (half, x)) in half.iter().zip(x).enumerate() {
        for line in (0..UNROLL * T / 2).step_by(2) {
            _mm_prefetch::<_MM_HINT_T0>(next.wrapping_add(u * UNROLL * T / 2 + line).cast());
        }
        for i in 0..UNROLL {
            add_group(&half[i], &x[i], &mut sums);
        }
    }
    for (half, x) in half_rest.iter().zip(x_rest) {
        add_group(half, x, &mut sums);
    }
    *to = sums;
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn add_group<const T: usize>(
    group: &[VectorBytes; HALF],
    x: &[VectorBytes; T],
    sums: &mut [[__m256; HALF]; T],
) {
    let x = x.each_ref().map(|x| load(x));
    for r in 0..HALF {
        let w = load(&group[r]);
        for (sums, x) in sums.iter_mut().zip(x) {
            sums[r] = _mm256_fmadd_ps(w, x, sums[r]);
        }
    }
}

#[target_feature(enable = "avx")]
#[inline]
fn load(from: &VectorBytes) -> __m256 {
    // SAFETY: they are 32 aligned bytes.
    unsafe { _mm256_load_ps(std::ptr::from_ref(from).cast()) }
}

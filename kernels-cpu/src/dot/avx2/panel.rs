//! Eight rows times four tokens: for prompts, where each weight is used many times.
//!
//! A panel holds eight rows with their codes widened to bytes and dealt out so that a vector's lane is a row: vector `g`
//! of a block has elements `4g..4g+4` of each row. Four bytes of a token, repeated in every lane, then multiply eight
//! rows at once, and no sum across lanes is ever needed.

use std::arch::x86_64::*;

use super::codes32::Codes32;
use super::codes256::Codes256;
use super::rows::{row_starts, to_array};
use super::vector::*;
use crate::activations::ActRow;
use crate::dot::{PANEL_ROWS, Panel, PanelKernel, TILE_TOKENS, Tokens, VectorBytes};

pub(super) const fn kernel32<F: Codes32>() -> PanelKernel {
    PanelKernel { pack: pack32::<F>, pack_tokens: None, multiply: by_tiles32::<F> }
}

pub(super) const fn kernel256<F: Codes256>() -> PanelKernel {
    PanelKernel { pack: pack256::<F>, pack_tokens: None, multiply: by_tiles256::<F> }
}

/// Vectors of a block of 32 in a panel: 8 of codes, then f32 scales, then f32 minima if any.
const fn record32<F: Codes32>() -> usize {
    8 + 1 + F::HAS_MIN as usize
}

/// Vectors of a superblock in a panel, see [`Layout256`].
const fn record256<F: Codes256>() -> usize {
    Layout256::of::<F>().len
}

/// Offsets of the parts of a superblock in a panel, in vectors; codes are at 0.
struct Layout256 {
    /// i16 scales, each twice in its lane, a vector per group.
    scales: usize,
    /// Factors of the activation sums: i16 minima, or scales times the code offset; pairs in split order.
    sums: usize,
    /// f32 `d`, then `dmin` if any.
    d: usize,
    len: usize,
}

impl Layout256 {
    const fn of<F: Codes256>() -> Self {
        let scales = 64;
        let sums = scales + 256 / F::GROUP;
        let d = sums + if F::HAS_MIN || F::OFFSET != 0 { 8 } else { 0 };
        Self { scales, sums, d, len: d + 1 + F::HAS_MIN as usize }
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn store(to: &mut VectorBytes, v: __m256i) {
    // SAFETY: they are 32 aligned bytes.
    unsafe { _mm256_store_si256(std::ptr::from_mut(to).cast(), v) };
}

#[target_feature(enable = "avx2")]
#[inline]
fn store_f32(to: &mut VectorBytes, v: __m256) {
    store(to, _mm256_castps_si256(v));
}

#[target_feature(enable = "avx2")]
#[inline]
fn read(from: &VectorBytes) -> __m256i {
    // SAFETY: they are 32 aligned bytes.
    unsafe { _mm256_load_si256(std::ptr::from_ref(from).cast()) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn read_f32(from: &VectorBytes) -> __m256 {
    _mm256_castsi256_ps(read(from))
}

/// # Safety
/// As [`PanelKernel::pack`].
#[target_feature(enable = "avx2,f16c")]
unsafe fn pack32<F: Codes32>(rows: &[u8], row_count: usize, panel: &mut Panel) {
    let mut blocks = row_starts(rows, row_count);
    let block_count = rows.len() / row_count / F::BYTES;
    for record in panel.resize(block_count * record32::<F>()).chunks_exact_mut(record32::<F>()) {
        // SAFETY: every pointer is at a whole block of its row.
        let (codes, d) = unsafe { (blocks.map(|block| F::codes(block)), gather_f16(&blocks, 0)) };
        for (to, codes) in record.iter_mut().zip(transpose_dwords(codes)) {
            store(to, codes);
        }
        store_f32(&mut record[8], d);
        if F::HAS_MIN {
            // SAFETY: as above.
            store_f32(&mut record[9], unsafe { gather_f16(&blocks, 2) });
        }
        blocks = blocks.map(|block| block.wrapping_add(F::BYTES));
    }
}

/// # Safety
/// As [`PanelKernel::pack`].
#[target_feature(enable = "avx2,f16c")]
unsafe fn pack256<F: Codes256>(rows: &[u8], row_count: usize, panel: &mut Panel) {
    let layout = const { Layout256::of::<F>() };
    let mut blocks = row_starts(rows, row_count);
    let block_count = rows.len() / row_count / F::BYTES;
    for record in panel.resize(block_count * layout.len).chunks_exact_mut(record256::<F>()) {
        // SAFETY (all of this loop): every pointer is at a whole superblock of its row.
        let codes = blocks.map(|block| unsafe { F::codes(block) });
        for j in 0..8 {
            let quads = transpose_dwords(std::array::from_fn(|r| codes[r][j]));
            for (to, quads) in record[8 * j..].iter_mut().zip(quads) {
                store(to, quads);
            }
        }
        let both = blocks.map(|block| unsafe { F::split_scales(block) });
        // Element `i` of a lane has split-order values 2i and 2i + 1: groups 4i and 4i + 2, or from `i` = 4 odd ones.
        let scales = transpose_dwords(std::array::from_fn(|r| both[r].0));
        for (i, pair) in scales.into_iter().enumerate() {
            for (of_pair, group) in [4 * (i % 4) + i / 4, 4 * (i % 4) + 2 + i / 4].into_iter().enumerate() {
                if F::GROUP == 32 && group % 2 == 1 {
                    continue; // the same scale as the group before
                }
                let twice = if of_pair == 0 {
                    _mm256_blend_epi16::<0xaa>(pair, _mm256_slli_epi32::<16>(pair))
                } else {
                    _mm256_blend_epi16::<0x55>(pair, _mm256_srli_epi32::<16>(pair))
                };
                store(&mut record[layout.scales + group / (F::GROUP / 16)], twice);
            }
        }
        if layout.d > layout.sums {
            let factors = both.map(|(scales, mins)| {
                if F::HAS_MIN { mins } else { _mm256_mullo_epi16(scales, _mm256_set1_epi16(F::OFFSET)) }
            });
            for (to, pair) in record[layout.sums..].iter_mut().zip(transpose_dwords(factors)) {
                store(to, pair);
            }
        }
        store_f32(&mut record[layout.d], unsafe { gather_f16(&blocks, F::D_AT) });
        if F::HAS_MIN {
            store_f32(&mut record[layout.d + 1], unsafe { gather_f16(&blocks, F::D_AT + 2) });
        }
        blocks = blocks.map(|block| block.wrapping_add(F::BYTES));
    }
}

/// Four bytes or two i16 at `at`, in every lane.
///
/// # Safety
/// AVX2 must be available and `at` readable for four bytes.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn broadcast<T>(at: *const T) -> __m256i {
    // SAFETY: by this function's contract.
    _mm256_set1_epi32(unsafe { at.cast::<i32>().read_unaligned() })
}

/// Adds the products of up to `DEPTH` vectors of codes with the tokens at `x`, each a sum of two in an i16.
///
/// # Safety
/// AVX2 must be available, and every token readable for `4 * codes.len()` bytes.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn add_pairs<const SIGNED: bool>(
    codes: &[VectorBytes],
    x: [*const i8; TILE_TOKENS],
) -> [__m256i; TILE_TOKENS] {
    let mut pairs = [_mm256_setzero_si256(); TILE_TOKENS];
    for (g, codes) in codes.iter().enumerate() {
        let codes = read(codes);
        for (pairs, x) in pairs.iter_mut().zip(x) {
            // SAFETY: by this function's contract.
            let x = unsafe { broadcast(x.add(4 * g)) };
            *pairs = _mm256_add_epi16(*pairs, multiply_pairs::<SIGNED>(codes, x));
        }
    }
    pairs
}

/// [`add_pairs`] for either kind of codes.
macro_rules! pairs {
    ($F:ty, $codes:expr, $x:expr) => {
        // SAFETY: the caller's tokens have as many elements as the panel.
        unsafe { if <$F>::SIGNED { add_pairs::<true>($codes, $x) } else { add_pairs::<false>($codes, $x) } }
    };
}

/// # Safety
/// As [`PanelKernel::multiply`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn by_tiles32<F: Codes32>(panels: &[Panel], x: Tokens<'_>, out: &mut [[f32; PANEL_ROWS]]) {
    for (panel, out) in panels.iter().zip(out.chunks_exact_mut(x.acts.len())) {
        for (x, out) in tiles(x.acts, out) {
            // SAFETY: by this function's contract.
            let dots = unsafe { multiply32::<F>(panel, &x) };
            out.copy_from_slice(&dots[..out.len()]);
        }
    }
}

/// # Safety
/// As [`PanelKernel::multiply`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn by_tiles256<F: Codes256>(panels: &[Panel], x: Tokens<'_>, out: &mut [[f32; PANEL_ROWS]]) {
    for (panel, out) in panels.iter().zip(out.chunks_exact_mut(x.acts.len())) {
        for (x, out) in tiles(x.acts, out) {
            // SAFETY: by this function's contract.
            let dots = unsafe { multiply256::<F>(panel, &x) };
            out.copy_from_slice(&dots[..out.len()]);
        }
    }
}

/// [`TILE_TOKENS`] tokens at a time; a last tile that is not full repeats its last token.
fn tiles<'a, 'b>(
    x: &'b [ActRow<'a>],
    out: &'b mut [[f32; PANEL_ROWS]],
) -> impl Iterator<Item = ([ActRow<'a>; TILE_TOKENS], &'b mut [[f32; PANEL_ROWS]])> {
    let full = |x: &[ActRow<'a>]| std::array::from_fn(|i| x[i.min(x.len() - 1)]);
    x.chunks(TILE_TOKENS).map(full).zip(out.chunks_mut(TILE_TOKENS))
}

/// # Safety
/// As [`PanelKernel::multiply`], for a tile.
#[target_feature(enable = "avx2,fma")]
unsafe fn multiply32<F: Codes32>(
    panel: &Panel,
    x: &[ActRow<'_>; TILE_TOKENS],
) -> [[f32; PANEL_ROWS]; TILE_TOKENS] {
    let mut acc = [_mm256_setzero_ps(); TILE_TOKENS];
    let mut x_q = x.map(|x| x.q.as_ptr());
    for (b, record) in panel.vectors().chunks_exact(record32::<F>()).enumerate() {
        let mut dots = [_mm256_setzero_si256(); TILE_TOKENS];
        for (step, codes) in record[..8].chunks_exact(F::DEPTH).enumerate() {
            let at = x_q.map(|x| x.wrapping_add(step * 4 * F::DEPTH));
            for (dot, pairs) in dots.iter_mut().zip(pairs!(F, codes, at)) {
                *dot = _mm256_add_epi32(*dot, widen_pairs(pairs));
            }
        }
        let d = read_f32(&record[8]);
        for (t, acc) in acc.iter_mut().enumerate() {
            // SAFETY: a token has a scale and a sum for each block of the panel.
            let (x_d, x_sum) = unsafe { (*x[t].d.get_unchecked(b), *x[t].sums.get_unchecked(b)) };
            let dot = _mm256_sub_epi32(dots[t], _mm256_set1_epi32(F::OFFSET * i32::from(x_sum)));
            *acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_mul_ps(d, _mm256_set1_ps(x_d)), *acc);
            if F::HAS_MIN {
                *acc = _mm256_fmadd_ps(read_f32(&record[9]), _mm256_set1_ps(x_d * f32::from(x_sum)), *acc);
            }
        }
        x_q = x_q.map(|x| x.wrapping_add(32));
    }
    acc.map(|acc| to_array(acc))
}

/// # Safety
/// As [`PanelKernel::multiply`], for a tile.
#[target_feature(enable = "avx2,fma")]
unsafe fn multiply256<F: Codes256>(
    panel: &Panel,
    x: &[ActRow<'_>; TILE_TOKENS],
) -> [[f32; PANEL_ROWS]; TILE_TOKENS] {
    let layout = const { Layout256::of::<F>() };
    let mut acc = [_mm256_setzero_ps(); TILE_TOKENS];
    let mut x_q = x.map(|x| x.q.as_ptr());
    for (b, record) in panel.vectors().chunks_exact(record256::<F>()).enumerate() {
        let mut dots = [_mm256_setzero_si256(); TILE_TOKENS];
        let depth = const { if F::DEPTH < F::GROUP / 4 { F::DEPTH } else { F::GROUP / 4 } };
        for (step, codes) in record[..64].chunks_exact(depth).enumerate() {
            let scale = read(&record[layout.scales + step * depth * 4 / F::GROUP]);
            let at = x_q.map(|x| x.wrapping_add(step * 4 * depth));
            for (dot, pairs) in dots.iter_mut().zip(pairs!(F, codes, at)) {
                *dot = _mm256_add_epi32(*dot, _mm256_madd_epi16(pairs, scale));
            }
        }
        let (d, sums) = (read_f32(&record[layout.d]), &record[layout.sums..layout.d]);
        for (t, acc) in acc.iter_mut().enumerate() {
            let mut sum = _mm256_setzero_si256();
            for (i, factors) in sums.iter().enumerate() {
                // SAFETY: a token has 16 sums for each superblock of the panel.
                let pair = unsafe { broadcast(x[t].sums.as_ptr().add(16 * b + 2 * i)) };
                sum = _mm256_add_epi32(sum, _mm256_madd_epi16(read(factors), pair));
            }
            let dot = if F::HAS_MIN { dots[t] } else { _mm256_sub_epi32(dots[t], sum) };
            // SAFETY: a token has a scale for each superblock of the panel.
            let x_d = _mm256_set1_ps(unsafe { *x[t].d.get_unchecked(b) });
            *acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_mul_ps(d, x_d), *acc);
            if F::HAS_MIN {
                let dmin = _mm256_mul_ps(read_f32(&record[layout.d + 1]), x_d);
                *acc = _mm256_fnmadd_ps(dmin, _mm256_cvtepi32_ps(sum), *acc);
            }
        }
        x_q = x_q.map(|x| x.wrapping_add(256));
    }
    acc.map(|acc| to_array(acc))
}

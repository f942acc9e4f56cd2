//! Eight rows in the file's layout times one token: for decoding, where each weight is used once.

use std::arch::x86_64::*;

use super::codes32::Codes32;
use super::codes256::Codes256;
use super::vector::*;
use crate::activations::ActRow;
use crate::dot::PANEL_ROWS;

/// Starts of eight rows; rows past the last are the last one again.
#[inline]
pub(super) fn row_starts(rows: &[u8], row_count: usize) -> [*const u8; PANEL_ROWS] {
    let row_bytes = rows.len() / row_count;
    std::array::from_fn(|r| rows[r.min(row_count - 1) * row_bytes..].as_ptr())
}

/// Fetches the next rows step by step: eight short streams at a time are too many for the processor to foresee.
pub(super) struct Ahead<'a> {
    rest: &'a [u8],
}

impl<'a> Ahead<'a> {
    #[inline]
    pub(super) fn new(next: &'a [u8]) -> Self {
        Self { rest: next }
    }

    /// Fetches the next `bytes`.
    #[inline]
    pub(super) fn step(&mut self, bytes: usize) {
        if let Some((step, rest)) = self.rest.split_at_checked(bytes) {
            prefetch(step);
            self.rest = rest;
        }
    }
}

/// Kernel for blocks of 32.
///
/// # Safety
/// As [`RowsKernel`](crate::dot::RowsKernel).
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn rows32<F: Codes32>(
    rows: &[u8],
    row_count: usize,
    next: &[u8],
    x: ActRow<'_>,
) -> [f32; PANEL_ROWS] {
    let mut blocks = row_starts(rows, row_count);
    let mut ahead = Ahead::new(next);
    let mut acc = _mm256_setzero_ps();
    for ((x_q, &x_d), &x_sum) in x.q.as_chunks::<32>().0.iter().zip(x.d).zip(x.sums) {
        // SAFETY: every pointer is at a whole block of its row: rows have as many blocks as `x`.
        let (codes, d, m) = unsafe {
            (
                blocks.map(|block| F::codes(block)),
                gather_f16(&blocks, 0),
                if F::HAS_MIN { gather_f16(&blocks, 2) } else { _mm256_setzero_ps() },
            )
        };
        // SAFETY: `x_q` has 32 bytes.
        let x_q = unsafe { load(x_q.as_ptr().cast()) };
        let pairs = codes.map(|codes| {
            if F::SIGNED { multiply_pairs::<true>(codes, x_q) } else { multiply_pairs::<false>(codes, x_q) }
        });
        let dot = match F::DEPTH {
            8 => sum_rows_i16::<8>(pairs),
            4 => sum_rows_i16::<4>(pairs),
            _ => sum_rows_i32(pairs.map(|pairs| widen_pairs(pairs))),
        };
        let dot = _mm256_sub_epi32(dot, _mm256_set1_epi32(F::OFFSET * i32::from(x_sum)));
        acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_mul_ps(d, _mm256_set1_ps(x_d)), acc);
        if F::HAS_MIN {
            acc = _mm256_fmadd_ps(m, _mm256_set1_ps(x_d * f32::from(x_sum)), acc);
        }
        blocks = blocks.map(|block| block.wrapping_add(F::BYTES));
        ahead.step(PANEL_ROWS * F::BYTES);
    }
    to_array(acc)
}

/// Kernel for superblocks of 256.
///
/// # Safety
/// As [`RowsKernel`](crate::dot::RowsKernel).
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn rows256<F: Codes256>(
    rows: &[u8],
    row_count: usize,
    next: &[u8],
    x: ActRow<'_>,
) -> [f32; PANEL_ROWS] {
    let mut blocks = row_starts(rows, row_count);
    let mut ahead = Ahead::new(next);
    let mut acc = _mm256_setzero_ps();
    let x_blocks = x.q.as_chunks::<256>().0.iter().zip(x.sums.as_chunks::<16>().0);
    for ((x_q, x_sums), &x_d) in x_blocks.zip(x.d) {
        // SAFETY: 16 sums of two bytes.
        let x_sums = unsafe { load(x_sums.as_ptr().cast()) };
        let (mut dots, mut mins) = ([_mm256_setzero_si256(); 8], [_mm256_setzero_si256(); 8]);
        for r in 0..PANEL_ROWS {
            // SAFETY: every pointer is at a whole superblock of its row: rows have as many as `x`.
            (dots[r], mins[r]) = unsafe { dot256::<F>(blocks[r], x_q, x_sums) };
        }
        // SAFETY: as above.
        let (d, dmin) = unsafe {
            (
                gather_f16(&blocks, F::D_AT),
                if F::HAS_MIN { gather_f16(&blocks, F::D_AT + 2) } else { _mm256_setzero_ps() },
            )
        };
        let x_d = _mm256_set1_ps(x_d);
        acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum_rows_i32(dots)), _mm256_mul_ps(d, x_d), acc);
        if F::HAS_MIN {
            acc = _mm256_fnmadd_ps(_mm256_mul_ps(dmin, x_d), _mm256_cvtepi32_ps(sum_rows_i32(mins)), acc);
        }
        blocks = blocks.map(|block| block.wrapping_add(F::BYTES));
        ahead.step(PANEL_ROWS * F::BYTES);
    }
    to_array(acc)
}

/// `sum scale q_w q_x` and `sum min q_x` of one superblock, each spread over eight lanes.
///
/// # Safety
/// AVX2 must be available and `block` readable for a whole superblock.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn dot256<F: Codes256>(block: *const u8, x_q: &[i8; 256], x_sums: __m256i) -> (__m256i, __m256i) {
    // SAFETY: by this function's contract.
    let (codes, (scales, mins)) = unsafe { (F::codes(block), F::split_scales(block)) };
    let mut pairs = [_mm256_setzero_si256(); 8];
    for ((pairs, codes), x) in pairs.iter_mut().zip(codes).zip(x_q.as_chunks::<32>().0) {
        // SAFETY: `x` has 32 bytes.
        let x = unsafe { load(x.as_ptr().cast()) };
        *pairs = if F::SIGNED { multiply_pairs::<true>(codes, x) } else { multiply_pairs::<false>(codes, x) };
    }
    let mut dot = scale_pairs::<F>(pairs, scales);
    if F::OFFSET != 0 {
        let offset = _mm256_mullo_epi16(scales, _mm256_set1_epi16(F::OFFSET));
        dot = _mm256_sub_epi32(dot, _mm256_madd_epi16(offset, x_sums));
    }
    (dot, _mm256_madd_epi16(mins, x_sums))
}

/// `sum scale * pair` over eight lanes; scales are in split order. Pairs are added as i16 as far as they may be, because
/// multiplications are the scarcest.
#[target_feature(enable = "avx2")]
#[inline]
fn scale_pairs<F: Codes256>(pairs: [__m256i; 8], scales: __m256i) -> __m256i {
    let add = |a, b| _mm256_add_epi32(a, b);
    let madd = |pairs, scales| _mm256_madd_epi16(pairs, scales);
    // Each scale twice, a dword for each of four vectors of pairs.
    let (low, high) = (_mm256_unpacklo_epi16(scales, scales), _mm256_unpackhi_epi16(scales, scales));
    let [a, b, c, d, e, f, g, h] = pairs;
    if F::DEPTH >= 4 {
        let first = fold_dwords_i16(halve_i16(a, b), halve_i16(c, d));
        let second = fold_dwords_i16(halve_i16(e, f), halve_i16(g, h));
        return add(madd(first, low), madd(second, high));
    }
    // Each scale four times, an i64 for each of two vectors of pairs.
    let first = [_mm256_unpacklo_epi32(low, low), _mm256_unpackhi_epi32(low, low)];
    let second = [_mm256_unpacklo_epi32(high, high), _mm256_unpackhi_epi32(high, high)];
    if F::DEPTH == 2 {
        let first = add(madd(halve_i16(a, b), first[0]), madd(halve_i16(c, d), first[1]));
        let second = add(madd(halve_i16(e, f), second[0]), madd(halve_i16(g, h), second[1]));
        return add(first, second);
    }
    let mut dot = _mm256_setzero_si256();
    for (pairs, scales) in pairs.as_chunks::<2>().0.iter().zip(first.into_iter().chain(second)) {
        let [a, b] = [_mm256_unpacklo_epi64(scales, scales), _mm256_unpackhi_epi64(scales, scales)];
        dot = add(dot, add(madd(pairs[0], a), madd(pairs[1], b)));
    }
    dot
}

/// The lanes of a vector.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn to_array(v: __m256) -> [f32; 8] {
    let mut out = [0.0; 8];
    // SAFETY: `out` has 32 bytes.
    unsafe { _mm256_storeu_ps(out.as_mut_ptr(), v) };
    out
}

//! Steps that several kernels share.

use std::arch::x86_64::*;

/// Loads 32 bytes from anywhere.
///
/// # Safety
/// `at` must be readable for 32 bytes.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) unsafe fn load(at: *const u8) -> __m256i {
    // SAFETY: by this function's contract.
    unsafe { _mm256_loadu_si256(at.cast()) }
}

/// Loads 16 bytes from anywhere.
///
/// # Safety
/// `at` must be readable for 16 bytes.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) unsafe fn load_half(at: *const u8) -> __m128i {
    // SAFETY: by this function's contract.
    unsafe { _mm_loadu_si128(at.cast()) }
}

/// 16 bytes in both halves.
///
/// # Safety
/// `at` must be readable for 16 bytes.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) unsafe fn load_twice(at: *const u8) -> __m256i {
    // SAFETY: by this function's contract.
    unsafe { _mm256_broadcastsi128_si256(load_half(at)) }
}

/// Products of 32 codes and 32 activations, summed in pairs: 16 x i16. Codes are unsigned and below 128, or signed
/// (-128 included); activations lie in -127..=127, so no pair overflows.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn multiply_pairs<const SIGNED: bool>(codes: __m256i, x: __m256i) -> __m256i {
    if SIGNED {
        _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(x, codes))
    } else {
        _mm256_maddubs_epi16(codes, x)
    }
}

/// Sums of neighbours: 16 x i16 to 8 x i32.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn widen_pairs(v: __m256i) -> __m256i {
    _mm256_madd_epi16(v, _mm256_set1_epi16(1))
}

#[target_feature(enable = "avx2")]
#[inline]
fn even_dwords(a: __m256i, b: __m256i) -> __m256i {
    _mm256_castps_si256(_mm256_shuffle_ps::<0x88>(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b)))
}

#[target_feature(enable = "avx2")]
#[inline]
fn odd_dwords(a: __m256i, b: __m256i) -> __m256i {
    _mm256_castps_si256(_mm256_shuffle_ps::<0xdd>(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b)))
}

/// In each half, the two i64 of `a` added as i16, beside those of `b`.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn halve_i16(a: __m256i, b: __m256i) -> __m256i {
    _mm256_add_epi16(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b))
}

/// In each half, neighbouring dwords of `a` added as i16, beside those of `b`.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn fold_dwords_i16(a: __m256i, b: __m256i) -> __m256i {
    _mm256_add_epi16(even_dwords(a, b), odd_dwords(a, b))
}

/// Row sums of eight vectors of 8 x i32: lane `r` is the sum of `rows[r]`.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn sum_rows_i32(rows: [__m256i; 8]) -> __m256i {
    let halve =
        |a, b| _mm256_add_epi32(_mm256_blend_epi32::<0b1100_1100>(a, b), _mm256_alignr_epi8::<8>(b, a));
    let fold = |a, b| _mm256_add_epi32(even_dwords(a, b), odd_dwords(a, b));
    let [a, b, c, d, e, f, g, h] = rows;
    let (low, high) = (fold(halve(a, b), halve(c, d)), fold(halve(e, f), halve(g, h)));
    _mm256_add_epi32(
        _mm256_permute2x128_si256::<0x20>(low, high),
        _mm256_permute2x128_si256::<0x31>(low, high),
    )
}

/// Row sums of eight vectors of 16 x i16, as 8 x i32. `DEPTH` of the i16 may be added without overflow: 8 or 4.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn sum_rows_i16<const DEPTH: usize>(rows: [__m256i; 8]) -> __m256i {
    let [a, b, c, d, e, f, g, h] = rows;
    let low = fold_dwords_i16(halve_i16(a, b), halve_i16(c, d));
    let high = fold_dwords_i16(halve_i16(e, f), halve_i16(g, h));
    let (left, right) =
        (_mm256_permute2x128_si256::<0x20>(low, high), _mm256_permute2x128_si256::<0x31>(low, high));
    if DEPTH >= 8 {
        widen_pairs(_mm256_add_epi16(left, right))
    } else {
        _mm256_add_epi32(widen_pairs(left), widen_pairs(right))
    }
}

/// `rows[r]` holds dwords `[r][0..8]`; the result holds `[0..8][r]`.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn transpose_dwords(rows: [__m256i; 8]) -> [__m256i; 8] {
    let [a, b, c, d, e, f, g, h] = rows;
    let quads = |a, b, c, d| {
        let (ab0, ab1) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
        let (cd0, cd1) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
        [
            _mm256_unpacklo_epi64(ab0, cd0),
            _mm256_unpackhi_epi64(ab0, cd0),
            _mm256_unpacklo_epi64(ab1, cd1),
            _mm256_unpackhi_epi64(ab1, cd1),
        ]
    };
    let (top, bottom) = (quads(a, b, c, d), quads(e, f, g, h));
    let mut out = [_mm256_setzero_si256(); 8];
    for i in 0..4 {
        out[i] = _mm256_permute2x128_si256::<0x20>(top[i], bottom[i]);
        out[i + 4] = _mm256_permute2x128_si256::<0x31>(top[i], bottom[i]);
    }
    out
}

/// The f16 at byte `offset` of each of eight blocks, widened.
///
/// # Safety
/// Each pointer must be readable for two bytes at `offset`.
#[target_feature(enable = "avx2,f16c")]
#[inline]
pub(super) unsafe fn gather_f16(blocks: &[*const u8; 8], offset: usize) -> __m256 {
    // SAFETY: by this function's contract.
    let at = |r: usize| unsafe { blocks[r].add(offset).cast::<i16>().read_unaligned() };
    _mm256_cvtph_ps(_mm_setr_epi16(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)))
}

/// Asks for bytes ahead of their use.
#[inline]
pub(super) fn prefetch(bytes: &[u8]) {
    for line in bytes.chunks(64) {
        // SAFETY: a prefetch reads nothing that the program can see.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
}

//! Rounding of activations: [`crate::activations::quantize_row`], the same to the bit.

use std::arch::x86_64::*;

use crate::activations::{ActFormat, split_place};

/// Rounds one row.
///
/// # Safety
/// AVX2 must be available.
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn quantize_row(
    format: ActFormat,
    x: &[f32],
    q: &mut [i8],
    d: &mut [f32],
    sums: &mut [i16],
) {
    let (x, q) = (x.as_chunks::<32>().0, q.as_chunks_mut::<32>().0);
    match format {
        ActFormat::F32 => {}
        ActFormat::Q8x32 => {
            for (((x, q), d), sum) in x.chunks_exact(1).zip(q.chunks_exact_mut(1)).zip(d).zip(sums) {
                *d = quantize_block(x, q);
                *sum = sums_of_16(&q[0]).iter().sum();
            }
        }
        ActFormat::Q8x256 => {
            let sums = sums.as_chunks_mut::<16>().0;
            for (((x, q), d), sums) in x.chunks_exact(8).zip(q.chunks_exact_mut(8)).zip(d).zip(sums) {
                *d = quantize_block(x, q);
                for (j, q) in q.iter().enumerate() {
                    let [even, odd] = sums_of_16(q);
                    sums[split_place(2 * j)] = even;
                    sums[split_place(2 * j + 1)] = odd;
                }
            }
        }
    }
}

/// Rounds one block, a multiple of 32 elements, and returns its scale.
#[target_feature(enable = "avx2")]
#[inline]
fn quantize_block(x: &[[f32; 32]], q: &mut [[i8; 32]]) -> f32 {
    let max = f32::from_bits(max_magnitude_bits(x));
    let inverse = 127.0 / max;
    if !max.is_finite() || !inverse.is_finite() {
        q.as_flattened_mut().fill(0);
        return if max.is_finite() { 0.0 } else { f32::NAN };
    }
    let inverse = _mm256_set1_ps(inverse);
    for (x, q) in x.iter().zip(q) {
        // SAFETY: `i` < 4, so that eight of 32 elements are at the place. The conversion rounds ties to even.
        let round = |i: usize| unsafe {
            _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x.as_ptr().add(8 * i)), inverse))
        };
        // Packing works within halves, and leaves dwords of four elements in the order 0 2 4 6 1 3 5 7.
        let (low, high) = (_mm256_packs_epi32(round(0), round(1)), _mm256_packs_epi32(round(2), round(3)));
        let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        let packed = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
        // SAFETY: `q` has 32 bytes.
        unsafe { _mm256_storeu_si256(q.as_mut_ptr().cast(), packed) };
    }
    max / 127.0
}

/// The largest magnitude, as bits: those of NaNs and infinities are larger than any number's.
#[target_feature(enable = "avx2")]
#[inline]
fn max_magnitude_bits(x: &[[f32; 32]]) -> u32 {
    let magnitude = _mm256_set1_epi32(0x7fff_ffff);
    let mut max = [_mm256_setzero_si256(); 4];
    for x in x {
        for (i, max) in max.iter_mut().enumerate() {
            // SAFETY: `i` < 4, so that eight of 32 elements are at the place.
            let bits = unsafe { _mm256_loadu_si256(x.as_ptr().add(8 * i).cast()) };
            *max = _mm256_max_epu32(*max, _mm256_and_si256(bits, magnitude));
        }
    }
    let max = _mm256_max_epu32(_mm256_max_epu32(max[0], max[1]), _mm256_max_epu32(max[2], max[3]));
    let max = _mm_max_epu32(_mm256_castsi256_si128(max), _mm256_extracti128_si256::<1>(max));
    let max = _mm_max_epu32(max, _mm_shuffle_epi32::<0b00_00_11_10>(max));
    let max = _mm_max_epu32(max, _mm_shuffle_epi32::<0b00_00_00_01>(max));
    _mm_cvtsi128_si32(max) as u32
}

/// Sums of the two halves.
#[target_feature(enable = "avx2")]
#[inline]
fn sums_of_16(q: &[i8; 32]) -> [i16; 2] {
    // SAFETY: `q` has 32 bytes.
    let q = unsafe { _mm256_loadu_si256(q.as_ptr().cast()) };
    // Sums of eight exist for unsigned bytes only: 128 is added to each and taken off again.
    let sums = _mm256_sad_epu8(_mm256_xor_si256(q, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
    let sums = _mm256_add_epi64(sums, _mm256_unpackhi_epi64(sums, sums));
    let sum = |v| (_mm_cvtsi128_si32(v) - 16 * 128) as i16;
    [sum(_mm256_castsi256_si128(sums)), sum(_mm256_extracti128_si256::<1>(sums))]
}

//! Superblocks of 256 as vectors.

use std::arch::x86_64::*;

use super::super::format::*;
use super::codes32::iq4_values;
use super::vector::{load, load_half};

/// A format whose 256 integers come as eight vectors of bytes, and whose scales and minima as vectors of i16 in *split
/// order*: those of the groups 0, 2 ... 14 in the low half, of 1, 3 ... 15 in the high half. A vector of codes `j`
/// holds the groups `2j` and `2j + 1`, so its scales are element `j` of both halves.
pub(crate) trait Codes256: Super256 {
    /// Codes are signed, with nothing to take off. Otherwise they are unsigned.
    const SIGNED: bool = false;
    /// The offset taken off an unsigned code.
    const OFFSET: i16 = 0;
    /// Elements that share a scale.
    const GROUP: usize;
    /// Sums of two products that an i16 holds: 8 up to 4 bits, 4 for 5 bits, 2 for 6 bits; 1 when signed.
    const DEPTH: usize;

    /// The codes in order.
    ///
    /// # Safety
    /// AVX2 must be available and `block` readable for a whole superblock.
    unsafe fn codes(block: *const u8) -> [__m256i; 8];

    /// Scales, and minima where the format has them (zero elsewhere), in split order.
    ///
    /// # Safety
    /// As [`Codes256::codes`].
    unsafe fn split_scales(block: *const u8) -> (__m256i, __m256i);
}

#[target_feature(enable = "avx2")]
#[inline]
fn low_bits<const MASK: i8>(v: __m256i) -> __m256i {
    _mm256_and_si256(v, _mm256_set1_epi8(MASK))
}

/// 16 bytes, one per group, to i16 in split order. They are signed.
#[target_feature(enable = "avx2")]
#[inline]
fn split_bytes(bytes: __m128i) -> __m256i {
    let order = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    _mm256_cvtepi8_epi16(_mm_shuffle_epi8(bytes, order))
}

/// Eight values, one per two groups, in split order.
#[target_feature(enable = "avx2")]
#[inline]
fn split_runs(bytes: u64) -> __m256i {
    _mm256_cvtepi8_epi16(_mm_set1_epi64x(bytes as i64))
}

/// [`two_bits`](super::super::format) as vectors.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn two_bits(at: *const u8) -> [__m256i; 8] {
    // SAFETY: the caller's superblock holds 64 bytes here.
    let (a, b) = unsafe { (load(at), load(at.add(32))) };
    [
        low_bits::<3>(a),
        low_bits::<3>(_mm256_srli_epi16::<2>(a)),
        low_bits::<3>(_mm256_srli_epi16::<4>(a)),
        low_bits::<3>(_mm256_srli_epi16::<6>(a)),
        low_bits::<3>(b),
        low_bits::<3>(_mm256_srli_epi16::<2>(b)),
        low_bits::<3>(_mm256_srli_epi16::<4>(b)),
        low_bits::<3>(_mm256_srli_epi16::<6>(b)),
    ]
}

/// Of every 32 of 128 bytes, the low halves and then the high halves.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn four_bits(at: *const u8) -> [__m256i; 8] {
    let mut out = [_mm256_setzero_si256(); 8];
    for j in 0..4 {
        // SAFETY: the caller's superblock holds 128 bytes here.
        let bytes = unsafe { load(at.add(32 * j)) };
        out[2 * j] = low_bits::<15>(bytes);
        out[2 * j + 1] = low_bits::<15>(_mm256_srli_epi16::<4>(bytes));
    }
    out
}

/// For `j` in 0..8, bit `j` of every byte moved to bit `BIT`.
#[target_feature(enable = "avx2")]
#[inline]
fn each_bit<const BIT: u32>(bytes: __m256i) -> [__m256i; 8] {
    let mask = _mm256_set1_epi8(1 << BIT);
    let mut out = [_mm256_setzero_si256(); 8];
    for (j, out) in out.iter_mut().enumerate() {
        let j = j as u32;
        // The bits that a 16-bit shift carries over from the neighbouring byte are masked off.
        let moved = if j >= BIT {
            _mm256_srl_epi16(bytes, _mm_cvtsi32_si128((j - BIT) as i32))
        } else {
            _mm256_sll_epi16(bytes, _mm_cvtsi32_si128((BIT - j) as i32))
        };
        *out = _mm256_and_si256(moved, mask);
    }
    out
}

/// The eight 6-bit scales and eight 6-bit minima in 12 bytes, a byte each.
#[inline]
unsafe fn six_bit_pairs(at: *const u8) -> (u64, u64) {
    // SAFETY: the caller's superblock holds 12 bytes here.
    let [a, b, c] = unsafe { at.cast::<[u32; 3]>().read_unaligned() }.map(u32::from_le);
    let high_pairs = |v: u32| v >> 2 & 0x3030_3030;
    let scales_high = c & 0x0f0f_0f0f | high_pairs(a);
    let mins_high = c >> 4 & 0x0f0f_0f0f | high_pairs(b);
    let join = |low: u32, high: u32| u64::from(low & 0x3f3f_3f3f) | u64::from(high) << 32;
    (join(a, scales_high), join(b, mins_high))
}

// SAFETY of the bodies below: the caller's superblock is as long as the format says, so that the offsets are inside.
impl Codes256 for Q2K {
    const GROUP: usize = 16;
    const DEPTH: usize = 8;

    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn codes(block: *const u8) -> [__m256i; 8] {
        unsafe { two_bits(block.add(16)) }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn split_scales(block: *const u8) -> (__m256i, __m256i) {
        let bytes = unsafe { load_half(block) };
        let low = |v| _mm_and_si128(v, _mm_set1_epi8(15));
        (split_bytes(low(bytes)), split_bytes(low(_mm_srli_epi16::<4>(bytes))))
    }
}

impl Codes256 for Q3K {
    const OFFSET: i16 = 4;
    const GROUP: usize = 16;
    const DEPTH: usize = 8;

    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn codes(block: *const u8) -> [__m256i; 8] {
        let (mut out, third) = unsafe { (two_bits(block.add(32)), each_bit::<2>(load(block))) };
        for (out, third) in out.iter_mut().zip(third) {
            *out = _mm256_or_si256(*out, third);
        }
        out
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn split_scales(block: *const u8) -> (__m256i, __m256i) {
        let [a, b, c] = unsafe { block.add(96).cast::<[u32; 3]>().read_unaligned() }.map(u32::from_le);
        let low = |v: u32| v & 0x0f0f_0f0f;
        let high = |j: u32| (c >> (2 * j) & 0x0303_0303) << 4;
        let bytes = _mm_setr_epi32(
            (low(a) | high(0)) as i32,
            (low(b) | high(1)) as i32,
            (low(a >> 4) | high(2)) as i32,
            (low(b >> 4) | high(3)) as i32,
        );
        (split_bytes(_mm_sub_epi8(bytes, _mm_set1_epi8(32))), _mm256_setzero_si256())
    }
}

impl Codes256 for Q4K {
    const GROUP: usize = 32;
    const DEPTH: usize = 8;

    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn codes(block: *const u8) -> [__m256i; 8] {
        unsafe { four_bits(block.add(16)) }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn split_scales(block: *const u8) -> (__m256i, __m256i) {
        let (scales, mins) = unsafe { six_bit_pairs(block.add(4)) };
        (split_runs(scales), split_runs(mins))
    }
}

impl Codes256 for Q5K {
    const GROUP: usize = 32;
    const DEPTH: usize = 4;

    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn codes(block: *const u8) -> [__m256i; 8] {
        let (mut out, fifth) = unsafe { (four_bits(block.add(48)), each_bit::<4>(load(block.add(16)))) };
        for (out, fifth) in out.iter_mut().zip(fifth) {
            *out = _mm256_or_si256(*out, fifth);
        }
        out
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn split_scales(block: *const u8) -> (__m256i, __m256i) {
        let (scales, mins) = unsafe { six_bit_pairs(block.add(4)) };
        (split_runs(scales), split_runs(mins))
    }
}

impl Codes256 for Q6K {
    const OFFSET: i16 = 32;
    const GROUP: usize = 16;
    const DEPTH: usize = 2;

    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn codes(block: *const u8) -> [__m256i; 8] {
        let mut out = [_mm256_setzero_si256(); 8];
        for half in 0..2 {
            let (a, b, high) = unsafe {
                let low = block.add(64 * half);
                (load(low), load(low.add(32)), load(block.add(128 + 32 * half)))
            };
            let top = |v| low_bits::<48>(v);
            let out = &mut out[4 * half..][..4];
            out[0] = _mm256_or_si256(low_bits::<15>(a), top(_mm256_slli_epi16::<4>(high)));
            out[1] = _mm256_or_si256(low_bits::<15>(b), top(_mm256_slli_epi16::<2>(high)));
            out[2] = _mm256_or_si256(low_bits::<15>(_mm256_srli_epi16::<4>(a)), top(high));
            out[3] =
                _mm256_or_si256(low_bits::<15>(_mm256_srli_epi16::<4>(b)), top(_mm256_srli_epi16::<2>(high)));
        }
        out
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn split_scales(block: *const u8) -> (__m256i, __m256i) {
        (split_bytes(unsafe { load_half(block.add(192)) }), _mm256_setzero_si256())
    }
}

impl Codes256 for Iq4Xs {
    const SIGNED: bool = true;
    const GROUP: usize = 32;
    const DEPTH: usize = 1;

    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn codes(block: *const u8) -> [__m256i; 8] {
        let mut out = [_mm256_setzero_si256(); 8];
        for (j, out) in out.iter_mut().enumerate() {
            let bytes = unsafe { load_half(block.add(8 + 16 * j)) };
            let both = _mm256_set_m128i(_mm_srli_epi16::<4>(bytes), bytes);
            *out = unsafe { iq4_values(low_bits::<15>(both)) };
        }
        out
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn split_scales(block: *const u8) -> (__m256i, __m256i) {
        let (high, low) = unsafe {
            let words = block.add(2).cast::<[u16; 3]>().read_unaligned().map(u16::from_le);
            (words[0], u32::from(words[1]) | u32::from(words[2]) << 16)
        };
        let mut scales = 0u64;
        for run in 0..8 {
            let scale = (low >> (4 * run) & 15) as u8 | ((high >> (2 * run) & 3) as u8) << 4;
            scales |= u64::from(scale) << (8 * run);
        }
        (_mm256_sub_epi16(split_runs(scales), _mm256_set1_epi16(32)), _mm256_setzero_si256())
    }
}

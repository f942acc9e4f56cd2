//! Blocks of 32 as vectors.

use std::arch::x86_64::*;

use ember_formats::codes::IQ4_VALUES;

use super::super::format::*;
use super::vector::{load, load_half, load_twice};

/// A format whose 32 integers come as one vector of bytes.
pub(crate) trait Codes32: Block32 {
    /// Codes are signed, with nothing to take off. Otherwise they are unsigned.
    const SIGNED: bool = false;
    /// The offset taken off an unsigned code.
    const OFFSET: i32 = 0;
    /// Sums of two products of unsigned codes that an i16 holds: 8 for 4 bits, 4 for 5 bits; 1 when signed.
    const DEPTH: usize;

    /// The codes in order.
    ///
    /// # Safety
    /// AVX2 must be available and `block` readable for a whole block.
    unsafe fn codes(block: *const u8) -> __m256i;
}

/// The low halves of 16 bytes, then the high halves.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn nibbles(at: *const u8) -> __m256i {
    // SAFETY: the caller's block holds 16 bytes here.
    let bytes = unsafe { load_half(at) };
    let both = _mm256_set_m128i(_mm_srli_epi16::<4>(bytes), bytes);
    _mm256_and_si256(both, _mm256_set1_epi8(15))
}

/// Byte `i` is 16 where bit `i` of the four bytes is set, else 0.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn fifth_bits(at: *const u8) -> __m256i {
    // SAFETY: the caller's block holds four bytes here.
    let bits = _mm256_set1_epi32(unsafe { at.cast::<i32>().read_unaligned() });
    let byte_of_bit =
        _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
    let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
    let spread = _mm256_and_si256(_mm256_shuffle_epi8(bits, byte_of_bit), bit);
    _mm256_and_si256(_mm256_cmpeq_epi8(spread, bit), _mm256_set1_epi8(16))
}

/// The values that 4-bit codes stand for.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) unsafe fn iq4_values(codes: __m256i) -> __m256i {
    // SAFETY: the table has 16 bytes.
    let table = unsafe { load_twice(IQ4_VALUES.as_ptr().cast()) };
    _mm256_shuffle_epi8(table, codes)
}

// SAFETY of the bodies below: the caller's block is as long as the format says, so that the offsets are inside it.
impl Codes32 for Q4_0 {
    const OFFSET: i32 = 8;
    const DEPTH: usize = 8;
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn codes(block: *const u8) -> __m256i {
        unsafe { nibbles(block.add(2)) }
    }
}

impl Codes32 for Q4_1 {
    const DEPTH: usize = 8;
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn codes(block: *const u8) -> __m256i {
        unsafe { nibbles(block.add(4)) }
    }
}

impl Codes32 for Q5_0 {
    const OFFSET: i32 = 16;
    const DEPTH: usize = 4;
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn codes(block: *const u8) -> __m256i {
        unsafe { _mm256_or_si256(nibbles(block.add(6)), fifth_bits(block.add(2))) }
    }
}

impl Codes32 for Q5_1 {
    const DEPTH: usize = 4;
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn codes(block: *const u8) -> __m256i {
        unsafe { _mm256_or_si256(nibbles(block.add(8)), fifth_bits(block.add(4))) }
    }
}

impl Codes32 for Q8_0 {
    const SIGNED: bool = true;
    const DEPTH: usize = 1;
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn codes(block: *const u8) -> __m256i {
        unsafe { load(block.add(2)) }
    }
}

impl Codes32 for Iq4Nl {
    const SIGNED: bool = true;
    const DEPTH: usize = 1;
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn codes(block: *const u8) -> __m256i {
        unsafe { iq4_values(nibbles(block.add(2))) }
    }
}

//! Integers of a block, one at a time and as they are stored: unsigned, before any offset is taken off.
//!
//! `i` counts the weights of the block, `j` its sub-blocks. Source of the layouts: ggml's `ggml-common.h` and the
//! reference dequantizers of gguf-py.

use half::f16;

/// The values that the 4-bit codes of `IQ4_NL` and `IQ4_XS` stand for.
pub const IQ4_VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The f16 at byte `at`, widened.
#[inline]
pub fn f16_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Code `i` of 32: in the low half of byte `i`, or in the high half of byte `i - 16`.
#[inline]
fn nibble(codes: &[u8], i: usize) -> u8 {
    codes[i % 16] >> (i / 16 * 4) & 0xF
}

/// Code `i` of `[high: u32][low: 16]`; bit `i` of `high` is its fifth bit.
#[inline]
fn five_bits(codes: &[u8], i: usize) -> u8 {
    nibble(&codes[4..20], i) | (codes[i / 8] >> (i % 8) & 1) << 4
}

/// Code `i` of 256: each 32 bytes hold 128 codes, four runs of 32 in ascending bit positions.
#[inline]
fn two_bits(codes: &[u8], i: usize) -> u8 {
    codes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3
}

/// Code `i` of 256: each 32 bytes hold 64 codes, first the low halves, then the high ones.
#[inline]
fn four_bits(codes: &[u8], i: usize) -> u8 {
    codes[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 0xF
}

/// Bit `i` of 256: weight `i` has bit `i / 32` of byte `i % 32`.
#[inline]
fn one_bit(bits: &[u8], i: usize) -> u8 {
    bits[i % 32] >> (i / 32) & 1
}

/// `[d: f16][codes: 16]`, offset 8.
#[inline]
pub fn q4_0(block: &[u8], i: usize) -> u8 {
    nibble(&block[2..18], i)
}

/// `[d: f16][m: f16][codes: 16]`.
#[inline]
pub fn q4_1(block: &[u8], i: usize) -> u8 {
    nibble(&block[4..20], i)
}

/// `[d: f16][high: u32][low: 16]`, offset 16.
#[inline]
pub fn q5_0(block: &[u8], i: usize) -> u8 {
    five_bits(&block[2..22], i)
}

/// `[d: f16][m: f16][high: u32][low: 16]`.
#[inline]
pub fn q5_1(block: &[u8], i: usize) -> u8 {
    five_bits(&block[4..24], i)
}

/// `[d: f16][codes: 32 x i8]`: the bits of a signed byte.
#[inline]
pub fn q8_0(block: &[u8], i: usize) -> u8 {
    block[2 + i]
}

/// `[d: f16][codes: 16]`, an index into [`IQ4_VALUES`].
#[inline]
pub fn iq4_nl(block: &[u8], i: usize) -> u8 {
    nibble(&block[2..18], i)
}

/// `[scale | min << 4: 16][codes: 64][d: f16][dmin: f16]`.
#[inline]
pub fn q2_k(block: &[u8], i: usize) -> u8 {
    two_bits(&block[16..80], i)
}

/// The 4-bit scale and minimum of 16 weights of `Q2_K`.
#[inline]
pub fn q2_k_scale_and_min(block: &[u8], j: usize) -> (u8, u8) {
    (block[j] & 0xF, block[j] >> 4)
}

/// `[high: 32][low: 64][scales: 12][d: f16]`, offset 4.
#[inline]
pub fn q3_k(block: &[u8], i: usize) -> u8 {
    two_bits(&block[32..96], i) | one_bit(&block[..32], i) << 2
}

/// The 6-bit scale of 16 weights of `Q3_K`, offset 32: four low bits in bytes 0..8 of the scales (the first eight in
/// the low halves), two high bits in bytes 8..12 (four runs of four in ascending bit positions).
#[inline]
pub fn q3_k_scale(block: &[u8], j: usize) -> u8 {
    let scales = &block[96..108];
    let low = scales[j % 8] >> (j / 8 * 4) & 0xF;
    let high = scales[8 + j % 4] >> (j / 4 * 2) & 3;
    low | high << 4
}

/// `[d: f16][dmin: f16][scales: 12][codes: 128]`.
#[inline]
pub fn q4_k(block: &[u8], i: usize) -> u8 {
    four_bits(&block[16..144], i)
}

/// The 6-bit scale and minimum of 32 weights of `Q4_K` or `Q5_K`: of the 12 bytes, the first four scales are whole in
/// bytes 0..4 and the first four minima in 4..8, the last four of both have their low bits in bytes 8..12 and their
/// high bits above the first.
#[inline]
pub fn q4_k_scale_and_min(block: &[u8], j: usize) -> (u8, u8) {
    let scales = &block[4..16];
    if j < 4 {
        return (scales[j] & 0x3F, scales[4 + j] & 0x3F);
    }
    let low = scales[4 + j];
    (low & 0xF | scales[j - 4] >> 6 << 4, low >> 4 | scales[j] >> 6 << 4)
}

/// `[d: f16][dmin: f16][scales: 12][high: 32][low: 128]`.
#[inline]
pub fn q5_k(block: &[u8], i: usize) -> u8 {
    four_bits(&block[48..176], i) | one_bit(&block[16..48], i) << 4
}

/// `[low: 128][high: 64][scales: 16 x i8][d: f16]`, offset 32; each 64 low bytes hold 128 codes, first the low halves,
/// then the high ones.
#[inline]
pub fn q6_k(block: &[u8], i: usize) -> u8 {
    let low = block[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 0xF;
    low | two_bits(&block[128..192], i) << 4
}

/// The signed scale of 16 weights of `Q6_K`.
#[inline]
pub fn q6_k_scale(block: &[u8], j: usize) -> i8 {
    block[192 + j].cast_signed()
}

/// `[d: f16][scales high: u16][scales low: 4][codes: 128]`, an index into [`IQ4_VALUES`]; 16 bytes hold 32 codes.
#[inline]
pub fn iq4_xs(block: &[u8], i: usize) -> u8 {
    nibble(&block[8 + i / 32 * 16..][..16], i % 32)
}

/// The 6-bit scale of 32 weights of `IQ4_XS`, offset 32.
#[inline]
pub fn iq4_xs_scale(block: &[u8], j: usize) -> u8 {
    let low = block[4 + j / 2] >> (j % 2 * 4) & 0xF;
    let high = block[2 + j / 4] >> (j % 4 * 2) & 3;
    low | high << 4
}

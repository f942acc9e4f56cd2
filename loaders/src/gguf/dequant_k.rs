//! Blocks of 256 weights: the K types and IQ4_XS. Each holds sub-blocks of 16 or 32 weights whose small
//! integer scales share one or two f16 scales.

use super::dequant::{IQ4_VALUES, f16_at};

/// `[scale | min << 4: 16][codes: 64][d: f16][dmin: f16]`, sub-blocks of 16, w = d scale q - dmin min
pub(super) fn q2_k(block: &[u8; 84], out: &mut [f32; 256]) {
    let (scales, codes) = (&block[..16], &block[16..80]);
    let (d, dmin) = (f16_at(block, 80), f16_at(block, 82));
    for (i, out) in out.iter_mut().enumerate() {
        let scale = scales[i / 16];
        let (d, min) = (d * f32::from(scale & 0xF), dmin * f32::from(scale >> 4));
        *out = d * f32::from(two_bits(codes, i)) - min;
    }
}

/// Code i of 2-bit codes: each 32 bytes hold 128 codes, four runs of 32 in ascending bit positions.
fn two_bits(codes: &[u8], i: usize) -> u8 {
    (codes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3
}

/// `[high: 32][codes: 64][scales: 12][d: f16]`, sub-blocks of 16, w = d (scale - 32) q; a clear high bit
/// lowers q by 4.
pub(super) fn q3_k(block: &[u8; 110], out: &mut [f32; 256]) {
    let (high, codes, scales) = (&block[..32], &block[32..96], &block[96..108]);
    let d = f16_at(block, 108);
    for (i, out) in out.iter_mut().enumerate() {
        let offset = if (high[i % 32] >> (i / 32)) & 1 == 0 { 4.0 } else { 0.0 };
        let scale = d * (f32::from(q3_scale(scales, i / 16)) - 32.0);
        *out = scale * (f32::from(two_bits(codes, i)) - offset);
    }
}

/// The 6-bit scale j of 16: four low bits in bytes 0..8 (the first eight scales in the low halves), two high
/// bits in bytes 8..12 (four runs of four in ascending bit positions).
fn q3_scale(scales: &[u8], j: usize) -> u8 {
    let low = (scales[j % 8] >> (j / 8 * 4)) & 0xF;
    let high = (scales[8 + j % 4] >> (j / 4 * 2)) & 3;
    low | high << 4
}

/// The 6-bit scale and minimum j of 8, from the 12 bytes that Q4_K and Q5_K share: the first four whole in
/// bytes 0..4 and 4..8, the last four with their low bits in bytes 8..12 and their high bits above the first.
fn scale_and_min(scales: &[u8], j: usize) -> (u8, u8) {
    if j < 4 {
        (scales[j] & 0x3F, scales[4 + j] & 0x3F)
    } else {
        let low = scales[4 + j];
        ((low & 0xF) | ((scales[j - 4] >> 6) << 4), (low >> 4) | ((scales[j] >> 6) << 4))
    }
}

/// Code i of 4-bit codes: each 32 bytes hold 64 codes, first the low halves, then the high ones.
fn four_bits(codes: &[u8], i: usize) -> u8 {
    (codes[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4)) & 0xF
}

/// `[d: f16][dmin: f16][scales: 12][codes: 128]`, sub-blocks of 32, w = d scale q - dmin min
pub(super) fn q4_k(block: &[u8; 144], out: &mut [f32; 256]) {
    let (d, dmin) = (f16_at(block, 0), f16_at(block, 2));
    let (scales, codes) = (&block[4..16], &block[16..]);
    for (i, out) in out.iter_mut().enumerate() {
        let (scale, min) = scale_and_min(scales, i / 32);
        *out = d * f32::from(scale) * f32::from(four_bits(codes, i)) - dmin * f32::from(min);
    }
}

/// `[d: f16][dmin: f16][scales: 12][high: 32][codes: 128]`, as Q4_K with bit i / 32 of high byte i % 32 as
/// the fifth bit of q
pub(super) fn q5_k(block: &[u8; 176], out: &mut [f32; 256]) {
    let (d, dmin) = (f16_at(block, 0), f16_at(block, 2));
    let (scales, high, codes) = (&block[4..16], &block[16..48], &block[48..]);
    for (i, out) in out.iter_mut().enumerate() {
        let (scale, min) = scale_and_min(scales, i / 32);
        let q = four_bits(codes, i) | ((high[i % 32] >> (i / 32)) & 1) << 4;
        *out = d * f32::from(scale) * f32::from(q) - dmin * f32::from(min);
    }
}

/// `[low: 128][high: 64][scales: 16 x i8][d: f16]`, sub-blocks of 16, w = d scale (q - 32); each 64 low bytes
/// hold 128 codes, first the low halves, then the high ones
pub(super) fn q6_k(block: &[u8; 210], out: &mut [f32; 256]) {
    let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let d = f16_at(block, 208);
    for (i, out) in out.iter_mut().enumerate() {
        let low = (low[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4)) & 0xF;
        let q = low | two_bits(high, i) << 4;
        *out = d * f32::from(scales[i / 16].cast_signed()) * (f32::from(q) - 32.0);
    }
}

/// `[d: f16][scales high: u16][scales low: 4][codes: 128]`, sub-blocks of 32 (16 bytes each, low halves
/// first), w = d (scale - 32) IQ4_VALUES[q]
pub(super) fn iq4_xs(block: &[u8; 136], out: &mut [f32; 256]) {
    let d = f16_at(block, 0);
    let high = u16::from_le_bytes([block[2], block[3]]);
    let (low, codes) = (&block[4..8], &block[8..]);
    for (i, out) in out.iter_mut().enumerate() {
        let j = i / 32;
        let scale = (low[j / 2] >> (j % 2 * 4)) & 0xF | (((high >> (2 * j)) & 3) as u8) << 4;
        let code = (codes[j * 16 + i % 16] >> (i % 32 / 16 * 4)) & 0xF;
        *out = d * (f32::from(scale) - 32.0) * f32::from(IQ4_VALUES[usize::from(code)]);
    }
}

//! Weights as f32: the definition of every block type, equal to gguf-py's to the last bit.
//!
//! Each product and sum below is one f32 operation, rounded, in gguf-py's order: fusing or reordering them
//! would change last bits. Layouts are those of ggml's `ggml-common.h`.

use half::{bf16, f16};

use super::dequant_k as k;
use super::types::GgmlType;

/// Turns whole blocks into f32 weights.
///
/// # Panics
/// When `bytes` is not a whole number of blocks of type `ty`, or `out` is not as long as their weights.
pub fn dequantize(ty: GgmlType, bytes: &[u8], out: &mut [f32]) {
    let blocks = bytes.len() / ty.block_bytes();
    assert_eq!(bytes.len(), blocks * ty.block_bytes(), "not a whole number of {ty} blocks");
    assert_eq!(out.len(), blocks * ty.block_len(), "output length for {blocks} {ty} blocks");
    match ty {
        GgmlType::F32 => {
            each_block(bytes, out, |block, out: &mut [f32; 1]| *out = [f32::from_le_bytes(*block)])
        }
        GgmlType::F16 => each_block(bytes, out, |block: &[u8; 2], out| *out = [f16_at(block, 0)]),
        GgmlType::BF16 => each_block(bytes, out, |block, out| *out = [bf16::from_le_bytes(*block).to_f32()]),
        GgmlType::Q4_0 => each_block(bytes, out, q4_0),
        GgmlType::Q4_1 => each_block(bytes, out, q4_1),
        GgmlType::Q5_0 => each_block(bytes, out, q5_0),
        GgmlType::Q5_1 => each_block(bytes, out, q5_1),
        GgmlType::Q8_0 => each_block(bytes, out, q8_0),
        GgmlType::Q2_K => each_block(bytes, out, k::q2_k),
        GgmlType::Q3_K => each_block(bytes, out, k::q3_k),
        GgmlType::Q4_K => each_block(bytes, out, k::q4_k),
        GgmlType::Q5_K => each_block(bytes, out, k::q5_k),
        GgmlType::Q6_K => each_block(bytes, out, k::q6_k),
        GgmlType::IQ4_NL => each_block(bytes, out, iq4_nl),
        GgmlType::IQ4_XS => each_block(bytes, out, k::iq4_xs),
    }
}

fn each_block<const BYTES: usize, const LEN: usize>(
    bytes: &[u8],
    out: &mut [f32],
    dequantize_block: impl Fn(&[u8; BYTES], &mut [f32; LEN]),
) {
    for (block, out) in bytes.as_chunks().0.iter().zip(out.as_chunks_mut().0) {
        dequantize_block(block, out);
    }
}

/// The little-endian f16 at byte `at`.
pub(super) fn f16_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// The values that the 4-bit codes of IQ4_NL and IQ4_XS stand for.
pub(super) const IQ4_VALUES: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The 32 codes of a block: weight i in the low half of byte i, weight i + 16 in its high half.
fn nibble(codes: &[u8], i: usize) -> u8 {
    if i < 16 { codes[i] & 0xF } else { codes[i - 16] >> 4 }
}

/// `[d: f16][codes: 16]`, w = d (q - 8)
fn q4_0(block: &[u8; 18], out: &mut [f32; 32]) {
    let d = f16_at(block, 0);
    for (i, out) in out.iter_mut().enumerate() {
        *out = d * (f32::from(nibble(&block[2..], i)) - 8.0);
    }
}

/// `[d: f16][m: f16][codes: 16]`, w = d q + m
fn q4_1(block: &[u8; 20], out: &mut [f32; 32]) {
    let (d, m) = (f16_at(block, 0), f16_at(block, 2));
    for (i, out) in out.iter_mut().enumerate() {
        *out = d * f32::from(nibble(&block[4..], i)) + m;
    }
}

/// The 5-bit code i of `[high: u32][low: 16]`; bit i of `high` is its fifth bit.
fn five_bits(codes: &[u8], i: usize) -> u8 {
    let high = (codes[i / 8] >> (i % 8)) & 1;
    nibble(&codes[4..], i) | high << 4
}

/// `[d: f16][high: u32][low: 16]`, w = d (q - 16)
fn q5_0(block: &[u8; 22], out: &mut [f32; 32]) {
    let d = f16_at(block, 0);
    for (i, out) in out.iter_mut().enumerate() {
        *out = d * (f32::from(five_bits(&block[2..], i)) - 16.0);
    }
}

/// `[d: f16][m: f16][high: u32][low: 16]`, w = d q + m
fn q5_1(block: &[u8; 24], out: &mut [f32; 32]) {
    let (d, m) = (f16_at(block, 0), f16_at(block, 2));
    for (i, out) in out.iter_mut().enumerate() {
        *out = d * f32::from(five_bits(&block[4..], i)) + m;
    }
}

/// `[d: f16][q: 32 x i8]`, w = d q
fn q8_0(block: &[u8; 34], out: &mut [f32; 32]) {
    let d = f16_at(block, 0);
    for (out, &q) in out.iter_mut().zip(&block[2..]) {
        *out = d * f32::from(q.cast_signed());
    }
}

/// `[d: f16][codes: 16]`, w = d IQ4_VALUES[q]
fn iq4_nl(block: &[u8; 18], out: &mut [f32; 32]) {
    let d = f16_at(block, 0);
    for (i, out) in out.iter_mut().enumerate() {
        *out = d * f32::from(IQ4_VALUES[usize::from(nibble(&block[2..], i))]);
    }
}

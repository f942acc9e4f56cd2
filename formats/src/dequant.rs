//! Weights as f32: the definition of every block type, equal to gguf-py's to the last bit.
//!
//! Each product and sum below is one f32 operation, rounded, in gguf-py's order: fusing or reordering them
//! would change last bits.

use half::{bf16, f16};

use crate::GgmlType;
use crate::codes::{self, IQ4_VALUES, f16_at};

/// Turns whole blocks into f32 weights.
///
/// # Panics
/// If `bytes` is not a whole number of blocks of type `ty`, or `out` is not as long as their weights.
pub fn dequantize(ty: GgmlType, bytes: &[u8], out: &mut [f32]) {
    let blocks = bytes.len() / ty.block_bytes();
    assert_eq!(bytes.len(), blocks * ty.block_bytes(), "not a whole number of {ty} blocks");
    assert_eq!(out.len(), blocks * ty.block_len(), "output length for {blocks} {ty} blocks");
    match ty {
        GgmlType::F32 => {
            each_block(bytes, out, |block, out: &mut [f32; 1]| *out = [f32::from_le_bytes(*block)])
        }
        GgmlType::F16 => each_block(bytes, out, |block, out| *out = [f16::from_le_bytes(*block).to_f32()]),
        GgmlType::BF16 => each_block(bytes, out, |block, out| *out = [bf16::from_le_bytes(*block).to_f32()]),
        GgmlType::Q4_0 => each_block(bytes, out, q4_0),
        GgmlType::Q4_1 => each_block(bytes, out, q4_1),
        GgmlType::Q5_0 => each_block(bytes, out, q5_0),
        GgmlType::Q5_1 => each_block(bytes, out, q5_1),
        GgmlType::Q8_0 => each_block(bytes, out, q8_0),
        GgmlType::Q2_K => each_block(bytes, out, q2_k),
        GgmlType::Q3_K => each_block(bytes, out, q3_k),
        GgmlType::Q4_K => each_block(bytes, out, q4_k),
        GgmlType::Q5_K => each_block(bytes, out, q5_k),
        GgmlType::Q6_K => each_block(bytes, out, q6_k),
        GgmlType::IQ4_NL => each_block(bytes, out, iq4_nl),
        GgmlType::IQ4_XS => each_block(bytes, out, iq4_xs),
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

/// w = d (q - 8)
fn q4_0(block: &[u8; 18], out: &mut [f32; 32]) {
    let d = f16_at(block, 0);
    for (i, out) in out.iter_mut().enumerate() {
        *out = d * (f32::from(codes::q4_0(block, i)) - 8.0);
    }
}

/// w = d q + m
fn q4_1(block: &[u8; 20], out: &mut [f32; 32]) {
    let (d, m) = (f16_at(block, 0), f16_at(block, 2));
    for (i, out) in out.iter_mut().enumerate() {
        *out = d * f32::from(codes::q4_1(block, i)) + m;
    }
}

/// w = d (q - 16)
fn q5_0(block: &[u8; 22], out: &mut [f32; 32]) {
    let d = f16_at(block, 0);
    for (i, out) in out.iter_mut().enumerate() {
        *out = d * (f32::from(codes::q5_0(block, i)) - 16.0);
    }
}

/// w = d q + m
fn q5_1(block: &[u8; 24], out: &mut [f32; 32]) {
    let (d, m) = (f16_at(block, 0), f16_at(block, 2));
    for (i, out) in out.iter_mut().enumerate() {
        *out = d * f32::from(codes::q5_1(block, i)) + m;
    }
}

/// w = d q
fn q8_0(block: &[u8; 34], out: &mut [f32; 32]) {
    let d = f16_at(block, 0);
    for (i, out) in out.iter_mut().enumerate() {
        *out = d * f32::from(codes::q8_0(block, i).cast_signed());
    }
}

/// w = d IQ4_VALUES\[q\]
fn iq4_nl(block: &[u8; 18], out: &mut [f32; 32]) {
    let d = f16_at(block, 0);
    for (i, out) in out.iter_mut().enumerate() {
        *out = d * f32::from(IQ4_VALUES[usize::from(codes::iq4_nl(block, i))]);
    }
}

/// Sub-blocks of 16, w = d scale q - dmin min
fn q2_k(block: &[u8; 84], out: &mut [f32; 256]) {
    let (d, dmin) = (f16_at(block, 80), f16_at(block, 82));
    for (i, out) in out.iter_mut().enumerate() {
        let (scale, min) = codes::q2_k_scale_and_min(block, i / 16);
        let (d, min) = (d * f32::from(scale), dmin * f32::from(min));
        *out = d * f32::from(codes::q2_k(block, i)) - min;
    }
}

/// Sub-blocks of 16, w = d (scale - 32) (q - 4)
fn q3_k(block: &[u8; 110], out: &mut [f32; 256]) {
    let d = f16_at(block, 108);
    for (i, out) in out.iter_mut().enumerate() {
        let scale = d * (f32::from(codes::q3_k_scale(block, i / 16)) - 32.0);
        *out = scale * (f32::from(codes::q3_k(block, i)) - 4.0);
    }
}

/// Sub-blocks of 32, w = d scale q - dmin min
fn q4_k(block: &[u8; 144], out: &mut [f32; 256]) {
    let (d, dmin) = (f16_at(block, 0), f16_at(block, 2));
    for (i, out) in out.iter_mut().enumerate() {
        let (scale, min) = codes::q4_k_scale_and_min(block, i / 32);
        *out = d * f32::from(scale) * f32::from(codes::q4_k(block, i)) - dmin * f32::from(min);
    }
}

/// Sub-blocks of 32, w = d scale q - dmin min
fn q5_k(block: &[u8; 176], out: &mut [f32; 256]) {
    let (d, dmin) = (f16_at(block, 0), f16_at(block, 2));
    for (i, out) in out.iter_mut().enumerate() {
        let (scale, min) = codes::q4_k_scale_and_min(block, i / 32);
        *out = d * f32::from(scale) * f32::from(codes::q5_k(block, i)) - dmin * f32::from(min);
    }
}

/// Sub-blocks of 16, w = d scale (q - 32)
fn q6_k(block: &[u8; 210], out: &mut [f32; 256]) {
    let d = f16_at(block, 208);
    for (i, out) in out.iter_mut().enumerate() {
        let scale = f32::from(codes::q6_k_scale(block, i / 16));
        *out = d * scale * (f32::from(codes::q6_k(block, i)) - 32.0);
    }
}

/// Sub-blocks of 32, w = d (scale - 32) IQ4_VALUES\[q\]
fn iq4_xs(block: &[u8; 136], out: &mut [f32; 256]) {
    let d = f16_at(block, 0);
    for (i, out) in out.iter_mut().enumerate() {
        let scale = f32::from(codes::iq4_xs_scale(block, i / 32)) - 32.0;
        *out = d * scale * f32::from(IQ4_VALUES[usize::from(codes::iq4_xs(block, i))]);
    }
}

//! Random matrices in every block format, and what they stand for.
use crate::device::Rng;
use ember_kernels_cubecl::BlockType;
use ember_loaders::gguf::{GgmlType, dequantize};

/// The loader's name of a type.
fn ggml(ty: BlockType) -> GgmlType {
    match ty {
        BlockType::F32 => GgmlType::F32,
        BlockType::F16 => GgmlType::F16,
        BlockType::BF16 => GgmlType::BF16,
        BlockType::Q4_0 => GgmlType::Q4_0,
        BlockType::Q4_1 => GgmlType::Q4_1,
        BlockType::Q5_0 => GgmlType::Q5_0,
        BlockType::Q5_1 => GgmlType::Q5_1,
        BlockType::Q8_0 => GgmlType::Q8_0,
        BlockType::Q2_K => GgmlType::Q2_K,
        BlockType::Q3_K => GgmlType::Q3_K,
        BlockType::Q4_K => GgmlType::Q4_K,
        BlockType::Q5_K => GgmlType::Q5_K,
        BlockType::Q6_K => GgmlType::Q6_K,
        BlockType::IQ4_NL => GgmlType::IQ4_NL,
        BlockType::IQ4_XS => GgmlType::IQ4_XS,
    }
}

/// Where a block has its f16 scales.
fn scales_at(ty: BlockType) -> &'static [usize] {
    use BlockType::*;
    match ty {
        F32 | F16 | BF16 => &[],
        Q4_0 | Q5_0 | Q8_0 | IQ4_NL | IQ4_XS => &[0],
        Q4_1 | Q5_1 | Q4_K | Q5_K => &[0, 2],
        Q2_K => &[80, 82],
        Q3_K => &[108],
        Q6_K => &[208],
    }
}

/// An f16 that is a plausible scale: positive or negative, normal or, now and then, subnormal.
fn half_scale(rng: &mut Rng) -> u16 {
    let bits = rng.next();
    let sign = (bits as u16) & 0x8000;
    let mantissa = (bits >> 16) as u16 & 0x3ff;
    let exponent = if bits >> 60 == 0 { 0 } else { 5 + (bits >> 32) as u16 % 4 };
    sign | exponent << 10 | mantissa
}

/// `rows` random rows as they would be in a GGUF file.
pub fn random_rows(ty: BlockType, rows: usize, cols: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng(seed);
    if ty == BlockType::F32 {
        return (0..rows * cols).flat_map(|_| rng.uniform().to_le_bytes()).collect();
    }
    if ty == BlockType::BF16 {
        return (0..rows * cols)
            .flat_map(|_| ((rng.uniform().to_bits() >> 16) as u16).to_le_bytes())
            .collect();
    }
    if ty == BlockType::F16 {
        return (0..rows * cols).flat_map(|_| half_scale(&mut rng).to_le_bytes()).collect();
    }
    let mut bytes: Vec<u8> = (0..rows * ty.row_bytes(cols).unwrap()).map(|_| rng.next() as u8).collect();
    for block in bytes.chunks_exact_mut(ty.block_bytes()) {
        for &at in scales_at(ty) {
            block[at..at + 2].copy_from_slice(&half_scale(&mut rng).to_le_bytes());
        }
    }
    bytes
}

/// The weights that rows stand for.
pub fn weights(ty: BlockType, gguf: &[u8]) -> Vec<f32> {
    let mut out = vec![0.0; gguf.len() / ty.block_bytes() * ty.block_len()];
    dequantize(ggml(ty), gguf, &mut out);
    out
}

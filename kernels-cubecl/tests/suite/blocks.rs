//! Random matrices in every block format, and what they stand for.
use crate::device::Rng;
use ember_formats::dequantize;
use ember_kernels_cubecl::BlockType;

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
    let mut bytes: Vec<u8> = (0..rows * ty.row_bytes(cols)).map(|_| rng.next() as u8).collect();
    for block in bytes.chunks_exact_mut(ty.block_bytes()) {
        for &at in ty.scale_offsets() {
            block[at..at + 2].copy_from_slice(&half_scale(&mut rng).to_le_bytes());
        }
    }
    bytes
}

/// The weights that rows stand for.
pub fn weights(ty: BlockType, gguf: &[u8]) -> Vec<f32> {
    let mut out = vec![0.0; gguf.len() / ty.block_bytes() * ty.block_len()];
    dequantize(ty, gguf, &mut out);
    out
}

//! Random matrices in every block format, and the weights that they stand for.
use ember_formats::dequantize;
use ember_kernels_cubecl::GgmlType;
use ember_test_support::{Random, sample_blocks};

/// `rows` random rows as they would be in a GGUF file.
pub fn random_rows(ty: GgmlType, rows: usize, cols: usize, seed: u64) -> Vec<u8> {
    sample_blocks(ty, rows * cols / ty.block_len(), &mut Random::new(seed))
}

/// The weights that rows stand for.
pub fn weights(ty: GgmlType, gguf: &[u8]) -> Vec<f32> {
    let mut out = vec![0.0; gguf.len() / ty.block_bytes() * ty.block_len()];
    dequantize(ty, gguf, &mut out);
    out
}

//! Random matrices in every block format, and what they stand for.
use ember_kernels_cubecl::BlockType;
use ember_loaders::gguf::{GgmlType, dequantize};
use ember_test_support::{Random, sample_blocks};

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

/// `rows` random rows as they would be in a GGUF file.
pub fn random_rows(ty: BlockType, rows: usize, cols: usize, seed: u64) -> Vec<u8> {
    sample_blocks(ggml(ty), rows * cols / ty.block_len(), &mut Random::new(seed))
}

/// The weights that rows stand for.
pub fn weights(ty: BlockType, gguf: &[u8]) -> Vec<f32> {
    let mut out = vec![0.0; gguf.len() / ty.block_bytes() * ty.block_len()];
    dequantize(ggml(ty), gguf, &mut out);
    out
}

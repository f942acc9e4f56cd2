//! Random matrices and activations for the tests of `linear`.
#![allow(dead_code)] // each test crate uses its part

use ember_kernels_cpu::BlockType;
use ember_loaders::gguf::GgmlType;
use ember_test_support::{Random, sample_blocks, scale_offsets};
use half::f16;

/// Activations with the outliers that real ones have.
pub fn activations(random: &mut Random, len: usize) -> Vec<f32> {
    (0..len).map(|_| random.uniform() * if random.below(50) == 0 { 20.0 } else { 1.0 }).collect()
}

/// `rows` x `cols` elements of type `ty`.
pub fn matrix(random: &mut Random, ty: BlockType, rows: usize, cols: usize) -> Vec<u8> {
    sample_blocks(ggml_type(ty), bytes_of(ty, rows, cols) / ty.block_bytes(), random)
}

/// Bytes that a matrix takes.
pub fn bytes_of(ty: BlockType, rows: usize, cols: usize) -> usize {
    rows * ty.row_bytes(cols).expect("the tests use whole blocks")
}

/// A matrix whose blocks all have the codes `code` (every byte) and the scale 1.
pub fn constant_matrix(ty: BlockType, rows: usize, cols: usize, code: u8) -> Vec<u8> {
    let mut bytes = vec![code; bytes_of(ty, rows, cols)];
    for block in bytes.chunks_exact_mut(ty.block_bytes()) {
        for &at in scale_offsets(ggml_type(ty)) {
            block[at..at + 2].copy_from_slice(&f16::ONE.to_le_bytes());
        }
    }
    bytes
}

/// The loader's name of a type.
pub fn ggml_type(ty: BlockType) -> GgmlType {
    use BlockType::*;
    match ty {
        F32 => GgmlType::F32,
        F16 => GgmlType::F16,
        BF16 => GgmlType::BF16,
        Q4_0 => GgmlType::Q4_0,
        Q4_1 => GgmlType::Q4_1,
        Q5_0 => GgmlType::Q5_0,
        Q5_1 => GgmlType::Q5_1,
        Q8_0 => GgmlType::Q8_0,
        Q2_K => GgmlType::Q2_K,
        Q3_K => GgmlType::Q3_K,
        Q4_K => GgmlType::Q4_K,
        Q5_K => GgmlType::Q5_K,
        Q6_K => GgmlType::Q6_K,
        IQ4_NL => GgmlType::IQ4_NL,
        IQ4_XS => GgmlType::IQ4_XS,
    }
}

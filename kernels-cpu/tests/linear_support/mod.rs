//! Random matrices and activations for the tests of `linear`.
#![allow(dead_code)] // each test crate uses its part

use ember_kernels_cpu::GgmlType;
use ember_test_support::{Random, sample_blocks};
use half::f16;

/// Activations with the outliers that real ones have.
pub fn activations(random: &mut Random, len: usize) -> Vec<f32> {
    (0..len).map(|_| random.uniform() * if random.below(50) == 0 { 20.0 } else { 1.0 }).collect()
}

/// `rows` x `cols` elements of type `ty`.
pub fn matrix(random: &mut Random, ty: GgmlType, rows: usize, cols: usize) -> Vec<u8> {
    sample_blocks(ty, bytes_of(ty, rows, cols) / ty.block_bytes(), random)
}

/// Bytes that a matrix takes.
pub fn bytes_of(ty: GgmlType, rows: usize, cols: usize) -> usize {
    rows * ty.row_bytes(cols)
}

/// A matrix whose blocks all have the codes `code` (every byte) and the scale 1.
pub fn constant_matrix(ty: GgmlType, rows: usize, cols: usize, code: u8) -> Vec<u8> {
    let mut bytes = vec![code; bytes_of(ty, rows, cols)];
    for block in bytes.chunks_exact_mut(ty.block_bytes()) {
        for &at in ty.scale_offsets() {
            block[at..at + 2].copy_from_slice(&f16::ONE.to_le_bytes());
        }
    }
    bytes
}

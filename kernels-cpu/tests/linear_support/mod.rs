//! Random matrices and activations for the tests of `linear`.
#![allow(dead_code)] // each test crate uses its part

use ember_kernels_cpu::BlockType;
use half::{bf16, f16};

/// A small seeded generator (xorshift64*): the tests need the same numbers everywhere, not good ones.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn bits(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    /// Uniform in -1..1.
    pub fn signed(&mut self) -> f32 {
        self.bits() as i32 as f32 / 2f32.powi(31)
    }

    /// Activations with the outliers that real ones have.
    pub fn activations(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.signed() * if self.bits().is_multiple_of(50) { 20.0 } else { 1.0 }).collect()
    }

    /// `rows` x `cols` elements of type `ty`: random codes with scales of the size that real files have.
    pub fn matrix(&mut self, ty: BlockType, rows: usize, cols: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..bytes_of(ty, rows, cols)).map(|_| self.bits() as u8).collect();
        for block in bytes.chunks_exact_mut(ty.block_bytes()) {
            match ty {
                BlockType::F32 => block.copy_from_slice(&self.signed().to_le_bytes()),
                BlockType::F16 => block.copy_from_slice(&f16::from_f32(self.signed()).to_le_bytes()),
                BlockType::BF16 => block.copy_from_slice(&bf16::from_f32(self.signed()).to_le_bytes()),
                _ => {
                    for at in ty.scale_offsets() {
                        let scale = f16::from_f32(self.signed() * 0.01);
                        block[*at..at + 2].copy_from_slice(&scale.to_le_bytes());
                    }
                }
            }
        }
        bytes
    }
}

/// Bytes that a matrix takes.
pub fn bytes_of(ty: BlockType, rows: usize, cols: usize) -> usize {
    rows * ty.row_bytes(cols)
}

/// A matrix whose blocks all have the codes `code` (every byte) and the scale 1.
pub fn constant_matrix(ty: BlockType, rows: usize, cols: usize, code: u8) -> Vec<u8> {
    let mut bytes = vec![code; bytes_of(ty, rows, cols)];
    for block in bytes.chunks_exact_mut(ty.block_bytes()) {
        for at in ty.scale_offsets() {
            block[*at..at + 2].copy_from_slice(&f16::ONE.to_le_bytes());
        }
    }
    bytes
}

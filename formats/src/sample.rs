//! Seeded numbers and blocks, to check kernels with: in the tests, and on a device that no test has met.
use crate::GgmlType;
use half::{bf16, f16};

/// A seeded generator, Vigna's SplitMix64: the same numbers everywhere.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Random bytes.
    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.bits() as u8).collect()
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// A number of the uniform distribution on `-1.0..1.0`.
    pub fn uniform(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// Numbers of [`uniform`](Self::uniform).
    pub fn uniforms(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.uniform()).collect()
    }

    /// Numbers of a bell-shaped distribution of unit variance: sums of four uniform ones.
    pub fn bell(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| (0..4).map(|_| self.uniform()).sum::<f32>() * 0.75f32.sqrt()).collect()
    }

    /// The numbers below `n` in a random order.
    pub fn shuffled(&mut self, n: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..n as u32).collect();
        for i in (1..n).rev() {
            order.swap(i, self.below(i + 1));
        }
        order
    }

    /// A plausible scale: of either sign, from 2^-10 to 2^-6 or, now and then, subnormal.
    fn scale(&mut self) -> f16 {
        let bits = self.bits();
        let exponent = if bits >> 60 == 0 { 0 } else { 5 + (bits >> 32) as u16 % 4 };
        f16::from_bits(bits as u16 & 0x8000 | exponent << 10 | (bits >> 16) as u16 & 0x3ff)
    }
}

/// `n` seeded numbers of the uniform distribution on `-1.0..1.0`.
pub fn random(seed: u64, n: usize) -> Vec<f32> {
    Random::new(seed).uniforms(n)
}

/// `n` random blocks: any bits are valid codes, and the scales are numbers that occur in files.
pub fn sample_blocks(ty: GgmlType, n: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = random.bytes(n * ty.block_bytes());
    for block in bytes.chunks_exact_mut(ty.block_bytes()) {
        match ty {
            GgmlType::F32 => block.copy_from_slice(&random.uniform().to_le_bytes()),
            GgmlType::F16 => block.copy_from_slice(&random.scale().to_le_bytes()),
            GgmlType::BF16 => block.copy_from_slice(&bf16::from_f32(random.uniform()).to_le_bytes()),
            _ => {
                for &at in ty.scale_offsets() {
                    block[at..at + 2].copy_from_slice(&random.scale().to_le_bytes());
                }
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dequantize;

    /// The first numbers of Vigna's C program for seed 0.
    #[test]
    fn the_generator_is_splitmix64() {
        let mut random = Random::new(0);
        assert_eq!([(); 2].map(|()| random.bits()), [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
    }

    #[test]
    fn numbers_have_the_distribution_that_is_said() {
        // Mean and variance.
        let moments = |x: &[f32]| {
            let mean = |power| x.iter().map(|&x| f64::from(x).powi(power)).sum::<f64>() / x.len() as f64;
            [mean(1), mean(2)]
        };
        let near = |found: [f64; 2], expected: [f64; 2]| {
            assert!((0..2).all(|i| (found[i] - expected[i]).abs() < 0.02), "{found:?} for {expected:?}");
        };
        let uniform = random(1, 100_000);
        assert!(uniform.iter().all(|x| (-1.0..1.0).contains(x)));
        near(moments(&uniform), [0.0, 1.0 / 3.0]);
        near(moments(&Random::new(2).bell(100_000)), [0.0, 1.0]);
        let mut order = Random::new(3).shuffled(100);
        assert!(!order.is_sorted());
        order.sort_unstable();
        assert_eq!(order, (0..100).collect::<Vec<u32>>());
    }

    #[test]
    fn blocks_of_every_type_hold_numbers() {
        for ty in GgmlType::ALL {
            let mut weights = vec![f32::NAN; 100 * ty.block_len()];
            dequantize(ty, &sample_blocks(ty, 100, &mut Random::new(4)), &mut weights);
            assert!(weights.iter().all(|weight| weight.is_finite()), "{ty}");
            let zeros = weights.iter().filter(|&&weight| weight == 0.0).count();
            assert!(2 * zeros < weights.len(), "{ty}: {zeros} of {} are 0", weights.len());
        }
    }
}

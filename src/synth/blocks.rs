//! Random blocks: any bits are valid quants, so only the scales are set, such that weights have mean near 0 and
//! standard deviation `1 / sqrt(cols)` and activations neither grow nor vanish.
use ember_loaders::gguf::GgmlType;
use half::f16;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::RngCore;

/// `n_blocks` random blocks of a matrix with `cols` columns.
///
/// # Panics
/// For types that [`SynthType`](super::SynthType) does not use.
pub fn random(ty: GgmlType, n_blocks: usize, cols: usize, rng: &mut ChaCha8Rng) -> Vec<u8> {
    let deviation = 1.0 / (cols as f32).sqrt();
    let mut bytes = vec![0; n_blocks * ty.block_bytes()];
    rng.fill_bytes(&mut bytes);
    for block in bytes.chunks_exact_mut(ty.block_bytes()) {
        match ty {
            GgmlType::F16 => uniform_f16(block, deviation),
            // 256 equally likely values 1 apart deviate by 73.9 steps, 16 by 4.61, 64 by 18.47.
            GgmlType::Q8_0 => set_f16(&mut block[..2], deviation / 73.9),
            GgmlType::Q4_0 => scale_q4_0(block, deviation / 4.61),
            GgmlType::Q4_K => scale_q4_k(block, deviation / 4.61),
            GgmlType::Q6_K => scale_q6_k(block, deviation / 18.47),
            other => unreachable!("{} is not written", other.name()),
        }
    }
    bytes
}

fn set_f16(to: &mut [u8], value: f32) {
    to.copy_from_slice(&f16::from_f32(value).to_le_bytes());
}

/// A value of the uniform distribution with the given deviation, from the block's own random bits.
fn uniform_f16(block: &mut [u8], deviation: f32) {
    let random = i16::from_le_bytes([block[0], block[1]]);
    set_f16(block, f32::from(random) / 32768.0 * deviation * 3f32.sqrt());
}

/// The quants are -8 to 7; scales of both signs keep their mean of -0.5 from adding up.
fn scale_q4_0(block: &mut [u8], step: f32) {
    let sign = if block[0] & 1 == 0 { 1.0 } else { -1.0 };
    set_f16(&mut block[..2], sign * step);
}

/// Sub-block scales of 24 to 39 with equal minimums, and `dmin = 7.5 d`, so that the 16 quants lie around 0.
///
/// Layout: `d`, `dmin` (f16), 12 bytes of 6-bit scales and minimums, 128 bytes of quants. Here the upper two bits of
/// all scales and minimums are `01` or `10`.
fn scale_q4_k(block: &mut [u8], step: f32) {
    let d = step / 32.0;
    set_f16(&mut block[..2], d);
    set_f16(&mut block[2..4], 7.5 * d);
    let scales: Vec<u8> = block[4..12].iter().map(|random| 24 + random % 16).collect();
    for j in 0..4 {
        let (low, high) = (scales[j], scales[j + 4]);
        block[4 + j] = low | (high >> 4) << 6;
        block[8 + j] = low | (high >> 4) << 6;
        block[12 + j] = (high & 15) | (high & 15) << 4;
    }
}

/// Sub-block scales of 24 to 39 with either sign, as the quants are -32 to 31. Layout: 192 bytes of quants, 16 scales
/// (i8), `d` (f16).
fn scale_q6_k(block: &mut [u8], step: f32) {
    for scale in &mut block[192..208] {
        let size = 24 + *scale % 16;
        *scale = if *scale < 128 { size } else { size.wrapping_neg() };
    }
    set_f16(&mut block[208..210], step / 32.0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ember_loaders::gguf::dequantize;
    use rand_chacha::rand_core::SeedableRng;

    #[test]
    fn weights_have_the_stated_mean_and_deviation() {
        for ty in [GgmlType::F16, GgmlType::Q8_0, GgmlType::Q4_0, GgmlType::Q4_K, GgmlType::Q6_K] {
            let cols = 4096;
            let n_blocks = 65536 / ty.block_len();
            let bytes = random(ty, n_blocks, cols, &mut ChaCha8Rng::seed_from_u64(1));
            let mut values = vec![0f32; 65536];
            dequantize(ty, &bytes, &mut values);
            let mean = values.iter().sum::<f32>() / 65536.0;
            let deviation = (values.iter().map(|v| (v - mean).powi(2)).sum::<f32>() / 65536.0).sqrt();
            let wanted = 1.0 / 64.0;
            assert!((deviation / wanted - 1.0).abs() < 0.05, "{}: {deviation}", ty.name());
            assert!(mean.abs() < 0.02 * wanted, "{}: {mean}", ty.name());
        }
    }
}

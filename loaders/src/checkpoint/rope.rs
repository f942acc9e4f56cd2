//! Rotary position embedding: a checkpoint's frequencies, as they follow from its metadata.

use std::f64::consts::PI;

use ember_formats::Pairing;

/// Rotary embedding of one model.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeConfig {
    /// Elements rotated per head; equal to the head dimension in every supported architecture.
    pub dim: usize,
    /// Base of the geometric series of wavelengths (`rope_theta`).
    pub freq_base: f32,
    /// The elements that form a pair.
    pub pairing: Pairing,
    /// The stretching of the frequencies for a longer context.
    pub scaling: RopeScaling,
}

/// The stretching of rotary frequencies beyond the context that a model was pretrained on.
///
/// Llama 3's frequency factors are not here: they come as the tensor `rope_freqs.weight`, see
/// [`RopeConfig::inv_freq`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// Frequencies as they are.
    None,
    /// Every frequency divided by `factor` (position interpolation).
    Linear {
        /// Factor by which the context becomes longer.
        factor: f32,
    },
    /// YaRN: high frequencies kept, low ones divided by `factor`, a linear ramp over the dimension index between.
    Yarn {
        /// Factor by which the context becomes longer.
        factor: f32,
        /// Context length of the pretraining, in tokens.
        original_context: usize,
        /// Pairs that turn at least this often within `original_context` keep their frequency.
        beta_fast: f32,
        /// Pairs that turn at most this often are fully interpolated.
        beta_slow: f32,
        /// Strength of the ramp: 1 is YaRN, 0 is linear scaling.
        ext_factor: f32,
        /// Extra multiplier of cos and sin.
        attn_factor: f32,
        /// `mscale_all_dim`: when not 0, the magnitude is divided by the one this value gives.
        log_multiplier: f32,
    },
}

impl RopeConfig {
    /// Angle per position of each pair, `dim / 2` values.
    ///
    /// `freq_factors` is the tensor `rope_freqs.weight` (`dim / 2` divisors) when the checkpoint has one.
    ///
    /// # Panics
    /// If `freq_factors` is not `dim / 2` long; [`Checkpoint`](super::Checkpoint) has checked the tensor's shape.
    pub fn inv_freq(&self, freq_factors: Option<&[f32]>) -> Vec<f32> {
        let pairs = self.dim / 2;
        if let Some(factors) = freq_factors {
            assert_eq!(factors.len(), pairs, "rope_freqs.weight has one factor per pair");
        }
        (0..pairs).map(|i| self.stretched(i) / freq_factors.map_or(1.0, |factors| factors[i])).collect()
    }

    /// Multiplier of cos and sin (YaRN's attention temperature).
    ///
    /// As llama.cpp finally applies it: the `1 + 0.1 ln factor` of its kernel is cancelled by its context.
    pub fn magnitude(&self) -> f32 {
        let RopeScaling::Yarn { factor, ext_factor, attn_factor, log_multiplier, .. } = self.scaling else {
            return 1.0;
        };
        let base = match (ext_factor, log_multiplier) {
            (0.0, _) => 1.0,
            (_, 0.0) => yarn_mscale(factor, 1.0),
            (_, all_dim) => yarn_mscale(factor, 1.0) / yarn_mscale(factor, all_dim),
        };
        (base * f64::from(attn_factor)) as f32
    }

    /// The original context and the factor by which YaRN makes it longer.
    pub(super) fn yarn_stretch(&self) -> Option<(usize, f32)> {
        match self.scaling {
            RopeScaling::Yarn { factor, original_context, .. } => Some((original_context, factor)),
            RopeScaling::None | RopeScaling::Linear { .. } => None,
        }
    }

    /// True if every frequency and the magnitude can be computed with.
    pub(super) fn is_finite(&self) -> bool {
        self.magnitude().is_finite() && self.inv_freq(None).iter().all(|frequency| frequency.is_finite())
    }

    /// The frequency of pair `i` after scaling.
    ///
    /// Rounded to f32 at every step as PyTorch does it: far into a context a model has seen those very frequencies,
    /// and at position 200 000 the last bit of one turns its pair by a hundredth of a radian.
    fn stretched(&self, i: usize) -> f32 {
        let period = f64::from(self.freq_base).powf(2.0 * i as f64 / self.dim as f64) as f32;
        let kept = 1.0 / period;
        match self.scaling {
            RopeScaling::None => kept,
            RopeScaling::Linear { factor } => kept / factor,
            RopeScaling::Yarn { factor, .. } => {
                let share = self.kept_share(i);
                1.0 / (factor * period) * (1.0 - share) + kept * share
            }
        }
    }

    /// YaRN's ramp: 1 where the frequency of pair `i` is kept, 0 where it is divided by the factor.
    fn kept_share(&self, i: usize) -> f32 {
        let RopeScaling::Yarn { original_context, beta_fast, beta_slow, ext_factor, .. } = self.scaling
        else {
            return 1.0;
        };
        let low = self.rotation_dim(original_context, beta_fast).floor().max(0.0);
        let high = self.rotation_dim(original_context, beta_slow).ceil().min(self.dim as f64 - 1.0);
        let ramp = (i as f32 - low as f32) / (high - low).max(0.001) as f32;
        (1.0 - ramp.clamp(0.0, 1.0)) * ext_factor
    }

    /// Pair index (fractional) that turns `rotations` times within `context` tokens.
    fn rotation_dim(&self, context: usize, rotations: f32) -> f64 {
        let turns = context as f64 / (f64::from(rotations) * 2.0 * PI);
        self.dim as f64 * turns.ln() / (2.0 * f64::from(self.freq_base).ln())
    }
}

/// YaRN's attention temperature for a context `scale` times longer.
pub(super) fn yarn_mscale(scale: f32, multiplier: f32) -> f64 {
    if scale <= 1.0 { 1.0 } else { 0.1 * f64::from(multiplier) * f64::from(scale).ln() + 1.0 }
}

/// The `attn_factor` and `log_multiplier` that give the magnitude `mscale / mscale_all_dim` asks for.
pub(super) fn yarn_factors(factor: f32, mscale: f32, mscale_all_dim: f32) -> (f32, f32) {
    ((yarn_mscale(factor, mscale) / yarn_mscale(factor, 1.0)) as f32, mscale_all_dim)
}

/// Llama 3's frequency factors, `dim / 2` divisors: what llama.cpp's converter stores as `rope_freqs.weight`.
///
/// Wavelengths above `original_context / low_freq_factor` are stretched by `factor`, those below
/// `original_context / high_freq_factor` are kept, the ones between are blended.
pub(super) fn llama3_freq_factors(
    dim: usize,
    freq_base: f32,
    factor: f64,
    low_freq_factor: f64,
    high_freq_factor: f64,
    original_context: f64,
) -> Vec<f32> {
    (0..dim / 2)
        .map(|i| {
            let wavelength = 2.0 * PI * f64::from(freq_base).powf(2.0 * i as f64 / dim as f64);
            let turns = original_context / wavelength;
            if turns > high_freq_factor {
                1.0
            } else if turns < low_freq_factor {
                factor as f32
            } else {
                let keep = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor);
                (1.0 / ((1.0 - keep) / factor + keep)) as f32
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ministral3(log_multiplier: f32) -> RopeConfig {
        yarn(16.0, 16384, log_multiplier)
    }

    fn yarn(factor: f32, original_context: usize, log_multiplier: f32) -> RopeConfig {
        let scaling = RopeScaling::Yarn {
            factor,
            original_context,
            beta_fast: 32.0,
            beta_slow: 1.0,
            ext_factor: 1.0,
            attn_factor: 1.0,
            log_multiplier,
        };
        RopeConfig { dim: 128, freq_base: 1e6, pairing: Pairing::Adjacent, scaling }
    }

    #[track_caller]
    fn assert_close(actual: f32, expected: f64) {
        let relative = (f64::from(actual) / expected - 1.0).abs();
        assert!(relative < 1e-6, "{actual} is not {expected} (relative difference {relative:e})");
    }

    /// Values computed from HF's formula, which is also llama.cpp's.
    #[test]
    fn ministral3_inverse_frequencies() {
        let inv_freq = ministral3(1.0).inv_freq(None);
        assert_eq!(inv_freq.len(), 64);
        for (i, expected) in [
            (0, 1.0),
            (1, 8.058421878e-1),
            (16, 3.162277660e-2),
            (20, 1.333521432e-2),
            (24, 4.382954446e-3),
            (28, 1.325179424e-3),
            (32, 3.382352941e-4),
            (36, 4.961135334e-5),
            (37, 2.123880206e-5),
            (40, 1.111424631e-5),
            (63, 7.755861005e-8),
        ] {
            assert_close(inv_freq[i], expected);
        }
    }

    #[test]
    fn qwen3_yarn_inverse_frequencies() {
        let inv_freq = yarn(4.0, 32768, 0.0).inv_freq(None);
        for (i, expected) in [
            (22, 8.659643e-3),
            (23, 6.978306e-3),
            (30, 1.064361e-3),
            (40, 4.445699e-5),
            (41, 3.582531e-5),
            (63, 3.102344e-7),
        ] {
            assert_close(inv_freq[i], expected);
        }
    }

    #[test]
    fn yarn_ramp_borders() {
        for (rope, low, high) in [(ministral3(1.0), 20, 37), (yarn(4.0, 32768, 0.0), 23, 40)] {
            assert_eq!(rope.kept_share(low), 1.0);
            assert!(rope.kept_share(low + 1) < 1.0);
            assert!(rope.kept_share(high - 1) > 0.0);
            assert_eq!(rope.kept_share(high), 0.0);
        }
        let rope = ministral3(1.0);
        assert!((rope.rotation_dim(16384, 32.0) - 20.385).abs() < 5e-4);
        assert!((rope.rotation_dim(16384, 1.0) - 36.440).abs() < 5e-4);
    }

    #[test]
    fn magnitudes() {
        assert_eq!(ministral3(1.0).magnitude(), 1.0);
        assert_close(ministral3(0.0).magnitude(), 1.2772589);
        assert_close(yarn(4.0, 32768, 0.0).magnitude(), 1.1386294);
        assert_eq!(RopeConfig { scaling: RopeScaling::None, ..ministral3(0.0) }.magnitude(), 1.0);
        assert_eq!(
            RopeConfig { scaling: RopeScaling::Linear { factor: 4.0 }, ..ministral3(0.0) }.magnitude(),
            1.0
        );
    }

    /// `ext_factor` weakens the ramp, down to linear scaling without any temperature.
    #[test]
    fn ext_factor_and_attn_factor() {
        let with = |ext_factor, attn_factor| {
            let RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, log_multiplier, .. } =
                ministral3(0.0).scaling
            else {
                unreachable!()
            };
            let scaling = RopeScaling::Yarn {
                factor,
                original_context,
                beta_fast,
                beta_slow,
                ext_factor,
                attn_factor,
                log_multiplier,
            };
            RopeConfig { scaling, ..ministral3(0.0) }
        };
        assert_eq!(with(0.5, 1.0).inv_freq(None)[0], 0.5 + 0.5 / 16.0);
        assert_eq!(with(0.0, 1.0).inv_freq(None)[0], 1.0 / 16.0);
        assert_eq!(with(0.0, 1.0).magnitude(), 1.0);
        assert_close(with(1.0, 0.5).magnitude(), 1.2772589 / 2.0);
    }

    #[test]
    fn linear_and_unscaled_frequencies() {
        let plain = RopeConfig { scaling: RopeScaling::None, ..ministral3(0.0) };
        assert_close(plain.inv_freq(None)[32], 1e-3);
        let linear = RopeConfig { scaling: RopeScaling::Linear { factor: 4.0 }, ..ministral3(0.0) };
        assert_close(linear.inv_freq(None)[32], 2.5e-4);
    }

    #[test]
    fn frequency_factors_divide() {
        let plain = RopeConfig { scaling: RopeScaling::None, ..ministral3(0.0) };
        let mut factors = vec![1.0; 64];
        factors[32] = 8.0;
        let inv_freq = plain.inv_freq(Some(&factors));
        assert_close(inv_freq[32], 1.25e-4);
        assert_eq!(inv_freq[31], plain.inv_freq(None)[31]);
    }

    /// Llama 3.1's own settings; the expected values are the converter's formula evaluated in Python.
    #[test]
    fn llama3_factors() {
        let factors = llama3_freq_factors(128, 5e5, 8.0, 1.0, 4.0, 8192.0);
        assert_eq!(factors.len(), 64);
        for (i, expected) in LLAMA31_FACTORS {
            assert_close(factors[i], expected);
        }
    }

    const LLAMA31_FACTORS: [(usize, f64); 8] = [
        (0, 1.0),
        (28, 1.0),
        (29, 1.207483871283662),
        (30, 1.5534146285049255),
        (32, 2.6945296878947333),
        (34, 5.257326588708467),
        (35, 8.0),
        (63, 8.0),
    ];
}

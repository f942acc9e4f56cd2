//! The device under test, and data for it.
pub use crate::under_test::{TestRuntime, gpu};
use ember_kernels_cubecl::{Buffer, Capabilities, Gpu};

/// The device as it is, with plane operations (which llvmpipe runs but does not advertise), and without.
pub fn plane_variants() -> Vec<Gpu<TestRuntime>> {
    let gpu = gpu();
    let plane = Some(gpu.client.properties().hardware.plane_size_max);
    [plane, None].map(|plane| gpu.with_capabilities(Capabilities { plane, ..gpu.caps() })).into()
}

/// Uploads floats.
pub fn upload(gpu: &Gpu<TestRuntime>, values: &[f32]) -> Buffer {
    let words: Vec<u32> = values.iter().map(|value| value.to_bits()).collect();
    gpu.upload("test data", &words).expect("test data is small")
}

/// Reproducible floats, uniform in `-1.0..1.0`.
pub fn random(len: usize, seed: u64) -> Vec<f32> {
    let mut rng = Rng(seed);
    (0..len).map(|_| rng.uniform()).collect()
}

/// Vigna's splitmix64.
pub struct Rng(pub u64);

impl Rng {
    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `-1.0..1.0`.
    pub fn uniform(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

/// `‖actual - expected‖ / ‖expected‖`.
pub fn relative_error(actual: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(actual.len(), expected.len());
    let difference: f64 = actual.iter().zip(expected).map(|(&a, e)| (f64::from(a) - e).powi(2)).sum();
    let norm: f64 = expected.iter().map(|e| e * e).sum();
    assert!(difference.is_finite(), "the result is not finite");
    (difference / norm.max(f64::MIN_POSITIVE)).sqrt()
}

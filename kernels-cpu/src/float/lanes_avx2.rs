//! [`Simd`] on AVX2, FMA and F16C.

use std::arch::x86_64::*;

use super::lanes::{Kernel, Simd};

/// Proof that AVX2, FMA and F16C are available.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// The token, where the processor has the instructions.
    pub(crate) fn detect() -> Option<Self> {
        let available = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        available.then_some(Self(()))
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn run<K: Kernel>(simd: Avx2, kernel: K) -> K::Output {
    kernel.run(simd)
}

// SAFETY of every block below: an `Avx2` exists only where `detect` has seen the instructions,
// and each load or store goes through a reference to exactly the bytes it touches.
impl Simd for Avx2 {
    type F = __m256;
    const WIDE_TILES: bool = true;

    #[inline(always)]
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: see above.
        unsafe { run(self, kernel) }
    }
    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_set1_ps(x) }
    }
    #[inline(always)]
    fn load(self, x: &[f32; 8]) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_loadu_ps(x.as_ptr()) }
    }
    #[inline(always)]
    fn load_bytes(self, x: &[u8; 32]) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_loadu_ps(x.as_ptr().cast()) }
    }
    #[inline(always)]
    fn widen_f16(self, x: [u8; 2]) -> f32 {
        // SAFETY: see above.
        unsafe { _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(u16::from_ne_bytes(x))))) }
    }
    #[inline(always)]
    fn load_f16(self, x: &[u8; 16]) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().cast())) }
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u8; 16]) -> __m256 {
        // SAFETY: see above. A bf16 is the upper half of an f32.
        unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(x.as_ptr().cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        }
    }
    #[inline(always)]
    fn load_i8(self, x: &[u8; 8]) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(x.as_ptr().cast()))) }
    }
    #[inline(always)]
    fn store(self, x: __m256, to: &mut [f32; 8]) {
        // SAFETY: see above.
        unsafe { _mm256_storeu_ps(to.as_mut_ptr(), x) }
    }
    #[inline(always)]
    fn store_f16(self, x: __m256, to: &mut [u8; 16]) {
        // SAFETY: see above.
        unsafe {
            let narrow = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x);
            _mm_storeu_si128(to.as_mut_ptr().cast(), narrow);
        }
    }
    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_add_ps(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_sub_ps(a, b) }
    }
    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_mul_ps(a, b) }
    }
    #[inline(always)]
    fn div(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_div_ps(a, b) }
    }
    #[inline(always)]
    fn mul_add(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn max(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_max_ps(a, b) }
    }
    #[inline(always)]
    fn min(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_min_ps(a, b) }
    }
    #[inline(always)]
    fn abs(self, x: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_andnot_ps(_mm256_set1_ps(-0.0), x) }
    }
    #[inline(always)]
    fn round(self, x: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x) }
    }
    #[inline(always)]
    fn pow2(self, n: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe {
            let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent))
        }
    }
    #[inline(always)]
    fn sum4(self, [a, b, c, d]: [__m256; 4]) -> [f32; 4] {
        // SAFETY: see above.
        unsafe {
            // Per 128-bit half: [a0+a2, b0+b2, a1+a3, b1+b3], then all four of [x0+x2 .. + x1+x3 ..].
            let ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
            let cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
            let even = _mm256_shuffle_ps::<0b01_00_01_00>(ab, cd);
            let odd = _mm256_shuffle_ps::<0b11_10_11_10>(ab, cd);
            let halves = _mm256_add_ps(even, odd);
            let sum = _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps::<1>(halves));
            let mut out = [0.0; 4];
            _mm_storeu_ps(out.as_mut_ptr(), sum);
            out
        }
    }
    #[inline(always)]
    fn max_lane(self, x: __m256) -> f32 {
        // SAFETY: see above.
        unsafe {
            let half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let pair = _mm_max_ps(half, _mm_movehl_ps(half, half));
            _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)))
        }
    }
    #[inline(always)]
    fn deinterleave(self, a: __m256, b: __m256) -> (__m256, __m256) {
        // SAFETY: see above.
        unsafe {
            let low = _mm256_permute2f128_ps::<0x20>(a, b);
            let high = _mm256_permute2f128_ps::<0x31>(a, b);
            let even = _mm256_shuffle_ps::<0b10_00_10_00>(low, high);
            let odd = _mm256_shuffle_ps::<0b11_01_11_01>(low, high);
            (even, odd)
        }
    }
    #[inline(always)]
    fn interleave(self, even: __m256, odd: __m256) -> (__m256, __m256) {
        // SAFETY: see above.
        unsafe {
            let low = _mm256_unpacklo_ps(even, odd);
            let high = _mm256_unpackhi_ps(even, odd);
            (_mm256_permute2f128_ps::<0x20>(low, high), _mm256_permute2f128_ps::<0x31>(low, high))
        }
    }
}

//! The exponential function on lanes.

use super::lanes::Simd;

/// The high part of ln 2 has 15 significant bits, so `n * LN2_HIGH` is exact for every exponent `n`.
const LN2_HIGH: f32 = 0.693_145_75;
const LN2_LOW: f32 = 1.428_606_8e-6;

/// `e^r = 1 + r + r² P(r)` for `|r| <= ln(2)/2`: least maximum relative error, 3.1e-9; lowest power first.
const P: [f32; 5] = [0.499_999_93, 0.166_665_21, 0.041_668_38, 8.368_71e-3, 1.381_493_5e-3];

/// Beyond these the result is 0 (also as a subnormal) or infinite.
const LOWEST: f32 = -104.0;
const HIGHEST: f32 = 89.0;

/// `e^x` within 2 ulp (subnormal results within one step); NaN for NaN.
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    // The bound comes first: a comparison with NaN yields the second operand.
    let x = s.min(s.splat(HIGHEST), s.max(s.splat(LOWEST), x));
    let n = s.round(s.mul(x, s.splat(std::f32::consts::LOG2_E)));
    let r = s.mul_add(n, s.splat(-LN2_HIGH), x);
    let r = s.mul_add(n, s.splat(-LN2_LOW), r);
    let mut p = s.splat(P[4]);
    for c in [P[3], P[2], P[1], P[0]] {
        p = s.mul_add(p, r, s.splat(c));
    }
    let y = s.add(s.mul_add(s.mul(r, r), p, r), s.splat(1.0));
    // 2^n itself may be out of range where e^x is not: two factors, of which the first keeps y a normal number.
    let half = s.round(s.mul(n, s.splat(0.5)));
    s.mul(s.mul(y, s.pow2(half)), s.pow2(s.sub(n, half)))
}

#[cfg(test)]
mod tests {
    use crate::float::dispatch;
    use crate::float::lanes::{F32x8, Kernel, Simd};
    use crate::isa::Isa;

    struct Exp<'a>(&'a mut [F32x8]);

    impl Kernel for Exp<'_> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            for x in self.0 {
                let y = super::exp(s, s.load(&x.0));
                s.store(y, &mut x.0);
            }
        }
    }

    fn exp(isa: Isa, x: &[f32]) -> Vec<f32> {
        let mut octets: Vec<F32x8> = x.as_chunks::<8>().0.iter().map(|x| F32x8(*x)).collect();
        dispatch(isa, Exp(&mut octets));
        octets.iter().flat_map(|x| x.0).collect()
    }

    /// Every `STEP`-th bit pattern of either sign from 0 past the limits.
    fn arguments() -> Vec<f32> {
        const STEP: usize = 4001;
        let patterns = (0..110f32.to_bits()).step_by(STEP);
        let mut x: Vec<f32> = patterns.flat_map(|b| [f32::from_bits(b), -f32::from_bits(b)]).collect();
        x.truncate(x.len() / 8 * 8);
        x
    }

    #[test]
    fn within_two_ulp_of_f64() {
        let x = arguments();
        assert!(x.len() > 100_000);
        let mut worst = 0f64;
        for (x, y) in x.iter().zip(exp(Isa::best(), &x)) {
            let exact = f64::from(*x).exp();
            if exact >= f64::from(f32::MAX) {
                assert_eq!(y, exact as f32, "exp({x})");
                continue;
            }
            let ulp = f64::from(f32::from_bits((exact as f32).to_bits().max(0x0080_0000) & 0x7f80_0000))
                / 8_388_608.0;
            worst = worst.max((f64::from(y) - exact).abs() / ulp);
        }
        assert!(worst < 2.0, "{worst} ulp");
    }

    #[test]
    fn limits() {
        let x = [f32::NEG_INFINITY, f32::INFINITY, f32::NAN, 0.0, -0.0, 88.722_83, 88.722_84, -103.98];
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            let y = exp(isa, &x);
            assert_eq!(y[..2], [0.0, f32::INFINITY]);
            assert!(y[2].is_nan());
            assert_eq!(y[3..5], [1.0, 1.0]);
            assert!(y[5].is_finite() && y[5] > 3.4e38, "{}", y[5]);
            assert_eq!(y[6..], [f32::INFINITY, 0.0]);
        }
    }

    #[test]
    fn every_isa_gives_the_same_bits() {
        let x = arguments();
        let scalar = exp(Isa::Scalar, &x);
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            for ((x, a), b) in x.iter().zip(&scalar).zip(exp(isa, &x)) {
                assert_eq!(a.to_bits(), b.to_bits(), "exp({x}) on {isa:?}");
            }
        }
    }
}

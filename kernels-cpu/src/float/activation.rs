//! Gated activations: `out = f(gate) * up`.

use super::elementwise::{Binary, zip};
use super::exp::exp;
use super::lanes::Simd;
use crate::isa::Isa;
use crate::pool::{self, ThreadPool};

/// `x / (1 + e^-y)`.
#[inline(always)]
fn times_sigmoid<S: Simd>(s: S, x: S::F, y: S::F) -> S::F {
    s.div(x, s.add(s.splat(1.0), exp(s, s.sub(s.splat(0.0), y))))
}

#[derive(Clone, Copy)]
struct Swiglu;

impl Binary for Swiglu {
    #[inline(always)]
    fn apply<S: Simd>(self, s: S, gate: S::F, up: S::F) -> S::F {
        s.mul(times_sigmoid(s, gate, gate), up)
    }
}

#[derive(Clone, Copy)]
struct GegluTanh;

impl Binary for GegluTanh {
    /// `x/2 (1 + tanh u) = x sigmoid(2u)` with `u = √(2/π) (x + 0.044715 x³)`.
    #[inline(always)]
    fn apply<S: Simd>(self, s: S, gate: S::F, up: S::F) -> S::F {
        const TWICE_SQRT_2_OVER_PI: f32 = 1.595_769;
        let square = s.mul(gate, gate);
        let factor =
            s.mul_add(square, s.splat(0.044_715 * TWICE_SQRT_2_OVER_PI), s.splat(TWICE_SQRT_2_OVER_PI));
        s.mul(times_sigmoid(s, gate, s.mul(gate, factor)), up)
    }
}

/// `Φ(-x) e^(x²/2) = t Q(t)` with `t = 1 / (1 + 0.3 x)`, for `x >= 0`, where Φ is the normal distribution function:
/// least maximum relative error, 4.5e-7; lowest power first.
const Q: [f32; 9] = [
    0.119_682_63,
    0.119_691_09,
    0.108_700_34,
    0.089_282_12,
    0.050_265_6,
    0.039_096_98,
    0.003_217_521,
    -0.048_537_13,
    0.018_601_02,
];

#[derive(Clone, Copy)]
struct GegluErf;

impl Binary for GegluErf {
    /// `x Φ(x) = max(x, 0) - |x| Φ(-|x|)`, which loses no digits on either side.
    #[inline(always)]
    fn apply<S: Simd>(self, s: S, gate: S::F, up: S::F) -> S::F {
        // At 20 the tail is 0 already; the bound keeps infinity out of the product with it, but for -∞ · 0, which is NaN.
        let x = s.min(s.splat(20.0), s.abs(gate));
        let t = s.div(s.splat(1.0), s.mul_add(x, s.splat(0.3), s.splat(1.0)));
        let mut q = s.splat(Q[8]);
        for c in Q[..8].iter().rev() {
            q = s.mul_add(q, t, s.splat(*c));
        }
        let density = exp(s, s.mul(s.mul(x, x), s.splat(-0.5)));
        let tail = s.mul(s.mul(q, t), density);
        let gelu = s.sub(s.max(s.splat(0.0), gate), s.mul(s.max(x, s.sub(s.splat(0.0), gate)), tail));
        s.mul(gelu, up)
    }
}

/// `out[i] = silu(gate[i]) * up[i]` with `silu(x) = x / (1 + e^-x)`.
///
/// # Panics
/// If the lengths differ.
pub fn swiglu(gate: &[f32], up: &[f32], out: &mut [f32]) {
    swiglu_with(Isa::best(), pool::global(), gate, up, out);
}

/// [`swiglu`] with a given instruction set and pool.
pub fn swiglu_with(isa: Isa, pool: &ThreadPool, gate: &[f32], up: &[f32], out: &mut [f32]) {
    zip(isa, pool, Swiglu, gate, up, out);
}

/// `out[i] = gelu(gate[i]) * up[i]` with the tanh approximation of gelu.
///
/// # Panics
/// If the lengths differ.
pub fn geglu_tanh(gate: &[f32], up: &[f32], out: &mut [f32]) {
    geglu_tanh_with(Isa::best(), pool::global(), gate, up, out);
}

/// [`geglu_tanh`] with a given instruction set and pool.
pub fn geglu_tanh_with(isa: Isa, pool: &ThreadPool, gate: &[f32], up: &[f32], out: &mut [f32]) {
    zip(isa, pool, GegluTanh, gate, up, out);
}

/// `out[i] = gelu(gate[i]) * up[i]` with `gelu(x) = x/2 (1 + erf(x/√2))`.
///
/// # Panics
/// If the lengths differ.
pub fn geglu_erf(gate: &[f32], up: &[f32], out: &mut [f32]) {
    geglu_erf_with(Isa::best(), pool::global(), gate, up, out);
}

/// [`geglu_erf`] with a given instruction set and pool.
pub fn geglu_erf_with(isa: Isa, pool: &ThreadPool, gate: &[f32], up: &[f32], out: &mut [f32]) {
    zip(isa, pool, GegluErf, gate, up, out);
}

//! Eight f32 lanes whose arithmetic is the same, to the bit, on every instruction set.
//!
//! A kernel is written once, generic over [`Simd`]; [`Simd::vectorize`] compiles it for one
//! instruction set. Every method is a fixed sequence of correctly rounded IEEE operations and
//! nothing is reassociated, so the [`Scalar`] build of a kernel is the twin of each fast one.

use half::{bf16, f16};

/// Eight f32 values, aligned so that one vector load never straddles a cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C, align(32))]
pub(crate) struct F32x8(pub [f32; 8]);

/// The lanes of `x` in a row.
#[inline(always)]
pub(crate) fn flat_mut(x: &mut [F32x8]) -> &mut [f32] {
    // SAFETY: an `F32x8` is eight f32 and nothing else: its size equals its alignment.
    unsafe { std::slice::from_raw_parts_mut(x.as_mut_ptr().cast(), 8 * x.len()) }
}

/// A function compiled once per instruction set.
pub(crate) trait Kernel {
    /// The result of the function.
    type Output;
    /// The body. It must be `#[inline(always)]`, as must every function it hands `simd` to:
    /// code that is not inlined into [`Simd::vectorize`] is compiled without the instructions.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// A token that proves an instruction set is available, and its operations on eight lanes.
pub(crate) trait Simd: Copy {
    /// Eight f32 lanes.
    type F: Copy;
    /// True if sixteen vectors fit the registers, so that a kernel should take a large tile at once. Where lanes are
    /// single numbers a large tile only costs compile time.
    const WIDE_TILES: bool;

    /// Runs `kernel` compiled for this instruction set.
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Output;
    /// Eight copies of `x`.
    fn splat(self, x: f32) -> Self::F;
    /// Reads eight f32.
    fn load(self, x: &[f32; 8]) -> Self::F;
    /// Reads eight native-endian f32 of any alignment.
    fn load_bytes(self, x: &[u8; 32]) -> Self::F;
    /// Widens one native-endian f16 (exact).
    fn widen_f16(self, x: [u8; 2]) -> f32;
    /// Reads eight native-endian f16 and widens them (exact).
    fn load_f16(self, x: &[u8; 16]) -> Self::F;
    /// Reads eight native-endian bf16 and widens them (exact).
    fn load_bf16(self, x: &[u8; 16]) -> Self::F;
    /// Reads eight signed bytes and widens them (exact).
    fn load_i8(self, x: &[u8; 8]) -> Self::F;
    /// Writes eight f32.
    fn store(self, x: Self::F, to: &mut [f32; 8]);
    /// Narrows eight f32 to native-endian f16, to nearest even, and writes them.
    fn store_f16(self, x: Self::F, to: &mut [u8; 16]);
    /// `a + b`.
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a - b`.
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b`.
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a / b`.
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once.
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `a > b ? a : b`; a NaN in either gives `b`.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a < b ? a : b`; a NaN in either gives `b`.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// Clears the sign bit.
    fn abs(self, x: Self::F) -> Self::F;
    /// To the nearest integer, ties to even.
    fn round(self, x: Self::F) -> Self::F;
    /// `2^n` for integral `n` in `-126..=127`; any value for other `n`.
    fn pow2(self, n: Self::F) -> Self::F;
    /// The lane sums of four vectors, each `((x0+x2)+(x1+x3)) + ((x4+x6)+(x5+x7))`.
    fn sum4(self, x: [Self::F; 4]) -> [f32; 4];
    /// The largest lane: halves, then quarters, then pairs, each step as [`Simd::max`].
    fn max_lane(self, x: Self::F) -> f32;
    /// Lanes `(0 2 4 6 8 10 12 14, 1 3 5 7 9 11 13 15)` of the sixteen in `a` and `b`.
    fn deinterleave(self, a: Self::F, b: Self::F) -> (Self::F, Self::F);
    /// The inverse of [`Simd::deinterleave`].
    fn interleave(self, even: Self::F, odd: Self::F) -> (Self::F, Self::F);
}

/// The reference: plain Rust, one lane at a time.
#[derive(Clone, Copy)]
pub(crate) struct Scalar;

#[inline(always)]
fn map(a: F32x8, f: impl Fn(f32) -> f32) -> F32x8 {
    F32x8(a.0.map(f))
}

#[inline(always)]
fn zip(a: F32x8, b: F32x8, f: impl Fn(f32, f32) -> f32) -> F32x8 {
    F32x8(std::array::from_fn(|i| f(a.0[i], b.0[i])))
}

impl Simd for Scalar {
    type F = F32x8;
    const WIDE_TILES: bool = false;

    #[inline(always)]
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Output {
        kernel.run(self)
    }
    #[inline(always)]
    fn splat(self, x: f32) -> F32x8 {
        F32x8([x; 8])
    }
    #[inline(always)]
    fn load(self, x: &[f32; 8]) -> F32x8 {
        F32x8(*x)
    }
    #[inline(always)]
    fn load_bytes(self, x: &[u8; 32]) -> F32x8 {
        F32x8(std::array::from_fn(|i| {
            f32::from_ne_bytes([x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]])
        }))
    }
    #[inline(never)]
    fn widen_f16(self, x: [u8; 2]) -> f32 {
        f16::from_ne_bytes(x).to_f32()
    }
    // Conversions in software are long: one copy of them, not one per use.
    #[inline(never)]
    fn load_f16(self, x: &[u8; 16]) -> F32x8 {
        F32x8(std::array::from_fn(|i| f16::from_ne_bytes([x[2 * i], x[2 * i + 1]]).to_f32()))
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u8; 16]) -> F32x8 {
        F32x8(std::array::from_fn(|i| bf16::from_ne_bytes([x[2 * i], x[2 * i + 1]]).to_f32()))
    }
    #[inline(always)]
    fn load_i8(self, x: &[u8; 8]) -> F32x8 {
        F32x8(x.map(|b| f32::from(b as i8)))
    }
    #[inline(always)]
    fn store(self, x: F32x8, to: &mut [f32; 8]) {
        *to = x.0;
    }
    #[inline(never)]
    fn store_f16(self, x: F32x8, to: &mut [u8; 16]) {
        for (to, x) in to.as_chunks_mut::<2>().0.iter_mut().zip(x.0) {
            *to = f16::from_f32(x).to_ne_bytes();
        }
    }
    #[inline(always)]
    fn add(self, a: F32x8, b: F32x8) -> F32x8 {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, a: F32x8, b: F32x8) -> F32x8 {
        zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, a: F32x8, b: F32x8) -> F32x8 {
        zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, a: F32x8, b: F32x8) -> F32x8 {
        zip(a, b, |a, b| a / b)
    }
    // Without the instruction this is eight calls: inlined, they would make up most of the compile time.
    #[inline(never)]
    fn mul_add(self, a: F32x8, b: F32x8, c: F32x8) -> F32x8 {
        F32x8(std::array::from_fn(|i| a.0[i].mul_add(b.0[i], c.0[i])))
    }
    #[inline(always)]
    fn max(self, a: F32x8, b: F32x8) -> F32x8 {
        zip(a, b, larger)
    }
    #[inline(always)]
    fn min(self, a: F32x8, b: F32x8) -> F32x8 {
        zip(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn abs(self, x: F32x8) -> F32x8 {
        map(x, f32::abs)
    }
    #[inline(always)]
    fn round(self, x: F32x8) -> F32x8 {
        map(x, f32::round_ties_even)
    }
    #[inline(always)]
    fn pow2(self, n: F32x8) -> F32x8 {
        map(n, |n| f32::from_bits(((n as i32).wrapping_add(127) as u32) << 23))
    }
    #[inline(always)]
    fn sum4(self, x: [F32x8; 4]) -> [f32; 4] {
        x.map(|F32x8(x)| ((x[0] + x[2]) + (x[1] + x[3])) + ((x[4] + x[6]) + (x[5] + x[7])))
    }
    #[inline(always)]
    fn max_lane(self, x: F32x8) -> f32 {
        let half: [f32; 4] = std::array::from_fn(|i| larger(x.0[i], x.0[i + 4]));
        larger(larger(half[0], half[2]), larger(half[1], half[3]))
    }
    #[inline(always)]
    fn deinterleave(self, a: F32x8, b: F32x8) -> (F32x8, F32x8) {
        let at = |i: usize| if i < 8 { a.0[i] } else { b.0[i - 8] };
        (F32x8(std::array::from_fn(|i| at(2 * i))), F32x8(std::array::from_fn(|i| at(2 * i + 1))))
    }
    #[inline(always)]
    fn interleave(self, even: F32x8, odd: F32x8) -> (F32x8, F32x8) {
        let at = |i: usize| if i.is_multiple_of(2) { even.0[i / 2] } else { odd.0[i / 2] };
        (F32x8(std::array::from_fn(at)), F32x8(std::array::from_fn(|i| at(i + 8))))
    }
}

/// [`Simd::max`] of one lane.
#[inline(always)]
pub(crate) fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

//! The 16-bit floats in words: IEEE halves and bf16.
//!
//! Bits are moved by integer instructions, without an f32 subnormal on the way (devices may flush those) and without a
//! conversion of integers (slow on some). Infinities stay infinite, and NaN stays NaN.
use cubecl::prelude::*;

/// The value of the lower 16 bits as IEEE half.
#[cube]
pub(crate) fn half_to_float(bits: u32) -> f32 {
    let magnitude = (bits & 0x7fff) << 13;
    let normal = f32::reinterpret(magnitude + 0x3800_0000);
    // A subnormal half gets an exponent too, whose value is taken off again.
    let subnormal = f32::reinterpret(magnitude + 0x3880_0000) - f32::new(1.0 / 16_384.0);
    let value = select(magnitude < 0x0080_0000, subnormal, normal);
    let finite = u32::reinterpret(value);
    // What is larger than any half: infinities and NaN, whose exponents are all ones.
    let widened = select(value >= f32::new(65_536.0), finite | 0x7f80_0000, finite);
    f32::reinterpret(widened | ((bits & 0x8000) << 16))
}

/// The nearest IEEE half, ties to even.
#[cube]
pub(crate) fn float_to_half(x: f32) -> u32 {
    let bits = u32::reinterpret(x);
    let magnitude = bits & 0x7fff_ffff;
    let rebased = magnitude - comptime!(112u32 << 23);
    let normal = (rebased + 0xfff + ((rebased >> 13) & 1)) >> 13;
    // Subnormal halves count in 2^-24: shift the significand by what its exponent lacks.
    let shift = u32::cast_from(clamp_shift(126 - i32::cast_from(magnitude >> 23)));
    let significand = (magnitude & 0x007f_ffff) | 0x0080_0000;
    let subnormal = (significand + ((1u32 << (shift - 1)) - 1) + ((significand >> shift) & 1)) >> shift;
    let finite = select(magnitude < 0x3880_0000, subnormal, normal);
    let rounded = select(magnitude >= 0x477f_f000, 0x7c00, finite);
    let nan = 0x7e00 | ((magnitude >> 13) & 0x3ff);
    select(magnitude > 0x7f80_0000, nan, rounded) | ((bits >> 16) & 0x8000)
}

/// Shifts outside of `1..=25` belong to values that are not subnormal halves, or that round to zero.
#[cube]
fn clamp_shift(shift: i32) -> i32 {
    select(shift < 1, 1, select(shift > 25, 25, shift))
}

/// The nearest bf16, ties to even.
#[cube]
pub(crate) fn float_to_bf16(x: f32) -> u32 {
    let bits = u32::reinterpret(x);
    let rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    select((bits & 0x7fff_ffff) > 0x7f80_0000, (bits >> 16) | 0x40, rounded)
}

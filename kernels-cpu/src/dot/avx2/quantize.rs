//! Rounding of activations.

use crate::activations::{self, ActFormat};

/// [`activations::quantize_row`], compiled for AVX2.
///
/// # Safety
/// AVX2 must be available.
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn quantize_row(
    format: ActFormat,
    x: &[f32],
    q: &mut [i8],
    d: &mut [f32],
    sums: &mut [i16],
) {
    activations::quantize_row(format, x, q, d, sums);
}

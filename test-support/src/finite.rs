//! Results that are not all finite.
use crate::Real;

/// Fails unless both have NaN and infinities in the same places, and what is finite is equal: the largest difference is at
/// most `limit` of the largest finite magnitude. NaN and infinities count as the same: which of them a sum gives depends on its
/// order.
///
/// # Panics
/// Also if lengths differ, or there are no elements.
#[track_caller]
pub fn assert_broken_alike(actual: &[f32], expected: &[impl Real], limit: f64, what: &str) {
    assert_eq!(actual.len(), expected.len(), "{what}: lengths differ");
    assert!(!actual.is_empty(), "{what}: there is nothing to compare");
    let expected: Vec<f64> = expected.iter().map(|&expected| expected.into()).collect();
    let finite = || expected.iter().copied().filter(|expected| expected.is_finite());
    let largest = finite().map(f64::abs).fold(0.0, f64::max);
    for (i, (&actual, &expected)) in actual.iter().zip(&expected).enumerate() {
        let same = actual.is_finite() == expected.is_finite();
        let near = !expected.is_finite() || (f64::from(actual) - expected).abs() <= limit * largest;
        assert!(same && near, "{what}: element {i} is {actual}, expected {expected}");
    }
}

/// NaN of either sign, with a payload that halves cut off too, and the infinities.
pub const BROKEN: [f32; 5] =
    [f32::NAN, f32::from_bits(0xffff_ffff), f32::from_bits(0x7f80_0001), f32::INFINITY, f32::NEG_INFINITY];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_breaks_elsewhere_is_seen() {
        let expected = [1.0, f32::NAN, -4.0];
        assert_broken_alike(&[1.0, f32::INFINITY, -4.001], &expected, 1e-3, "near");
        for actual in [[1.0, 0.0, -4.0], [f32::NAN, f32::NAN, -4.0], [1.0, f32::NAN, -4.1]] {
            let caught = std::panic::catch_unwind(|| assert_broken_alike(&actual, &expected, 1e-3, "far"));
            assert!(caught.is_err(), "{actual:?}");
        }
    }
}

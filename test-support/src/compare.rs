//! Distances between what was computed and what was expected.
use std::fmt::Display;

/// A number that can be compared: `f32`, `f64` and the half floats.
pub trait Real: Copy + Display + Into<f64> {}

impl<T: Copy + Display + Into<f64>> Real for T {}

/// Pairs of elements, each checked.
#[track_caller]
fn pairs(actual: &[impl Real], expected: &[impl Real]) -> Vec<(f64, f64)> {
    assert_eq!(actual.len(), expected.len(), "lengths differ");
    assert!(!actual.is_empty(), "there is nothing to compare");
    let pairs = actual.iter().zip(expected).enumerate();
    let pairs = pairs.map(|(i, (&actual, &expected))| (i, actual.into(), expected.into()));
    let pairs: Vec<(usize, f64, f64)> = pairs.collect();
    if let Some((i, a, e)) = pairs.iter().find(|(_, a, e)| !a.is_finite() || !e.is_finite()) {
        panic!("element {i} is {a}, expected {e}: not finite");
    }
    pairs.into_iter().map(|(_, a, e)| (a, e)).collect()
}

/// The quotient of a difference and a magnitude; no difference is 0 even where the magnitude is.
fn ratio(difference: f64, magnitude: f64) -> f64 {
    if difference == 0.0 { 0.0 } else { difference / magnitude }
}

/// The largest of some numbers, none of them NaN.
fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.max_by(f64::total_cmp).expect("pairs() refuses empty slices")
}

/// The largest `|actual - expected|`.
///
/// # Panics
/// If an element is not finite, lengths differ, or there are no elements.
#[track_caller]
pub fn max_difference(actual: &[impl Real], expected: &[impl Real]) -> f64 {
    largest(pairs(actual, expected).into_iter().map(|(a, e)| (a - e).abs()))
}

/// [`max_difference`] over the largest `|expected|`.
///
/// # Panics
/// As [`max_difference`].
#[track_caller]
pub fn max_relative(actual: &[impl Real], expected: &[impl Real]) -> f64 {
    let pairs = pairs(actual, expected);
    let difference = largest(pairs.iter().map(|(a, e)| (a - e).abs()));
    ratio(difference, largest(pairs.iter().map(|(_, e)| e.abs())))
}

/// `‖actual - expected‖ / ‖expected‖`, in Euclidean lengths.
///
/// # Panics
/// As [`max_difference`].
#[track_caller]
pub fn distance(actual: &[impl Real], expected: &[impl Real]) -> f64 {
    let pairs = pairs(actual, expected);
    let difference: f64 = pairs.iter().map(|(a, e)| (a - e).powi(2)).sum();
    let length: f64 = pairs.iter().map(|(_, e)| e * e).sum();
    ratio(difference, length).sqrt()
}

/// The cosine of the angle between two vectors.
///
/// # Panics
/// As [`max_difference`], and when a vector is zero: it has no direction.
#[track_caller]
pub fn cosine(actual: &[impl Real], expected: &[impl Real]) -> f64 {
    let pairs = pairs(actual, expected);
    let sum = |f: fn(&(f64, f64)) -> f64| pairs.iter().map(f).sum::<f64>();
    let lengths = sum(|(a, _)| a * a) * sum(|(_, e)| e * e);
    assert!(lengths > 0.0, "a vector of zeros has no direction");
    sum(|(a, e)| a * e) / lengths.sqrt()
}

/// The largest [`max_relative`] of rows of `width` elements.
///
/// # Panics
/// As [`max_difference`], and when a row is not whole.
#[track_caller]
pub fn max_relative_by_row(actual: &[impl Real], expected: &[impl Real], width: usize) -> f64 {
    let rows = rows(actual, expected, width);
    largest(rows.map(|(actual, expected)| max_relative(actual, expected)))
}

/// The smallest [`cosine`] of rows of `width` elements.
///
/// # Panics
/// As [`cosine`], and when a row is not whole.
#[track_caller]
pub fn lowest_cosine(actual: &[impl Real], expected: &[impl Real], width: usize) -> f64 {
    let rows = rows(actual, expected, width);
    -largest(rows.map(|(actual, expected)| -cosine(actual, expected)))
}

#[track_caller]
fn rows<'a, A, E>(
    actual: &'a [A],
    expected: &'a [E],
    width: usize,
) -> impl Iterator<Item = (&'a [A], &'a [E])> {
    assert_eq!(actual.len(), expected.len(), "lengths differ");
    assert!(!actual.is_empty(), "there is nothing to compare");
    assert_eq!(actual.len() % width, 0, "{} elements are no whole rows of {width}", actual.len());
    actual.chunks_exact(width).zip(expected.chunks_exact(width))
}

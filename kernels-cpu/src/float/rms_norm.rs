//! Root-mean-square normalisation: `y = x / sqrt(mean(x²) + eps) * weight`.

use super::dispatch;
use super::elementwise::padded;
use super::lanes::{Kernel, Simd};
use super::pieces::{Pieces, split_rows};
use crate::isa::Isa;
use crate::pool::{self, ThreadPool};

struct RmsNorm<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    eps: f32,
    out: &'a mut [f32],
}

impl Kernel for RmsNorm<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = self.weight.len();
        for (x, out) in self.x.chunks_exact(width).zip(self.out.chunks_exact_mut(width)) {
            let mean = sum_of_squares(s, x) / width as f32;
            scale(s, x, 1.0 / (mean + self.eps).sqrt(), self.weight, out);
        }
    }
}

/// Octet `i` goes to accumulator `i % 4`.
#[inline(always)]
fn sum_of_squares<S: Simd>(s: S, x: &[f32]) -> f32 {
    let mut sums = [s.splat(0.0); 4];
    let (quads, rest) = x.as_chunks::<32>();
    for quad in quads {
        for (sum, x) in sums.iter_mut().zip(quad.as_chunks::<8>().0) {
            let x = s.load(x);
            *sum = s.mul_add(x, x, *sum);
        }
    }
    for (sum, x) in sums.iter_mut().zip(rest.chunks(8)) {
        let x = s.load(&padded(x));
        *sum = s.mul_add(x, x, *sum);
    }
    let [a, b, c, d] = s.sum4(sums);
    (a + b) + (c + d)
}

#[inline(always)]
fn scale<S: Simd>(s: S, x: &[f32], factor: f32, weight: &[f32], out: &mut [f32]) {
    let factor = s.splat(factor);
    let (x, x_tail) = x.as_chunks::<8>();
    let (weight, weight_tail) = weight.as_chunks::<8>();
    let (out, out_tail) = out.as_chunks_mut::<8>();
    for ((x, weight), out) in x.iter().zip(weight).zip(out) {
        s.store(s.mul(s.mul(s.load(x), factor), s.load(weight)), out);
    }
    let mut tail = [0.0; 8];
    s.store(s.mul(s.mul(s.load(&padded(x_tail)), factor), s.load(&padded(weight_tail))), &mut tail);
    out_tail.copy_from_slice(&tail[..out_tail.len()]);
}

fn check(x: &[f32], weight: &[f32], out: &[f32]) {
    assert!(!weight.is_empty(), "a row has at least one element");
    assert!(x.len().is_multiple_of(weight.len()), "x holds whole rows of {} elements", weight.len());
    assert_eq!(x.len(), out.len(), "as many results as elements");
}

/// Normalises each row of `x`. `x`, `out`: `[rows, width]`; `weight`: `[width]`.
///
/// # Panics
/// If the lengths do not fit together.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    rms_norm_with(Isa::best(), pool::global(), x, weight, eps, out);
}

/// [`rms_norm`] with a given instruction set and pool.
pub fn rms_norm_with(isa: Isa, pool: &ThreadPool, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    check(x, weight, out);
    let width = weight.len();
    let out = Pieces::new(out);
    split_rows(pool, x.len() / width, width, |rows| {
        let range = rows.start * width..rows.end * width;
        // SAFETY: the ranges of `split_rows` are disjoint.
        let out = unsafe { out.piece(range.clone()) };
        dispatch(isa, RmsNorm { x: &x[range], weight, eps, out });
    });
}

struct AddRmsNorm<'a> {
    residual: &'a mut [f32],
    x: &'a [f32],
    norm: (&'a [f32], f32),
    out: &'a mut [f32],
}

impl Kernel for AddRmsNorm<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (residual, x) in self.residual.iter_mut().zip(self.x) {
            *residual += x;
        }
        let (weight, eps) = self.norm;
        RmsNorm { x: self.residual, weight, eps, out: self.out }.run(s);
    }
}

/// `residual += x`, then `out = rms_norm(residual)`. `residual`, `x`, `out`: `[rows, width]`; `weight`: `[width]`.
///
/// # Panics
/// If the lengths do not fit together.
pub fn add_rms_norm(residual: &mut [f32], x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    add_rms_norm_with(Isa::best(), pool::global(), residual, x, weight, eps, out);
}

/// [`add_rms_norm`] with a given instruction set and pool.
pub fn add_rms_norm_with(
    isa: Isa,
    pool: &ThreadPool,
    residual: &mut [f32],
    x: &[f32],
    weight: &[f32],
    eps: f32,
    out: &mut [f32],
) {
    check(x, weight, out);
    assert_eq!(residual.len(), x.len(), "operands of equal length");
    let width = weight.len();
    let (residual, out) = (Pieces::new(residual), Pieces::new(out));
    split_rows(pool, x.len() / width, width, |rows| {
        let range = rows.start * width..rows.end * width;
        // SAFETY: the ranges of `split_rows` are disjoint.
        let (residual, out) = unsafe { (residual.piece(range.clone()), out.piece(range.clone())) };
        dispatch(isa, AddRmsNorm { residual, x: &x[range], norm: (weight, eps), out });
    });
}

//! Operations on corresponding elements of two slices.

use super::dispatch;
use super::lanes::{Kernel, Simd};
use super::pieces::{Pieces, split_rows};
use crate::isa::Isa;
use crate::pool::{self, ThreadPool};

/// A function of two elements.
pub(super) trait Binary: Copy + Sync {
    /// The function on lanes; `#[inline(always)]`.
    fn apply<S: Simd>(self, s: S, a: S::F, b: S::F) -> S::F;
}

struct Zip<'a, B> {
    function: B,
    a: &'a [f32],
    b: &'a [f32],
    out: &'a mut [f32],
}

impl<B: Binary> Kernel for Zip<'_, B> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (a, a_tail) = self.a.as_chunks::<8>();
        let (b, b_tail) = self.b.as_chunks::<8>();
        let (out, out_tail) = self.out.as_chunks_mut::<8>();
        for ((a, b), out) in a.iter().zip(b).zip(out) {
            s.store(self.function.apply(s, s.load(a), s.load(b)), out);
        }
        let mut tail = [0.0; 8];
        s.store(self.function.apply(s, s.load(&padded(a_tail)), s.load(&padded(b_tail))), &mut tail);
        out_tail.copy_from_slice(&tail[..out_tail.len()]);
    }
}

/// Up to eight elements, followed by zeros.
#[inline(always)]
pub(super) fn padded(x: &[f32]) -> [f32; 8] {
    let mut lanes = [0.0; 8];
    lanes[..x.len()].copy_from_slice(x);
    lanes
}

/// `out[i] = function(a[i], b[i])`.
pub(super) fn zip(isa: Isa, pool: &ThreadPool, function: impl Binary, a: &[f32], b: &[f32], out: &mut [f32]) {
    assert_eq!(a.len(), b.len(), "operands of equal length");
    assert_eq!(a.len(), out.len(), "as many results as operands");
    let (len, out) = (out.len(), Pieces::new(out));
    split_rows(pool, len, 1, |range| {
        // SAFETY: the ranges of `split_rows` are disjoint.
        let out = unsafe { out.piece(range.clone()) };
        dispatch(isa, Zip { function, a: &a[range.clone()], b: &b[range], out });
    });
}

struct Add<'a> {
    to: &'a mut [f32],
    x: &'a [f32],
}

impl Kernel for Add<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (to, x) in self.to.iter_mut().zip(self.x) {
            *to += x;
        }
    }
}

/// `to[i] += x[i]`.
///
/// # Panics
/// If the lengths differ.
pub fn add(to: &mut [f32], x: &[f32]) {
    add_with(Isa::best(), pool::global(), to, x);
}

/// [`add`] with a given instruction set and pool.
pub fn add_with(isa: Isa, pool: &ThreadPool, to: &mut [f32], x: &[f32]) {
    assert_eq!(to.len(), x.len(), "operands of equal length");
    let to = Pieces::new(to);
    split_rows(pool, x.len(), 1, |range| {
        // SAFETY: the ranges of `split_rows` are disjoint.
        let to = unsafe { to.piece(range.clone()) };
        dispatch(isa, Add { to, x: &x[range] });
    });
}

//! Rotary position embedding from tables of cosines and sines.

use ember_formats::Pairing;

use super::dispatch;
use super::elementwise::padded;
use super::lanes::{Kernel, Simd};
use super::pieces::{Pieces, split_rows};
use crate::isa::Isa;
use crate::pool::{self, ThreadPool};

/// Rotates the first `rot` elements of each head of `x` in place; the others stay.
/// `x`: `[tokens, heads, head_dim]`; `cos`, `sin`: `[tokens, rot/2]`, the angle of pair `i` at `[token, i]`.
///
/// # Panics
/// If the lengths do not fit together.
pub fn rope(x: &mut [f32], heads: usize, head_dim: usize, cos: &[f32], sin: &[f32], pairing: Pairing) {
    rope_with(Isa::best(), pool::global(), x, [heads, head_dim], cos, sin, pairing);
}

/// [`rope`] with a given instruction set and pool; `shape` is `[heads, head_dim]`.
pub fn rope_with(
    isa: Isa,
    pool: &ThreadPool,
    x: &mut [f32],
    shape: [usize; 2],
    cos: &[f32],
    sin: &[f32],
    pairing: Pairing,
) {
    let [heads, head_dim] = shape;
    let width = heads * head_dim;
    assert!(width > 0, "a token has at least one element");
    assert!(x.len().is_multiple_of(width), "x holds whole tokens of {heads} x {head_dim}");
    let tokens = x.len() / width;
    assert_eq!(cos.len(), sin.len(), "tables of equal size");
    if tokens == 0 {
        return;
    }
    assert!(cos.len().is_multiple_of(tokens), "tables of {tokens} rows");
    let pairs = cos.len() / tokens;
    assert!(2 * pairs <= head_dim, "a rotated width of {} in a head of {head_dim}", 2 * pairs);
    let x = Pieces::new(x);
    split_rows(pool, tokens, width, |tokens| {
        // SAFETY: the ranges of `split_rows` are disjoint.
        let x = unsafe { x.piece(tokens.start * width..tokens.end * width) };
        let table = tokens.start * pairs..tokens.end * pairs;
        dispatch(isa, Rope { x, shape, cos: &cos[table.clone()], sin: &sin[table], pairs, pairing });
    });
}

struct Rope<'a> {
    x: &'a mut [f32],
    shape: [usize; 2],
    cos: &'a [f32],
    sin: &'a [f32],
    pairs: usize,
    pairing: Pairing,
}

impl Kernel for Rope<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let [heads, head_dim] = self.shape;
        for (token, x) in self.x.chunks_exact_mut(heads * head_dim).enumerate() {
            let table = token * self.pairs..(token + 1) * self.pairs;
            let (cos, sin) = (&self.cos[table.clone()], &self.sin[table]);
            for head in x.chunks_exact_mut(head_dim) {
                let head = &mut head[..2 * self.pairs];
                match self.pairing {
                    Pairing::Half => {
                        let (a, b) = head.split_at_mut(self.pairs);
                        rotate_halves(s, a, b, cos, sin);
                    }
                    Pairing::Adjacent => rotate_adjacent(s, head, cos, sin),
                }
            }
        }
    }
}

/// `(a cos - b sin, b cos + a sin)`, each with its second product rounded first.
#[inline(always)]
fn rotate<S: Simd>(s: S, a: S::F, b: S::F, cos: S::F, sin: S::F) -> (S::F, S::F) {
    let minus_sin = s.sub(s.splat(0.0), sin);
    (s.mul_add(a, cos, s.mul(b, minus_sin)), s.mul_add(b, cos, s.mul(a, sin)))
}

#[inline(always)]
fn rotate_halves<S: Simd>(s: S, a: &mut [f32], b: &mut [f32], cos: &[f32], sin: &[f32]) {
    let ((a, a_tail), (b, b_tail)) = (a.as_chunks_mut::<8>(), b.as_chunks_mut::<8>());
    let ((cos, cos_tail), (sin, sin_tail)) = (cos.as_chunks::<8>(), sin.as_chunks::<8>());
    for (((a, b), cos), sin) in a.iter_mut().zip(b).zip(cos).zip(sin) {
        let (x, y) = rotate(s, s.load(a), s.load(b), s.load(cos), s.load(sin));
        s.store(x, a);
        s.store(y, b);
    }
    let (mut a, mut b) = (padded(a_tail), padded(b_tail));
    let (x, y) = rotate(s, s.load(&a), s.load(&b), s.load(&padded(cos_tail)), s.load(&padded(sin_tail)));
    s.store(x, &mut a);
    s.store(y, &mut b);
    a_tail.copy_from_slice(&a[..a_tail.len()]);
    b_tail.copy_from_slice(&b[..b_tail.len()]);
}

#[inline(always)]
fn rotate_adjacent<S: Simd>(s: S, x: &mut [f32], cos: &[f32], sin: &[f32]) {
    let (x, x_tail) = x.as_chunks_mut::<16>();
    let ((cos, cos_tail), (sin, sin_tail)) = (cos.as_chunks::<8>(), sin.as_chunks::<8>());
    for ((x, cos), sin) in x.iter_mut().zip(cos).zip(sin) {
        rotate_sixteen(s, x, cos, sin);
    }
    let mut tail = [0.0; 16];
    tail[..x_tail.len()].copy_from_slice(x_tail);
    rotate_sixteen(s, &mut tail, &padded(cos_tail), &padded(sin_tail));
    x_tail.copy_from_slice(&tail[..x_tail.len()]);
}

#[inline(always)]
fn rotate_sixteen<S: Simd>(s: S, x: &mut [f32; 16], cos: &[f32; 8], sin: &[f32; 8]) {
    let [low, high] = x.as_chunks_mut::<8>().0 else { unreachable!("sixteen is two octets") };
    let (a, b) = s.deinterleave(s.load(low), s.load(high));
    let (a, b) = rotate(s, a, b, s.load(cos), s.load(sin));
    let (a, b) = s.interleave(a, b);
    s.store(a, low);
    s.store(b, high);
}

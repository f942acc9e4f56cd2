//! Softmax on the fly: what is known of a row's attention after some of its positions.

use std::ops::Range;

use crate::float::exp;
use crate::float::lanes::{F32x8, Kernel, Simd, flat_mut, larger};

/// For each of several query rows: the sums over the positions seen so far, relative to the largest score.
pub(super) struct States {
    /// True for rows that have seen a position; until then their other fields mean nothing.
    pub(super) seen: Vec<bool>,
    /// The largest score, or f32's least number: finite, so that a row which has met nothing but -∞ is not broken by it.
    pub(super) max: Vec<f32>,
    /// `Σ e^(score - max)`, still spread over eight lanes (position modulo eight).
    pub(super) sum: Vec<F32x8>,
    /// `Σ e^(score - max) value`: `[rows, octets]`.
    pub(super) acc: Vec<F32x8>,
    octets: usize,
}

impl States {
    pub(super) fn new(rows: usize, octets: usize) -> Self {
        let zero = F32x8::default();
        Self {
            seen: vec![false; rows],
            max: vec![f32::MIN; rows],
            sum: vec![zero; rows],
            acc: vec![zero; rows * octets],
            octets,
        }
    }

    /// Takes in a tile of scores of row `row`: turns them into weights `e^(score - max)`, those outside of `visible`
    /// into zero, and scales the sums so far to the new maximum. `scores` is padded to whole octets.
    #[inline(always)]
    pub(super) fn add_scores<S: Simd>(
        &mut self,
        s: S,
        row: usize,
        scores: &mut [f32],
        visible: Range<usize>,
    ) {
        scores[..visible.start].fill(f32::NEG_INFINITY);
        scores[visible.end..].fill(f32::NEG_INFINITY);
        let octets = scores.as_chunks_mut::<8>().0;
        let mut largest = s.splat(f32::NEG_INFINITY);
        for octet in octets.iter() {
            largest = s.max(s.load(octet), largest);
        }
        let max = larger(s.max_lane(largest), self.max[row]);
        let mut sum = s.load(&self.sum[row].0);
        if max != self.max[row] {
            let factor = exp(s, s.splat(self.max[row] - max));
            self.max[row] = max;
            sum = s.mul(sum, factor);
            for acc in &mut self.acc[row * self.octets..][..self.octets] {
                s.store(s.mul(s.load(&acc.0), factor), &mut acc.0);
            }
        }
        let max = s.splat(max);
        for octet in octets {
            let weight = exp(s, s.sub(s.load(octet), max));
            sum = s.add(sum, weight);
            s.store(weight, octet);
        }
        s.store(sum, &mut self.sum[row].0);
        self.seen[row] = true;
    }

    /// The accumulators of row `row`.
    #[inline(always)]
    pub(super) fn acc(&self, row: usize) -> &[F32x8] {
        &self.acc[row * self.octets..][..self.octets]
    }

    /// The accumulators of rows `first .. first + N`.
    #[inline(always)]
    pub(super) fn acc_mut<const N: usize>(&mut self, first: usize) -> [&mut [F32x8]; N] {
        let mut rows = self.acc[first * self.octets..].chunks_exact_mut(self.octets);
        std::array::from_fn(|_| rows.next().expect("the rows exist"))
    }
}

/// Joins to `into` what later positions gave: `from`.
pub(super) struct Merge<'a> {
    pub(super) into: &'a mut States,
    pub(super) from: &'a States,
}

impl Kernel for Merge<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { into, from } = self;
        for row in 0..into.seen.len() {
            if !from.seen[row] {
                continue;
            }
            let acc = &mut into.acc[row * into.octets..][..into.octets];
            if !into.seen[row] {
                acc.copy_from_slice(from.acc(row));
                (into.seen[row], into.max[row], into.sum[row]) = (true, from.max[row], from.sum[row]);
                continue;
            }
            let max = larger(from.max[row], into.max[row]);
            let old = exp(s, s.splat(into.max[row] - max));
            let new = exp(s, s.splat(from.max[row] - max));
            let sums = into.sum[row..row + 1].iter_mut().zip(&from.sum[row..row + 1]);
            for (into, from) in acc.iter_mut().zip(from.acc(row)).chain(sums) {
                let sum = s.mul_add(s.load(&from.0), new, s.mul(s.load(&into.0), old));
                s.store(sum, &mut into.0);
            }
            into.max[row] = max;
        }
    }
}

/// Writes the attention of row `row`, `acc / sum`, to `out`; zeros when it has seen nothing.
pub(super) struct Finish<'a> {
    pub(super) states: &'a States,
    pub(super) row: usize,
    pub(super) out: &'a mut [f32],
}

impl Kernel for Finish<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { states, row, out } = self;
        if !states.seen[row] {
            out.fill(0.0);
            return;
        }
        let sum = s.load(&states.sum[row].0);
        let sum = s.splat(s.sum4([sum; 4])[0]);
        for (acc, out) in states.acc(row).iter().zip(out.chunks_mut(8)) {
            let mut quotient = [F32x8::default()];
            s.store(s.div(s.load(&acc.0), sum), &mut quotient[0].0);
            out.copy_from_slice(&flat_mut(&mut quotient)[..out.len()]);
        }
    }
}

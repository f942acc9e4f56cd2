//! The two products of attention over one tile of positions, for up to three query rows at once.
//!
//! The operations behind an output do not depend on which rows share the call: a score is eight lane sums over the
//! head in ascending order, added as [`Simd::sum4`] does; an output element adds up its positions in ascending order.

#![expect(
    clippy::needless_range_loop,
    reason = "the arrays are tiles of registers, and one index meets several"
)]

use std::ops::Range;

use super::entries::Entries;
use crate::float::lanes::{F32x8, Simd};

/// `scores[r][p] = q[r] · keys[p]` for `p` in `range`; up to three neighbours on each side get any values. Meanwhile
/// the same entries of `next` are fetched.
///
/// # Safety
/// `keys` has the entries before `range.end`, as wide as `q`.
#[inline(always)]
pub(super) unsafe fn score<S: Simd, R: Entries, const N: usize>(
    s: S,
    q: [&[F32x8]; N],
    [keys, next]: [R; 2],
    range: Range<usize>,
    mut scores: [&mut [f32]; N],
) {
    let mut p = range.start / 4 * 4;
    // One query row alone has too few independent sums to hide their latency: it takes twice the positions.
    while S::WIDE_TILES && N == 1 && p + 8 <= range.end {
        // SAFETY: the caller's promise.
        unsafe { score_positions::<S, R, N, 8>(s, q, keys, p, range.end - 1, &mut scores) };
        (p..p + 8).for_each(|entry| next.prefetch(entry, 0, q[0].len()));
        p += 8;
    }
    while p < range.end {
        // SAFETY: the caller's promise.
        unsafe { score_positions::<S, R, N, 4>(s, q, keys, p, range.end - 1, &mut scores) };
        (p..p + 4).for_each(|entry| next.prefetch(entry, 0, q[0].len()));
        p += 4;
    }
}

/// Scores of positions `p .. p + P`, with `last` in place of those beyond it.
#[inline(always)]
unsafe fn score_positions<S: Simd, R: Entries, const N: usize, const P: usize>(
    s: S,
    q: [&[F32x8]; N],
    keys: R,
    p: usize,
    last: usize,
    scores: &mut [&mut [f32]; N],
) {
    let octets = q[0].len();
    let q = q.map(|q| &q[..octets]);
    let mut entries = [last; P];
    for i in 0..P {
        entries[i] = (p + i).min(last);
    }
    let mut sums = [[s.splat(0.0); P]; N];
    let blocks = octets / R::BLOCK_OCTETS;
    for block in 0..blocks {
        for octet in R::BLOCK_OCTETS * block..R::BLOCK_OCTETS * (block + 1) {
            // SAFETY: the caller's promise.
            unsafe { score_octet(s, q, keys, entries, octet, &mut sums) };
        }
    }
    for octet in R::BLOCK_OCTETS * blocks..octets {
        // SAFETY: the caller's promise.
        unsafe { score_octet(s, q, keys, entries, octet, &mut sums) };
    }
    for n in 0..N {
        let to = scores[n][p..p + P].as_chunks_mut::<4>().0;
        for (to, sums) in to.iter_mut().zip(sums[n].as_chunks::<4>().0) {
            *to = s.sum4(*sums);
        }
    }
}

/// Adds to `sums` the products of one octet of `q` with that of `entries`.
#[inline(always)]
unsafe fn score_octet<S: Simd, R: Entries, const N: usize, const P: usize>(
    s: S,
    q: [&[F32x8]; N],
    keys: R,
    entries: [usize; P],
    octet: usize,
    sums: &mut [[S::F; P]; N],
) {
    let mut lanes = [s.splat(0.0); N];
    for n in 0..N {
        lanes[n] = s.load(&q[n][octet].0);
    }
    for i in 0..P {
        // SAFETY: the caller's promise.
        let key = unsafe { keys.octet(s, entries[i], octet) };
        for n in 0..N {
            sums[n][i] = s.mul_add(lanes[n], key, sums[n][i]);
        }
    }
}

/// `acc[r] += Σ weights[r][p] values[p]` over `p` in `ranges[r]`. Meanwhile the same entries of `next` are
/// fetched.
///
/// # Safety
/// `values` has the entries before the end of each range, as wide as `acc`.
#[inline(always)]
pub(super) unsafe fn accumulate<S: Simd, R: Entries, const N: usize>(
    s: S,
    weights: [&[f32]; N],
    values: [R; 2],
    ranges: [Range<usize>; N],
    mut acc: [&mut [F32x8]; N],
) {
    let mut octet = 0;
    let octets = acc[0].len();
    // As many independent sums as the registers hold, so that their latency is hidden.
    while S::WIDE_TILES && N == 1 && octet + 8 <= octets {
        // SAFETY: the caller's promise.
        unsafe { accumulate_octets::<S, R, N, 8>(s, weights, values, &ranges, octet, &mut acc) };
        octet += 8;
    }
    while octet + 4 <= octets {
        // SAFETY: the caller's promise.
        unsafe { accumulate_octets::<S, R, N, 4>(s, weights, values, &ranges, octet, &mut acc) };
        octet += 4;
    }
    while octet < octets {
        // SAFETY: the caller's promise.
        unsafe { accumulate_octets::<S, R, N, 1>(s, weights, values, &ranges, octet, &mut acc) };
        octet += 1;
    }
}

/// [`accumulate`] for octets `first .. first + C`.
#[inline(always)]
unsafe fn accumulate_octets<S: Simd, R: Entries, const N: usize, const C: usize>(
    s: S,
    weights: [&[f32]; N],
    [values, next]: [R; 2],
    ranges: &[Range<usize>; N],
    first: usize,
    acc: &mut [&mut [F32x8]; N],
) {
    let mut sums = [[s.splat(0.0); C]; N];
    for n in 0..N {
        for c in 0..C {
            sums[n][c] = s.load(&acc[n][first + c].0);
        }
    }
    // The positions all rows see are taken together, those before and after row by row.
    let (mut start, mut end) = (0, usize::MAX);
    for range in ranges {
        start = start.max(range.start);
        end = end.min(range.end);
    }
    let end = end.max(start);
    for n in 0..N {
        for p in ranges[n].start..ranges[n].end.min(start) {
            // SAFETY: the caller's promise.
            unsafe { add_position(s, weights[n][p], values, p, first, &mut sums[n]) };
        }
    }
    for p in start..end {
        next.prefetch(p, first, C);
        let mut lanes = [s.splat(0.0); N];
        for n in 0..N {
            lanes[n] = s.splat(weights[n][p]);
        }
        for c in 0..C {
            // SAFETY: the caller's promise.
            let value = unsafe { values.octet(s, p, first + c) };
            for n in 0..N {
                sums[n][c] = s.mul_add(lanes[n], value, sums[n][c]);
            }
        }
    }
    for n in 0..N {
        for p in end..ranges[n].end {
            // SAFETY: the caller's promise.
            unsafe { add_position(s, weights[n][p], values, p, first, &mut sums[n]) };
        }
    }
    for n in 0..N {
        for c in 0..C {
            s.store(sums[n][c], &mut acc[n][first + c].0);
        }
    }
}

#[inline(always)]
unsafe fn add_position<S: Simd, R: Entries, const C: usize>(
    s: S,
    weight: f32,
    values: R,
    p: usize,
    first: usize,
    sums: &mut [S::F; C],
) {
    for c in 0..C {
        // SAFETY: the caller's promise.
        let value = unsafe { values.octet(s, p, first + c) };
        sums[c] = s.mul_add(s.splat(weight), value, sums[c]);
    }
}

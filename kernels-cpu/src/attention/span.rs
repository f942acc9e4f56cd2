//! Attention of a few query rows over one span of positions.

use std::marker::PhantomData;
use std::ops::Range;

use super::entries::{Bf16Entries, Entries, F16Entries, F32Entries, Q8Entries, StoredEntries, WideEntries};
use super::softmax::States;
use super::tile::{accumulate, score};
use crate::float::dispatch;
use crate::float::lanes::{F32x8, Kernel, Simd, flat_mut};
use crate::isa::Isa;
use crate::kv::KvType;

/// Pools of keys and values, and the strides in them.
pub(super) struct KvView<'a> {
    pub(super) k: &'a [u8],
    pub(super) v: &'a [u8],
    pub(super) ty: KvType,
    pub(super) n_kv_heads: usize,
    pub(super) head_dim: usize,
    /// Positions per tile.
    pub(super) tile_len: usize,
    /// Bytes from a tile to the next.
    pub(super) tile_bytes: usize,
    /// Bytes from a head to the next within a tile.
    pub(super) head_bytes: usize,
    /// Bytes from a position to the next within a tile and head.
    pub(super) stride: usize,
    /// Bytes of one head at one position.
    pub(super) row_bytes: usize,
    /// True if a block table says where tile `i` lies; else it is the `i`th.
    pub(super) paged: bool,
}

impl KvView<'_> {
    /// Byte offset of head `kv_head` of tile `index`, if the tile has a block.
    fn start(&self, block_table: &[u32], index: usize, kv_head: usize) -> Option<usize> {
        let at = if self.paged { *block_table.get(index)? as usize } else { index };
        Some(at * self.tile_bytes + kv_head * self.head_bytes)
    }
}

/// Adds to `states` what the rows see in `tiles`.
pub(super) struct Span<'a> {
    pub(super) view: &'a KvView<'a>,
    pub(super) block_table: &'a [u32],
    pub(super) kv_head: usize,
    /// Tiles, counted from position 0.
    pub(super) tiles: Range<usize>,
    /// Scaled queries, heads that share this key head within each token: `[tokens, group, octets]`.
    pub(super) q: &'a [F32x8],
    /// Positions that each token sees.
    pub(super) visible: &'a [Range<u32>],
    /// One per row of `q`.
    pub(super) states: &'a mut States,
}

impl Span<'_> {
    pub(super) fn attend(self, isa: Isa) {
        match self.view.ty {
            KvType::F32 => dispatch(isa, Typed::<F32Entries>(self, PhantomData)),
            KvType::F16 => dispatch(isa, Typed::<F16Entries>(self, PhantomData)),
            KvType::BF16 => dispatch(isa, Typed::<Bf16Entries>(self, PhantomData)),
            KvType::Q8_0 => dispatch(isa, Typed::<Q8Entries>(self, PhantomData)),
        }
    }
}

/// [`Span`] for one type of entries.
struct Typed<'a, R>(Span<'a>, PhantomData<R>);

impl<'a, R: StoredEntries<'a>> Kernel for Typed<'a, R> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Span { view, block_table, kv_head, tiles, q, visible, states } = self.0;
        let KvView { head_dim, tile_len, stride, row_bytes, .. } = *view;
        let rows = states.seen.len();
        let direct = rows <= R::MOST_DIRECT && head_dim.is_multiple_of(8);
        let mut wide = vec![F32x8::default(); if direct { 0 } else { tile_len * head_dim.div_ceil(8) }];
        let mut scores = vec![F32x8::default(); rows * tile_len.div_ceil(8)];
        let mut tile = Tile { q, scores: flat_mut(&mut scores), visible: vec![0..0; rows], states };
        for index in tiles {
            let Some(seen) = tile.look(index * tile_len, tile_len, visible) else { continue };
            let start = view.start(block_table, index, kv_head).expect("visible positions have blocks");
            let end = start + (seen.end - 1) * stride + row_bytes;
            let keys = R::new(&view.k[start..end], stride);
            let values = R::new(&view.v[start..end], stride);
            let next_keys = view.start(block_table, index + 1, kv_head).and_then(|start| view.k.get(start..));
            let next_keys = next_keys.map_or(keys, |bytes| R::new(bytes, stride));
            // SAFETY: the slices above hold the entries up to `seen.end`, each of `head_dim` elements.
            unsafe {
                if direct {
                    tile.score(s, [keys, values]);
                    tile.weigh(s);
                    tile.accumulate(s, [values, next_keys]);
                } else {
                    tile.score(s, [WideEntries::widen(s, keys, aligned(&seen), head_dim, &mut wide); 2]);
                    tile.weigh(s);
                    tile.accumulate(s, [WideEntries::widen(s, values, seen, head_dim, &mut wide); 2]);
                }
            }
        }
    }
}

/// `range`, begun where [`score`] begins to read.
fn aligned(range: &Range<usize>) -> Range<usize> {
    range.start / 4 * 4..range.end
}

/// One tile's work in three steps: [`Tile::score`], [`Tile::weigh`], [`Tile::accumulate`].
struct Tile<'a> {
    /// `[rows, octets]`.
    q: &'a [F32x8],
    /// Scores, then weights: `[rows, positions padded to whole octets]`.
    scores: &'a mut [f32],
    /// Positions of the tile that each row sees.
    visible: Vec<Range<usize>>,
    states: &'a mut States,
}

impl Tile<'_> {
    /// Turns to the tile of `len` positions from `start`; what of it any row sees, or nothing.
    fn look(&mut self, start: usize, len: usize, visible: &[Range<u32>]) -> Option<Range<usize>> {
        let group = self.visible.len() / visible.len();
        for (token, rows) in visible.iter().zip(self.visible.chunks_exact_mut(group)) {
            let first = (token.start as usize).max(start);
            let end = (token.end as usize).min(start + len);
            let range = if first < end { first - start..end - start } else { 0..0 };
            rows.fill(range);
        }
        let seen = union(&self.visible);
        (!seen.is_empty()).then_some(seen)
    }

    /// # Safety
    /// The first of `keys` has every visible position.
    #[inline(always)]
    unsafe fn score<S: Simd, R: Entries>(&mut self, s: S, keys: [R; 2]) {
        let count = self.visible.len();
        let mut first = 0;
        while first < count {
            // SAFETY: the caller's promise.
            first += unsafe {
                if !S::WIDE_TILES {
                    self.score_rows::<S, R, 1>(s, first, keys)
                } else {
                    match together(count - first) {
                        1 => self.score_rows::<S, R, 1>(s, first, keys),
                        2 => self.score_rows::<S, R, 2>(s, first, keys),
                        _ => self.score_rows::<S, R, 3>(s, first, keys),
                    }
                }
            };
        }
    }

    #[inline(always)]
    unsafe fn score_rows<S: Simd, R: Entries, const N: usize>(
        &mut self,
        s: S,
        first: usize,
        keys: [R; 2],
    ) -> usize {
        let seen = union(&self.visible[first..first + N]);
        if !seen.is_empty() {
            let q = rows_of(self.q, self.visible.len(), first);
            let scores = rows_of_mut(self.scores, self.visible.len(), first);
            // SAFETY: the caller's promise.
            unsafe { score::<S, R, N>(s, q, keys, seen, scores) };
        }
        N
    }

    #[inline(always)]
    fn weigh<S: Simd>(&mut self, s: S) {
        let width = self.scores.len() / self.visible.len();
        let rows = self.scores.chunks_exact_mut(width).zip(&self.visible);
        for (row, (scores, visible)) in rows.enumerate().filter(|(_, (_, visible))| !visible.is_empty()) {
            self.states.add_scores(s, row, scores, visible.clone());
        }
    }

    /// # Safety
    /// The first of `values` has every visible position.
    #[inline(always)]
    unsafe fn accumulate<S: Simd, R: Entries>(&mut self, s: S, values: [R; 2]) {
        let count = self.visible.len();
        let mut first = 0;
        while first < count {
            // SAFETY: the caller's promise.
            first += unsafe {
                if !S::WIDE_TILES {
                    self.accumulate_rows::<S, R, 1>(s, first, values)
                } else {
                    match together(count - first) {
                        1 => self.accumulate_rows::<S, R, 1>(s, first, values),
                        2 => self.accumulate_rows::<S, R, 2>(s, first, values),
                        _ => self.accumulate_rows::<S, R, 3>(s, first, values),
                    }
                }
            };
        }
    }

    #[inline(always)]
    unsafe fn accumulate_rows<S: Simd, R: Entries, const N: usize>(
        &mut self,
        s: S,
        first: usize,
        values: [R; 2],
    ) -> usize {
        let weights = rows_of(&*self.scores, self.visible.len(), first);
        let ranges = std::array::from_fn(|n| self.visible[first + n].clone());
        // SAFETY: the caller's promise.
        unsafe { accumulate::<S, R, N>(s, weights, values, ranges, self.states.acc_mut(first)) };
        N
    }
}

/// From the first start to the last end of those that are not empty.
fn union(ranges: &[Range<usize>]) -> Range<usize> {
    let seen = || ranges.iter().filter(|range| !range.is_empty());
    let start = seen().map(|range| range.start).min().unwrap_or(0);
    let end = seen().map(|range| range.end).max().unwrap_or(0);
    start..end
}

/// Entries to take at once when `left` are left: three fill the registers, and four go better as two pairs.
fn together(left: usize) -> usize {
    if left == 4 { 2 } else { left.min(3) }
}

/// Entries `first .. first + N` of the `rows` in `x`.
#[inline(always)]
fn rows_of<T, const N: usize>(x: &[T], rows: usize, first: usize) -> [&[T]; N] {
    let width = x.len() / rows;
    std::array::from_fn(|n| &x[(first + n) * width..][..width])
}

/// [`rows_of`], to write to.
#[inline(always)]
fn rows_of_mut<T, const N: usize>(x: &mut [T], rows: usize, first: usize) -> [&mut [T]; N] {
    let width = x.len() / rows;
    let mut rows = x[first * width..].chunks_exact_mut(width);
    std::array::from_fn(|_| rows.next().expect("the rows exist"))
}

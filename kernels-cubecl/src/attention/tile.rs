//! The sizes and the shared memory of a cube of [`prefill`](super::prefill).
use crate::kv::KvLayout;
use cubecl::prelude::*;

/// Units of a cube.
pub(super) const UNITS: usize = 128;

pub(super) type Vec4 = Vector<f32, Const<4>>;

/// The variant of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    pub layout: KvLayout,
    pub n_heads: usize,
    /// Rows and heads of a cube.
    pub rows: usize,
    pub heads: usize,
    /// Entries of a strip.
    pub strip: usize,
}

impl Shape {
    /// Queries fill 16 KiB and a strip 8, or half of both where a cube has less than 32 KiB of shared memory.
    pub fn new(layout: KvLayout, n_heads: usize, shared_memory: usize) -> Self {
        let words = if shared_memory < 32 << 10 { 2048 } else { 4096 };
        let (dim, group) = (layout.head_dim, n_heads / layout.n_kv_heads);
        let fits = |queries: usize| queries * dim <= words;
        let rows = [16, 8, 4].into_iter().find(|&rows| fits(rows)).unwrap_or(4);
        let heads = [4, 2].into_iter().find(|&heads| group.is_multiple_of(heads) && fits(rows * heads));
        let strip = [16, 8, 4].into_iter().find(|&strip| fits(2 * strip)).unwrap_or(4);
        Self { layout, n_heads, rows, heads: heads.unwrap_or(1), strip }
    }

    pub fn queries(&self) -> usize {
        self.rows * self.heads
    }

    /// Vectors of a head; the last may be padded with zeros.
    pub fn vectors(&self) -> usize {
        self.layout.head_dim.div_ceil(4)
    }

    /// Vectors from one row in shared memory to the next.
    pub fn stride(&self) -> usize {
        self.vectors() | 1
    }

    /// Units beside each other in a block of scores, one per this many entries of the strip.
    pub fn score_columns(&self) -> usize {
        if self.queries() * self.strip > UNITS { self.strip / 2 } else { self.strip }
    }

    /// Rows of units in a block of scores.
    pub fn score_rows(&self) -> usize {
        UNITS / self.score_columns()
    }

    /// Queries of a unit in a block of scores, the last possibly past the end.
    pub fn unit_scores(&self) -> usize {
        self.queries().div_ceil(self.score_rows())
    }

    /// Units that share the sums of one vector of elements.
    pub fn sum_rows(&self) -> usize {
        UNITS / self.vectors()
    }

    /// Queries whose sums a unit keeps, the last possibly past the end.
    pub fn unit_sums(&self) -> usize {
        self.queries().div_ceil(self.sum_rows())
    }
}

/// The shared memory of a cube.
#[derive(CubeType)]
pub(super) struct Tile {
    /// `[queries, stride]`, scaled.
    pub queries: SharedMemory<Vec4>,
    /// `[strip, stride]`: keys, then values.
    pub entries: SharedMemory<Vec4>,
    /// `[queries, strip]`: scores, then weights relative to the largest score so far; what a row does not see is marked.
    pub weights: SharedMemory<f32>,
    /// `[queries]`: the largest score, the sum of the weights, and the factor that makes earlier sums relative to it.
    pub largest: SharedMemory<f32>,
    pub total: SharedMemory<f32>,
    pub shrink: SharedMemory<f32>,
}

#[cube]
impl Tile {
    pub fn new(#[comptime] shape: Shape) -> Self {
        let queries = comptime!(shape.queries());
        Tile {
            queries: SharedMemory::<Vec4>::new(comptime!(queries * shape.stride())),
            entries: SharedMemory::<Vec4>::new(comptime!(shape.strip * shape.stride())),
            weights: SharedMemory::<f32>::new(comptime!(queries * shape.strip)),
            largest: SharedMemory::<f32>::new(queries),
            total: SharedMemory::<f32>::new(queries),
            shrink: SharedMemory::<f32>::new(queries),
        }
    }
}

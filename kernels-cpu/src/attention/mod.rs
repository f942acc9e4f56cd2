//! Attention over paged or contiguous keys and values.
//!
//! For each query row and head, positions are taken in tiles of one block whose borders count from position 0, and
//! tiles in spans of 512 positions: within a span the softmax runs on the fly, tile after tile; the spans are joined
//! in ascending order. The operations behind an output depend on what its row sees and on nothing else: not on the
//! rows beside it, the chunk it came in, or the threads. So decoding gives the bits that prefill gives.

mod entries;
mod softmax;
mod span;
mod tasks;
mod tile;

use std::ops::Range;

use crate::isa::Isa;
use crate::kv::{KvLayout, KvType, check_layout};
use crate::pool::{self, ThreadPool};
use span::KvView;
use tasks::Problem;

/// Query rows and how they meet the keys.
#[derive(Clone, Copy, Debug)]
pub struct Queries<'a> {
    /// `[tokens, n_heads, head_dim]`.
    pub q: &'a [f32],
    /// Heads of the query, a multiple of those of the keys: `n_heads / n_kv_heads` in a row share one.
    pub n_heads: usize,
    /// Factor of every score, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
}

/// One layer's pools, as [`kv_write`](crate::kv::kv_write) fills them.
#[derive(Clone, Copy, Debug)]
pub struct PagedKv<'a> {
    /// The layout of both pools.
    pub layout: KvLayout,
    /// Keys.
    pub k: &'a [u8],
    /// Values.
    pub v: &'a [u8],
}

/// Contiguous keys and values.
#[derive(Clone, Copy, Debug)]
pub struct DenseKv<'a> {
    /// Keys: `[positions, n_kv_heads, head_dim]`.
    pub k: &'a [f32],
    /// Values: `[positions, n_kv_heads, head_dim]`.
    pub v: &'a [f32],
    /// Heads of keys and of values.
    pub n_kv_heads: usize,
    /// Elements of one head.
    pub head_dim: usize,
}

/// The rows of one sequence in a batch.
#[derive(Clone, Debug)]
pub struct AttentionRows<'a> {
    /// Its tokens among those of the queries and of the output.
    pub rows: Range<usize>,
    /// The blocks that hold its positions `0..block_len`, `block_len..2 block_len`, ...
    pub block_table: &'a [u32],
    /// The positions each of its rows sees: `0..position + 1` where causal, up to the end of the image or of its
    /// segment where not. Values beyond a row's range are never read into its result.
    pub visible: &'a [Range<u32>],
}

/// Attention of a batch of sequences over their pages.
///
/// `out`: `[tokens, n_heads, head_dim]`. Entries that see nothing give zeros; rows of no sequence are left alone.
///
/// # Panics
/// If sizes do not fit together: lengths, heads, rows that overlap or descend, positions without a block, blocks
/// outside of a pool.
pub fn paged_attention(kv: &PagedKv, queries: &Queries, sequences: &[AttentionRows], out: &mut [f32]) {
    paged_attention_with(Isa::best(), pool::global(), kv, queries, sequences, out);
}

/// [`paged_attention`] with a given instruction set and pool.
pub fn paged_attention_with(
    isa: Isa,
    pool: &ThreadPool,
    kv: &PagedKv,
    queries: &Queries,
    sequences: &[AttentionRows],
    out: &mut [f32],
) {
    let layout = &kv.layout;
    check_layout(layout);
    assert_eq!(kv.k.len(), kv.v.len(), "pools of keys and values of equal size");
    let blocks = kv.k.len() / layout.block_bytes();
    for sequence in sequences {
        let end =
            sequence.visible.iter().filter(|visible| !visible.is_empty()).map(|visible| visible.end).max();
        let used = (end.unwrap_or(0) as usize).div_ceil(layout.block_len);
        assert!(used <= sequence.block_table.len(), "blocks for every visible position");
        let inside = |block: &u32| (*block as usize) < blocks;
        assert!(sequence.block_table[..used].iter().all(inside), "blocks of a pool of {blocks}");
    }
    let view = KvView {
        k: kv.k,
        v: kv.v,
        ty: layout.ty,
        n_kv_heads: layout.n_kv_heads,
        head_dim: layout.head_dim,
        tile_len: layout.block_len,
        tile_bytes: layout.block_bytes(),
        head_bytes: layout.block_len * layout.row_bytes(),
        stride: layout.row_bytes(),
        row_bytes: layout.row_bytes(),
        paged: true,
    };
    Problem::new(view, queries, sequences, out.len()).run(isa, pool, out);
}

/// Attention over contiguous f32 keys and values; bit-equal to [`paged_attention`] over an f32 cache in blocks of
/// [`KvLayout::DEFAULT_BLOCK_LEN`].
///
/// `visible`: the positions each query row sees; `out`: `[tokens, n_heads, head_dim]`. Entries that see nothing give
/// zeros.
///
/// # Panics
/// If sizes do not fit together.
pub fn dense_attention(kv: &DenseKv, queries: &Queries, visible: &[Range<u32>], out: &mut [f32]) {
    dense_attention_with(Isa::best(), pool::global(), kv, queries, visible, out);
}

/// [`dense_attention`] with a given instruction set and pool.
pub fn dense_attention_with(
    isa: Isa,
    pool: &ThreadPool,
    kv: &DenseKv,
    queries: &Queries,
    visible: &[Range<u32>],
    out: &mut [f32],
) {
    let &DenseKv { k, v, n_kv_heads, head_dim } = kv;
    assert!(n_kv_heads > 0 && head_dim > 0, "at least one head of at least one element");
    assert_eq!(k.len(), v.len(), "as many keys as values");
    let positions = k.len() / (n_kv_heads * head_dim);
    let inside = |visible: &Range<u32>| visible.is_empty() || visible.end as usize <= positions;
    assert!(visible.iter().all(inside), "visible positions among the {positions} given");
    let (tile_len, row_bytes) = (KvLayout::DEFAULT_BLOCK_LEN, 4 * head_dim);
    let view = KvView {
        k: bytes(k),
        v: bytes(v),
        ty: KvType::F32,
        n_kv_heads,
        head_dim,
        tile_len,
        tile_bytes: tile_len * n_kv_heads * row_bytes,
        head_bytes: row_bytes,
        stride: n_kv_heads * row_bytes,
        row_bytes,
        paged: false,
    };
    let sequence = AttentionRows { rows: 0..visible.len(), block_table: &[], visible };
    Problem::new(view, queries, &[sequence], out.len()).run(isa, pool, out);
}

fn bytes(x: &[f32]) -> &[u8] {
    // SAFETY: four bytes per f32, all initialised, and bytes have no alignment.
    unsafe { std::slice::from_raw_parts(x.as_ptr().cast(), size_of_val(x)) }
}

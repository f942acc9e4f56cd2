//! Speed of paged attention: decoding in GB/s of keys and values beside a plain read of the same bytes, prefill in
//! multiply-adds/s of the two products (half of them for a causal prompt).
//!
//! `cargo bench -p ember-kernels-cpu --bench attention`: 16 heads on 8 key heads of 128, the best of 9 runs each;
//! reads and attention alternate, so that both see the same machine. Then the heads of an image encoder, 16 of 64 in one
//! contiguous array, where every row sees all.

use std::hint::black_box;
use std::ops::Range;
use std::time::Instant;

use ember_kernels_cpu::attention::{
    AttentionRows, DenseKv, PagedKv, Queries, dense_attention_with, paged_attention_with,
};
use ember_kernels_cpu::kv::{KvLayout, KvType, kv_write_with};
use ember_kernels_cpu::{Isa, ThreadPool};
use ember_test_support::random;

const HEADS: usize = 16;
const KV_HEADS: usize = 8;
const HEAD_DIM: usize = 128;
const REPEATS: usize = 9;

fn main() {
    println!("| KV | rows | context | threads | ms | KV GB/s | read GB/s | GMAC/s |");
    println!("|---|---|---|---|---|---|---|---|");
    for ty in [KvType::F16, KvType::F32, KvType::Q8_0] {
        for (rows, context) in [(1, 4096), (512, 512), (2048, 2048)] {
            for threads in [1, 2] {
                measure(ty, rows, context, &ThreadPool::new(threads));
            }
        }
    }
    for patches in [768, 3072] {
        for threads in [1, 2] {
            measure_image(patches, &ThreadPool::new(threads));
        }
    }
}

/// `[patches, 16, 64]` each of queries, keys and values.
fn measure_image(patches: usize, pool: &ThreadPool) {
    const IMAGE_HEAD_DIM: usize = 64;
    let width = HEADS * IMAGE_HEAD_DIM;
    let x = random(1, patches * width);
    let queries = Queries { q: &x, n_heads: HEADS, scale: 1.0 / (IMAGE_HEAD_DIM as f32).sqrt() };
    let kv = DenseKv { k: &x, v: &x, n_kv_heads: HEADS, head_dim: IMAGE_HEAD_DIM };
    let visible = vec![0..patches as u32; patches];
    let mut out = vec![0.0; x.len()];
    let mut best = f64::INFINITY;
    for _ in 0..REPEATS {
        let start = Instant::now();
        dense_attention_with(Isa::best(), pool, &kv, &queries, &visible, &mut out);
        best = best.min(start.elapsed().as_secs_f64());
    }
    black_box(&out);
    let rate = (patches * patches * 2 * width) as f64 / best / 1e9;
    println!(
        "| image | {patches} | {patches} | {} | {:.3} | - | - | {rate:.1} |",
        pool.threads(),
        best * 1e3
    );
}

/// The last `rows` positions of `context`.
fn measure(ty: KvType, rows: usize, context: usize, pool: &ThreadPool) {
    let layout =
        KvLayout::new(ty, KvLayout::DEFAULT_BLOCK_LEN, KV_HEADS, HEAD_DIM).expect("a possible layout");
    let size = context.div_ceil(layout.block_len) * layout.block_bytes();
    let (mut k, mut v) = (vec![0; size], vec![0; size]);
    let written = random(1, context * KV_HEADS * HEAD_DIM);
    let slots: Vec<u32> = (0..context as u32).collect();
    kv_write_with(Isa::best(), pool, &layout, [&mut k, &mut v], [&written, &written], &slots);

    let q = random(2, rows * HEADS * HEAD_DIM);
    let queries = Queries { q: &q, n_heads: HEADS, scale: 1.0 / (HEAD_DIM as f32).sqrt() };
    let block_table: Vec<u32> = (0..(size / layout.block_bytes()) as u32).collect();
    let visible: Vec<Range<u32>> = (context - rows..context).map(|p| 0..p as u32 + 1).collect();
    let sequences = [AttentionRows { rows: 0..rows, block_table: &block_table, visible: &visible }];
    let kv = PagedKv { layout, k: &k, v: &v };
    let mut out = vec![0.0; q.len()];

    let (mut attention, mut read) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..REPEATS {
        let start = Instant::now();
        paged_attention_with(Isa::best(), pool, &kv, &queries, &sequences, &mut out);
        attention = attention.min(start.elapsed().as_secs_f64());
        let start = Instant::now();
        read_all(pool, &k);
        read_all(pool, &v);
        read = read.min(start.elapsed().as_secs_f64());
    }
    black_box(&out);
    let bytes = (k.len() + v.len()) as f64 / 1e9;
    let seen: f64 = visible.iter().map(|visible| f64::from(visible.end)).sum();
    println!(
        "| {ty:?} | {rows} | {context} | {} | {:.3} | {:.1} | {:.1} | {:.1} |",
        pool.threads(),
        attention * 1e3,
        bytes / attention,
        bytes / read,
        seen * (2 * HEADS * HEAD_DIM) as f64 / attention / 1e9,
    );
}

/// Sums all bytes as 64-bit words, a piece per thread.
fn read_all(pool: &ThreadPool, bytes: &[u8]) {
    let words = bytes.as_chunks::<8>().0;
    let piece = words.len().div_ceil(pool.threads());
    pool.parallel(pool.threads(), &|task| {
        let words = &words[(task * piece).min(words.len())..((task + 1) * piece).min(words.len())];
        black_box(words.iter().fold(0u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word))));
    });
}

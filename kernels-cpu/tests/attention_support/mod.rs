//! Random caches and batches, and attention in f64.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::ops::Range;

use ember_kernels_cpu::attention::{AttentionRows, PagedKv, Queries, paged_attention_with};
use ember_kernels_cpu::kv::{KvLayout, KvType, kv_write_with};
use ember_kernels_cpu::{Isa, ThreadPool};
use half::{bf16, f16};

pub const KV_TYPES: [KvType; 4] = [KvType::F32, KvType::F16, KvType::BF16, KvType::Q8_0];

/// A seeded generator (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Sums of four uniform numbers: bell-shaped, of unit variance.
    pub fn floats(&mut self, n: usize) -> Vec<f32> {
        let uniform = |r: u64| (r >> 40) as f32 / (1 << 24) as f32 - 0.5;
        (0..n).map(|_| (0..4).map(|_| uniform(self.next())).sum::<f32>() * 1.732).collect()
    }

    pub fn shuffled(&mut self, n: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..n as u32).collect();
        for i in (1..n).rev() {
            order.swap(i, self.below(i + 1));
        }
        order
    }
}

/// What a cache of type `ty` holds of a row, computed from the definition of the type.
pub fn stored(ty: KvType, row: &[f32]) -> Vec<f32> {
    match ty {
        KvType::F32 => row.to_vec(),
        KvType::F16 => row.iter().map(|x| f16::from_f32(*x).to_f32()).collect(),
        KvType::BF16 => row.iter().map(|x| bf16::from_f32(*x).to_f32()).collect(),
        KvType::Q8_0 => row
            .chunks(32)
            .flat_map(|block| {
                let step = block.iter().fold(0f32, |m, x| m.max(x.abs())) / 127.0;
                let inverse = if step == 0.0 { 0.0 } else { 1.0 / step };
                let wide = f16::from_f32(step).to_f32();
                block.iter().map(move |x| (x * inverse).round() * wide).collect::<Vec<_>>()
            })
            .collect(),
    }
}

/// One sequence: its keys and values by position, and the blocks they lie in.
pub struct Sequence {
    pub k: Vec<f32>,
    pub v: Vec<f32>,
    pub len: usize,
    pub block_table: Vec<u32>,
}

/// A pool that holds some sequences in shuffled blocks.
pub struct Cache {
    pub layout: KvLayout,
    pub k: Vec<u8>,
    pub v: Vec<u8>,
    pub sequences: Vec<Sequence>,
}

impl Cache {
    /// Slots that hold no position are filled with NaN, which must not show.
    pub fn new(random: &mut Random, layout: KvLayout, lens: &[usize]) -> Self {
        let blocks_of = |len: usize| len.div_ceil(layout.block_len);
        let blocks = lens.iter().map(|len| blocks_of(*len)).sum::<usize>() + 2;
        let mut free = random.shuffled(blocks);
        let mut cache = Self {
            layout,
            k: vec![0xff; blocks * layout.block_bytes()],
            v: vec![0xff; blocks * layout.block_bytes()],
            sequences: Vec::new(),
        };
        for &len in lens {
            let width = layout.n_kv_heads * layout.head_dim;
            let (k, v) = (random.floats(len * width), random.floats(len * width));
            let block_table = free.split_off(free.len() - blocks_of(len));
            cache.sequences.push(Sequence { k, v, len, block_table });
            cache.write(cache.sequences.len() - 1, 0..len);
        }
        cache
    }

    /// Writes positions `range` of sequence `index` to its blocks.
    pub fn write(&mut self, index: usize, range: Range<usize>) {
        let KvLayout { block_len, n_kv_heads, head_dim, .. } = self.layout;
        let sequence = &self.sequences[index];
        let slot = |p: usize| sequence.block_table[p / block_len] * block_len as u32 + (p % block_len) as u32;
        let slots: Vec<u32> = range.clone().map(slot).collect();
        let width = n_kv_heads * head_dim;
        let rows = range.start * width..range.end * width;
        let rows = [&sequence.k[rows.clone()], &sequence.v[rows]];
        let pool = ThreadPool::new(1);
        kv_write_with(Isa::best(), &pool, &self.layout, [&mut self.k, &mut self.v], rows, &slots);
    }

    pub fn paged(&self) -> PagedKv<'_> {
        PagedKv { layout: self.layout, k: &self.k, v: &self.v }
    }
}

/// Rows of a batch: for each sequence of the cache, what its query rows see.
pub fn batch<'a>(cache: &'a Cache, visible: &'a [Vec<Range<u32>>]) -> Vec<AttentionRows<'a>> {
    let mut start = 0;
    let rows = cache.sequences.iter().zip(visible).map(|(sequence, visible)| {
        let rows = start..start + visible.len();
        start = rows.end;
        AttentionRows { rows, block_table: &sequence.block_table, visible }
    });
    rows.collect()
}

pub fn run(
    isa: Isa,
    threads: usize,
    cache: &Cache,
    queries: &Queries,
    visible: &[Vec<Range<u32>>],
) -> Vec<f32> {
    let mut out = vec![7.0; queries.q.len()];
    let pool = ThreadPool::new(threads);
    paged_attention_with(isa, &pool, &cache.paged(), queries, &batch(cache, visible), &mut out);
    out
}

/// The definition, in f64, on the rounded keys and values.
pub fn reference(cache: &Cache, queries: &Queries, visible: &[Vec<Range<u32>>]) -> Vec<f64> {
    let KvLayout { ty, n_kv_heads, head_dim, .. } = cache.layout;
    let mut q = queries.q.chunks(head_dim);
    let mut out = Vec::new();
    for (sequence, visible) in cache.sequences.iter().zip(visible) {
        let rows = |x: &[f32]| x.chunks(head_dim).map(|row| stored(ty, row)).collect::<Vec<_>>();
        let (k, v) = (rows(&sequence.k), rows(&sequence.v));
        for seen in visible {
            for head in 0..queries.n_heads {
                let kv_head = head / (queries.n_heads / n_kv_heads);
                let q = q.next().unwrap();
                let at = |p: u32| p as usize * n_kv_heads + kv_head;
                let dot =
                    |k: &[f32]| q.iter().zip(k).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum::<f64>();
                let scores: Vec<f64> =
                    seen.clone().map(|p| dot(&k[at(p)]) * f64::from(queries.scale)).collect();
                let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = scores.iter().map(|s| (s - max).exp()).sum();
                let mut row = vec![0.0; head_dim];
                for (p, score) in seen.clone().zip(scores) {
                    for (to, v) in row.iter_mut().zip(&v[at(p)]) {
                        *to += (score - max).exp() / sum * f64::from(*v);
                    }
                }
                out.extend(row);
            }
        }
    }
    out
}

/// L2 distance relative to the length of `expected`.
pub fn distance(actual: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(actual.len(), expected.len());
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    norm(&mut actual.iter().zip(expected).map(|(a, e)| f64::from(*a) - e))
        / norm(&mut expected.iter().copied())
}

pub fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Causal rows of the positions `range`.
pub fn causal(range: Range<usize>) -> Vec<Range<u32>> {
    range.map(|p| 0..p as u32 + 1).collect()
}

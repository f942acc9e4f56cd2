//! Random caches and batches, and attention in f64.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::ops::Range;

use ember_kernels_cpu::attention::{AttentionRows, PagedKv, Queries, paged_attention_with};
use ember_kernels_cpu::kv::{KvLayout, KvType, kv_write_with};
use ember_kernels_cpu::{Isa, ThreadPool};
use ember_test_support::{Random, definition};
use half::{bf16, f16};

pub const KV_TYPES: [KvType; 4] = [KvType::F32, KvType::F16, KvType::BF16, KvType::Q8_0];

/// What a cache of type `ty` holds of a row, computed from the definition of the type.
pub fn stored(ty: KvType, row: &[f32]) -> Vec<f32> {
    match ty {
        KvType::F32 => row.to_vec(),
        KvType::F16 => row.iter().map(|x| f16::from_f32(*x).to_f32()).collect(),
        KvType::BF16 => row.iter().map(|x| bf16::from_f32(*x).to_f32()).collect(),
        KvType::Q8_0 => definition::q8_0(row)
            .into_iter()
            .flat_map(|(step, codes)| codes.map(|code| f32::from(code) * step.to_f32()))
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
            let (k, v) = (random.bell(len * width), random.bell(len * width));
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
                let entry = |p: u32| {
                    let at = p as usize * n_kv_heads + kv_head;
                    (&k[at][..], &v[at][..])
                };
                let entries: Vec<_> = seen.clone().map(entry).collect();
                out.extend(definition::attend(q.next().unwrap(), &entries, queries.scale));
            }
        }
    }
    out
}

/// The bits of results that are numbers: those of NaN are equal too.
pub fn bits(x: &[f32]) -> Vec<u32> {
    assert!(x.iter().all(|x| x.is_finite()), "not finite");
    x.iter().map(|x| x.to_bits()).collect()
}

/// Causal rows of the positions `range`.
pub fn causal(range: Range<usize>) -> Vec<Range<u32>> {
    range.map(|p| 0..p as u32 + 1).collect()
}

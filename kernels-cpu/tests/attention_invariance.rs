//! The bits of a row depend on what it sees and on nothing else.

mod attention_support;

use std::ops::Range;

use attention_support::{Cache, KV_TYPES, bits, causal, run};
use ember_kernels_cpu::Isa;
use ember_kernels_cpu::attention::Queries;
use ember_kernels_cpu::kv::{KvLayout, KvType};
use ember_test_support::Random;

/// Attention of `rows` of one sequence in one call.
fn rows(
    cache: &Cache,
    queries: &Queries,
    visible: &[Range<u32>],
    rows: Range<usize>,
    threads: usize,
) -> Vec<u32> {
    let width = queries.n_heads * cache.layout.head_dim;
    let queries = Queries { q: &queries.q[rows.start * width..rows.end * width], ..*queries };
    bits(&run(Isa::best(), threads, cache, &queries, &[visible[rows].to_vec()]))
}

/// The rows of `chunks` in turn.
fn chunked(
    cache: &Cache,
    queries: &Queries,
    visible: &[Range<u32>],
    chunk: usize,
    threads: usize,
) -> Vec<u32> {
    let starts = (0..visible.len()).step_by(chunk);
    starts
        .flat_map(|start| rows(cache, queries, visible, start..(start + chunk).min(visible.len()), threads))
        .collect()
}

/// Every length 1..=260 at once: row `p` of a causal prefill is the decode step at length `p + 1`.
#[test]
fn decode_equals_prefill() {
    let mut random = Random::new(1);
    for ty in KV_TYPES {
        for (group, head_dim) in [(1, 64), (2, 128), (4, 32), (7, 96)] {
            let layout = KvLayout::new(ty, 32, 2, head_dim).unwrap();
            let cache = Cache::new(&mut random, layout, &[260]);
            let q = random.bell(260 * 2 * group * head_dim);
            let queries = Queries { q: &q, n_heads: 2 * group, scale: 0.125 };
            let visible = causal(0..260);
            let prefill = rows(&cache, &queries, &visible, 0..260, 1);
            for chunk in [1, 2, 3, 5, 24, 31, 32, 64, 100, 259] {
                assert!(
                    chunked(&cache, &queries, &visible, chunk, 1) == prefill,
                    "{ty:?} {group} chunks of {chunk}"
                );
            }
            // A shorter prompt's prefill is the beginning of a longer one's.
            let width = 2 * group * head_dim;
            for len in 1..=260 {
                let short = rows(&cache, &queries, &visible, len - 1..len, 2);
                assert!(short == prefill[(len - 1) * width..len * width], "{ty:?} {group} length {len}");
            }
        }
    }
}

/// Past the border of a span, where one row's positions may be shared among threads.
#[test]
fn decode_equals_prefill_over_spans() {
    let mut random = Random::new(2);
    for ty in KV_TYPES {
        let layout = KvLayout::new(ty, 32, 2, 64).unwrap();
        let cache = Cache::new(&mut random, layout, &[1600]);
        let q = random.bell(1600 * 4 * 64);
        let queries = Queries { q: &q, n_heads: 4, scale: 0.125 };
        let visible = causal(0..1600);
        let prefill = rows(&cache, &queries, &visible, 0..1600, 1);
        for p in [511, 512, 513, 1000, 1023, 1024, 1599] {
            for threads in [1, 2, 3] {
                let decode = rows(&cache, &queries, &visible, p..p + 1, threads);
                assert!(decode == prefill[p * 256..(p + 1) * 256], "{ty:?} {threads} position {p}");
            }
        }
        assert!(chunked(&cache, &queries, &visible, 512, 3) == prefill, "{ty:?}");
    }
}

/// Images and windows, in one chunk and in many.
#[test]
fn segments_do_not_depend_on_chunks() {
    let mut random = Random::new(3);
    let layout = KvLayout::new(KvType::F16, 32, 2, 64).unwrap();
    let cache = Cache::new(&mut random, layout, &[700]);
    let q = random.bell(700 * 4 * 64);
    let queries = Queries { q: &q, n_heads: 4, scale: 0.125 };
    let image = 100..560u32;
    let visible: Vec<_> = (0..700u32)
        .map(|p| if image.contains(&p) { 0..image.end } else { p.saturating_sub(300)..p + 1 })
        .collect();
    let whole = rows(&cache, &queries, &visible, 0..700, 1);
    for chunk in [1, 7, 24, 64, 333] {
        for threads in [1, 2, 3] {
            assert!(
                chunked(&cache, &queries, &visible, chunk, threads) == whole,
                "chunks of {chunk}, {threads}"
            );
        }
    }
}

/// Few threads take more rows at a time than many do.
#[test]
fn rows_do_not_depend_on_the_size_of_tasks() {
    let mut random = Random::new(5);
    for ty in KV_TYPES {
        let layout = KvLayout::new(ty, 32, 8, 32).unwrap();
        let cache = Cache::new(&mut random, layout, &[400]);
        let visible = [vec![0..400; 400]];
        let q = random.bell(400 * 8 * 32);
        let queries = Queries { q: &q, n_heads: 8, scale: 0.125 };
        let one = bits(&run(Isa::best(), 1, &cache, &queries, &visible));
        assert!(one == bits(&run(Isa::best(), 2, &cache, &queries, &visible)), "{ty:?}");
    }
}

/// A batch gives each sequence what it gets alone, on any number of threads and any instruction set.
#[test]
fn batch_equals_single_on_every_isa() {
    let mut random = Random::new(4);
    for ty in KV_TYPES {
        for (head_dim, group) in [(32, 1), (64, 3), (128, 2), (80, 2), (20, 1)] {
            if ty == KvType::Q8_0 && head_dim % 32 != 0 {
                continue;
            }
            let layout = KvLayout::new(ty, 32, 2, head_dim).unwrap();
            let cache = Cache::new(&mut random, layout, &[90, 1, 600, 64]);
            let visible = [causal(30..90), causal(0..1), causal(599..600), causal(60..64)];
            let tokens: usize = visible.iter().map(Vec::len).sum();
            let width = 2 * group * head_dim;
            let q = random.bell(tokens * width);
            let queries = Queries { q: &q, n_heads: 2 * group, scale: 0.125 };
            let batch = bits(&run(Isa::Scalar, 1, &cache, &queries, &visible));
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                for threads in [1, 2, 3] {
                    let again = bits(&run(isa, threads, &cache, &queries, &visible));
                    assert!(again == batch, "{ty:?} {head_dim} {isa:?} on {threads}");
                }
            }
            let mut start = 0;
            for (index, seen) in visible.iter().enumerate() {
                let mut alone = vec![Vec::new(); visible.len()];
                alone[index] = seen.clone();
                let range = start * width..(start + seen.len()) * width;
                let queries = Queries { q: &q[range.clone()], ..queries };
                assert!(
                    bits(&run(Isa::best(), 2, &cache, &queries, &alone)) == batch[range],
                    "{ty:?} {index}"
                );
                start += seen.len();
            }
        }
    }
}

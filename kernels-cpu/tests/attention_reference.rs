//! Attention against its definition in f64.

mod attention_support;

use std::ops::Range;

use attention_support::{Cache, KV_TYPES, causal, reference, run};
use ember_kernels_cpu::Isa;
use ember_kernels_cpu::attention::{DenseKv, Queries, dense_attention};
use ember_kernels_cpu::kv::{KvLayout, KvType};
use ember_test_support::{Random, distance};

const TOLERANCE: f64 = 1e-5;

/// Random queries over `cache`, on the scalar kernels and the best; the largest distance from f64.
fn error(random: &mut Random, cache: &Cache, group: usize, visible: &[Vec<Range<u32>>]) -> f64 {
    let n_heads = group * cache.layout.n_kv_heads;
    let tokens: usize = visible.iter().map(Vec::len).sum();
    let q = random.bell(tokens * n_heads * cache.layout.head_dim);
    let queries = Queries { q: &q, n_heads, scale: 1.0 / (cache.layout.head_dim as f32).sqrt() };
    let expected = reference(cache, &queries, visible);
    let [scalar, best] =
        [Isa::Scalar, Isa::best()].map(|isa| distance(&run(isa, 2, cache, &queries, visible), &expected));
    scalar.max(best)
}

#[test]
fn head_sizes_and_groups() {
    let mut random = Random::new(1);
    for ty in KV_TYPES {
        for head_dim in [8, 20, 32, 64, 80, 96, 100, 128, 256] {
            if ty == KvType::Q8_0 && head_dim % 32 != 0 {
                continue;
            }
            for group in [1, 2, 3, 4, 8] {
                let layout = KvLayout::new(ty, 32, 2, head_dim).unwrap();
                let cache = Cache::new(&mut random, layout, &[70, 33]);
                let error = error(&mut random, &cache, group, &[causal(41..70), causal(32..33)]);
                assert!(error < TOLERANCE, "{ty:?}, {head_dim} per head, groups of {group}: {error:e}");
            }
        }
    }
}

#[test]
fn long_contexts_and_block_lengths() {
    let mut random = Random::new(2);
    for ty in KV_TYPES {
        for block_len in [1, 5, 16, 32, 64, 1000] {
            let layout = KvLayout::new(ty, block_len, 2, 64).unwrap();
            let cache = Cache::new(&mut random, layout, &[1, 1100, 513]);
            let visible = [causal(0..1), causal(1090..1100), causal(510..513)];
            let error = error(&mut random, &cache, 2, &visible);
            assert!(error < TOLERANCE, "{ty:?}, blocks of {block_len}: {error:e}");
        }
    }
}

/// Text, an image of 50 positions whose rows see all of it, text; then windows that do not begin at 0.
#[test]
fn segments_and_windows() {
    let mut random = Random::new(3);
    let image = 20..70u32;
    let segment = (0..100).map(|p| if image.contains(&p) { 0..image.end } else { 0..p + 1 }).collect();
    let window = (0..600u32).map(|p| p.saturating_sub(40)..p + 1).collect();
    let alone = (0..100).map(|p| p / 30 * 30..(p / 30 * 30 + 30).min(100)).collect();
    let visible: [Vec<_>; 3] = [segment, window, alone];
    for ty in KV_TYPES {
        let layout = KvLayout::new(ty, 32, 2, 64).unwrap();
        let cache = Cache::new(&mut random, layout, &[100, 600, 100]);
        let error = error(&mut random, &cache, 2, &visible);
        assert!(error < TOLERANCE, "{ty:?}: {error:e}");
    }
}

/// Scores from 0 to 300, in falling and in rising order, over several spans; all of them exact in f32.
#[test]
fn large_scores() {
    let mut random = Random::new(4);
    for sign in [-1.0, 1.0] {
        let layout = KvLayout::new(KvType::F32, 32, 1, 32).unwrap();
        let mut cache = Cache::new(&mut random, layout, &[1200]);
        for (p, k) in cache.sequences[0].k.chunks_mut(32).enumerate() {
            k.fill(sign * p as f32);
        }
        cache.write(0, 0..1200);
        let q = vec![1.0; 32];
        let queries = Queries { q: &q, n_heads: 1, scale: 1.0 / 128.0 };
        let visible = [causal(1199..1200)];
        let error = distance(
            &run(Isa::best(), 1, &cache, &queries, &visible),
            &reference(&cache, &queries, &visible),
        );
        assert!(error < TOLERANCE, "{error:e}");
    }
}

#[test]
fn a_row_that_sees_nothing_is_zero() {
    let mut random = Random::new(5);
    let layout = KvLayout::new(KvType::F16, 32, 2, 64).unwrap();
    let cache = Cache::new(&mut random, layout, &[40, 40]);
    let q = random.bell(5 * 2 * 64);
    let queries = Queries { q: &q, n_heads: 2, scale: 0.125 };
    let visible = [vec![0..0, 5..40, 8..8], vec![Range { start: 7, end: 3 }, 0..1]];
    let out = run(Isa::best(), 2, &cache, &queries, &visible);
    let rows: Vec<&[f32]> = out.chunks(2 * 64).collect();
    for row in [0, 2, 3] {
        assert!(rows[row].iter().all(|x| *x == 0.0), "row {row}");
    }
    for row in [1, 4] {
        assert!(rows[row].iter().all(|x| *x != 0.0 && *x != 7.0), "row {row}");
    }
    let nothing = run(Isa::best(), 2, &cache, &queries, &[vec![0..0; 3], vec![0..0; 2]]);
    assert_eq!(nothing, vec![0.0; out.len()]);
}

#[test]
fn nan_shows() {
    let mut random = Random::new(6);
    for ty in KV_TYPES {
        for place in 0..3 {
            let layout = KvLayout::new(ty, 32, 1, 64).unwrap();
            let mut cache = Cache::new(&mut random, layout, &[700]);
            let mut q = random.bell(2 * 64);
            match place {
                0 => q[3] = f32::NAN,
                1 => cache.sequences[0].k[80 * 64 + 40] = f32::NAN,
                _ => cache.sequences[0].v[80 * 64 + 40] = f32::NAN,
            }
            cache.write(0, 0..700);
            let queries = Queries { q: &q, n_heads: 1, scale: 0.125 };
            // The first row sees position 80, the second does not and has a sound query.
            let out = run(Isa::best(), 2, &cache, &queries, &[vec![0..700, 81..700]]);
            assert!(out[..64].iter().any(|x| x.is_nan()), "{ty:?}, place {place}");
            assert!(out[64..].iter().all(|x| x.is_finite()), "{ty:?}, place {place}");
        }
    }
}

/// Contiguous keys and values give the bits of an f32 cache.
#[test]
fn dense_equals_paged() {
    let mut random = Random::new(7);
    for (head_dim, group) in [(64, 1), (128, 2), (80, 1), (20, 2)] {
        let layout = KvLayout::new(KvType::F32, KvLayout::DEFAULT_BLOCK_LEN, 2, head_dim).unwrap();
        let cache = Cache::new(&mut random, layout, &[777]);
        let q = random.bell(777 * 2 * group * head_dim);
        let queries = Queries { q: &q, n_heads: 2 * group, scale: 0.1 };
        // One image whose patches all see each other, then causal text.
        let visible: Vec<Range<u32>> = (0..777).map(|p| 0..(p + 1).max(300)).collect();
        let sequence = &cache.sequences[0];
        let kv = DenseKv { k: &sequence.k, v: &sequence.v, n_kv_heads: 2, head_dim };
        let mut out = vec![7.0; q.len()];
        dense_attention(&kv, &queries, &visible, &mut out);
        let visible = [visible];
        assert_eq!(out, run(Isa::best(), 1, &cache, &queries, &visible));
        assert!(distance(&out, &reference(&cache, &queries, &visible)) < TOLERANCE);
    }
}

//! NaN and infinities come out where the definitions give them and nowhere else, on every instruction set.
//!
//! Which of NaN and infinity an element is depends on the order of a sum: they count as the same. What a row does not see
//! never breaks it.

mod attention_support;
mod linear_support;

use attention_support::{Cache, KV_TYPES, causal, reference, stored};
use ember_formats::dequantize;
use ember_kernels_cpu::attention::{DenseKv, Queries, dense_attention_with};
use ember_kernels_cpu::float::*;
use ember_kernels_cpu::kv::{KvLayout, KvType};
use ember_kernels_cpu::{GgmlType, Isa, Matrix, ThreadPool, linear_with};
use ember_test_support::{BROKEN, Random, assert_broken_alike, definition};
use half::{bf16, f16};
use std::ops::Range;

fn isas() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.is_available())
}

/// Puts `value` into the first block of a row of `ty`: into its scale `which`, or where it has none, an element.
fn break_block(ty: GgmlType, block: &mut [u8], which: usize, value: f32) {
    let half = f16::from_f32(value).to_le_bytes();
    match ty {
        GgmlType::F32 => block.copy_from_slice(&value.to_le_bytes()),
        GgmlType::F16 => block.copy_from_slice(&half),
        GgmlType::BF16 => block.copy_from_slice(&bf16::from_f32(value).to_le_bytes()),
        _ => {
            let offsets = ty.scale_offsets();
            let at = offsets[which % offsets.len()];
            block[at..at + 2].copy_from_slice(&half);
        }
    }
}

/// Rows of the weights and rows of `x` are broken, each in one place; the others give numbers.
#[test]
fn products() {
    let (mut random, pool) = (Random::new(1), ThreadPool::new(2));
    for ty in GgmlType::ALL {
        let (rows, cols) = (21, 2 * ty.block_len().max(20));
        let row_bytes = ty.row_bytes(cols);
        let mut bytes = linear_support::matrix(&mut random, ty, rows, cols);
        for (i, value) in BROKEN.into_iter().chain(BROKEN).enumerate() {
            let at = (2 * i + 1) * row_bytes + i % 2 * ty.block_bytes();
            break_block(ty, &mut bytes[at..at + ty.block_bytes()], i / BROKEN.len(), value);
        }
        let mut weights = vec![0.0; rows * cols];
        dequantize(ty, &bytes, &mut weights);
        assert!(weights.iter().any(|w| !w.is_finite()) && weights[..cols].iter().all(|w| w.is_finite()));
        // Few tokens, and enough for panels.
        for m in [1, 3, 13] {
            let mut x = random.uniforms(m * cols);
            for (value, x) in BROKEN.into_iter().cycle().zip(x.chunks_exact_mut(cols).skip(1).step_by(2)) {
                x[cols - 2] = value;
            }
            let expected = definition::product(&x, &weights, cols);
            for isa in isas() {
                let mut out = vec![7.0; m * rows];
                let matrix = Matrix::new(ty, rows, cols, &bytes).expect("whole rows");
                linear_with(isa, &pool, &x, m, &[matrix], &mut [&mut out]);
                // Activations are rounded to int8 for quantized weights.
                let limit = if ty.block_len() == 1 { 1e-6 } else { 2e-2 };
                assert_broken_alike(&out, &expected, limit, &format!("{ty}, {m} tokens, {isa:?}"));
            }
        }
    }
}

/// Rows of `x` with one broken element each, the last with none; then the weight is broken, which every row shows.
#[test]
fn norms() {
    let (rows, width) = (BROKEN.len() + 1, 45);
    let mut x = Random::new(2).bell(rows * width);
    for (i, value) in BROKEN.into_iter().enumerate() {
        x[i * width + 9 * i] = value;
    }
    let sound = Random::new(3).bell(width);
    let mut broken = sound.clone();
    broken[3..3 + BROKEN.len()].copy_from_slice(&BROKEN);
    for (isa, weight) in isas().flat_map(|isa| [(isa, &sound), (isa, &broken)]) {
        let expected = definition::rms_norm(&x, weight, 1e-5);
        let pool = ThreadPool::new(2);
        let (mut out, mut added, mut sum) = (vec![7.0; x.len()], vec![7.0; x.len()], vec![0.0; x.len()]);
        rms_norm_with(isa, &pool, &x, weight, 1e-5, &mut out);
        assert_broken_alike(&out, &expected, 1e-6, "RMSNorm");
        add_rms_norm_with(isa, &pool, &mut sum, &x, weight, 1e-5, &mut added);
        assert_broken_alike(&added, &expected, 1e-6, "RMSNorm of a sum");
        assert_broken_alike(&sum, &x, 0.0, "the sum");
    }
}

/// Every pair of sound and broken gates and factors, among them -∞, whose gate is -∞ · 0.
#[test]
fn gates() {
    let values: Vec<f32> =
        BROKEN.into_iter().chain([0.0, -0.0, 1.0, -1.0, 1e4, -1e4, f32::MAX, f32::MIN]).collect();
    let (gate, up): (Vec<f32>, Vec<f32>) =
        values.iter().flat_map(|&gate| values.iter().map(move |&up| (gate, up))).unzip();
    let check = |f: fn(Isa, &ThreadPool, &[f32], &[f32], &mut [f32]), exact: fn(f32) -> f32, what: &str| {
        let expected: Vec<f32> = gate.iter().zip(&up).map(|(&gate, &up)| exact(gate) * up).collect();
        for isa in isas() {
            let mut out = vec![7.0; gate.len()];
            f(isa, &ThreadPool::new(1), &gate, &up, &mut out);
            assert_broken_alike(&out, &expected, 1e-6, what);
        }
    };
    check(swiglu_with, |x| x / (1.0 + (-x).exp()), "SwiGLU");
    check(geglu_erf_with, |x| 0.5 * x * (1.0 + libm::erff(x / 2f32.sqrt())), "GEGLU");
}

/// A pair with a broken element is broken, also where its angle is zero; the others are not.
#[test]
fn rotations() {
    let (tokens, heads, dim, pairs) = (3, 2, 24, 10);
    let mut x = Random::new(4).bell(tokens * heads * dim);
    for (i, value) in BROKEN.into_iter().enumerate() {
        x[i * dim + 4 * i] = value;
    }
    let angle = |i: usize| (i / pairs) as f32 * (1 + i % pairs) as f32;
    let cos: Vec<f32> = (0..tokens * pairs).map(|i| angle(i).cos()).collect();
    let sin: Vec<f32> = (0..tokens * pairs).map(|i| angle(i).sin()).collect();
    for pairing in [Pairing::Half, Pairing::Adjacent] {
        let mut expected: Vec<f64> = x.iter().map(|&x| x.into()).collect();
        for (row, head) in expected.chunks_exact_mut(dim).enumerate() {
            let angles = row / heads * pairs..(row / heads + 1) * pairs;
            definition::rotate(head, &cos[angles.clone()], &sin[angles], pairing == Pairing::Adjacent);
        }
        for isa in isas() {
            let mut out = x.clone();
            rope_with(isa, &ThreadPool::new(1), &mut out, [heads, dim], &cos, &sin, pairing);
            assert_broken_alike(&out, &expected, 1e-6, &format!("{pairing:?} on {isa:?}"));
        }
    }
}

/// What overflows a type reads back as infinity, and NaN as NaN; in q8_0 either breaks the block.
#[test]
fn stored_entries() {
    for ty in KV_TYPES {
        let layout = KvLayout::new(ty, 8, 1, 96).expect("three blocks of q8_0");
        let mut cache = Cache::new(&mut Random::new(5), layout, &[8]);
        let wide = [65519.0, 65520.0, -1e6, 1e7, -1e30, f32::MAX];
        for (row, value) in cache.sequences[0].k.chunks_exact_mut(96).zip(BROKEN.into_iter().chain(wide)) {
            row[40] = value;
        }
        cache.write(0, 0..8);
        let block = cache.sequences[0].block_table[0] as usize;
        let pool = &cache.k[block * layout.block_bytes()..][..layout.block_bytes()];
        let mut read = vec![7.0; 8 * 96];
        dequantize(ty.ggml_type(), pool, &mut read);
        let expected: Vec<f32> =
            cache.sequences[0].k.chunks_exact(96).flat_map(|row| stored(ty, row)).collect();
        assert_broken_alike(&read, &expected, 0.0, &format!("{ty}"));
        for (row, read) in read.chunks_exact(96).take(BROKEN.len()).enumerate() {
            let broken = if ty == KvType::Q8_0 { 32..64 } else { 40..41 };
            assert!((0..96).all(|i| read[i].is_finite() != broken.contains(&i)), "{ty}: row {row}");
        }
    }
}

/// Attention of `visible` over `cache` in one call, on every instruction set.
fn check_attention(cache: &Cache, q: &[f32], n_heads: usize, visible: &[Vec<Range<u32>>], what: &str) {
    let queries = Queries { q, n_heads, scale: 0.3 };
    let expected = reference(cache, &queries, visible);
    for isa in isas() {
        let out = attention_support::run(isa, 2, cache, &queries, visible);
        let row_len = n_heads * cache.layout.head_dim;
        for (row, (out, expected)) in out.chunks(row_len).zip(expected.chunks(row_len)).enumerate() {
            assert_broken_alike(out, expected, 1e-5, &format!("{what}, row {row}, {isa:?}"));
        }
    }
}

/// Entries that some rows see and others do not are broken, in keys and in values.
#[test]
fn attention_breaks_where_it_sees() {
    let mut random = Random::new(6);
    for ty in KV_TYPES {
        for (dim, group) in [(32, 1), (64, 3), (96, 2)] {
            let layout = KvLayout::new(ty, 32, 2, dim).expect("whole blocks of q8_0");
            for broken in BROKEN {
                let mut cache = Cache::new(&mut random, layout, &[90, 600, 70]);
                let width = 2 * dim;
                cache.sequences[0].v[75 * width + 5] = broken;
                cache.sequences[0].k[80 * width + dim + 7] = broken;
                cache.sequences[1].v[590 * width + dim] = broken;
                cache.sequences[1].k[3 * width] = broken;
                cache.sequences[2].v[40 * width + 1] = broken;
                (0..3).for_each(|i| cache.write(i, 0..cache.sequences[i].len));
                let visible = [
                    causal(60..90),
                    vec![4..590, 4..591, 0..590, 3..4, 590..591, 0..0],
                    // A window, and an image.
                    (30..60).map(|p| p - 9..p + 1).chain((0..5).map(|_| 41..70)).collect(),
                ];
                let tokens: usize = visible.iter().map(Vec::len).sum();
                let q = random.bell(tokens * group * width);
                check_attention(&cache, &q, 2 * group, &visible, &format!("{ty} {dim} x {group}, {broken}"));
            }
        }
    }
}

/// A score of -∞ is a weight of zero, as softmax says, unless a row has no other; +∞ and NaN break it.
#[test]
fn scores_of_every_kind() {
    let layout = KvLayout::new(KvType::F32, 4, 1, 8).expect("eight elements");
    let mut cache = Cache::new(&mut Random::new(7), layout, &[16]);
    for (entry, score) in [
        (0, f32::NEG_INFINITY),
        (1, f32::NEG_INFINITY),
        (5, f32::NEG_INFINITY),
        (9, f32::INFINITY),
        (12, f32::NAN),
    ] {
        cache.sequences[0].k[entry * 8..][..8].fill(score);
    }
    cache.write(0, 0..16);
    let visible = [vec![0..2, 0..3, 1..6, 5..6, 2..9, 2..10, 10..12, 10..13, 13..16]];
    let q = vec![1.0; visible[0].len() * 8];
    check_attention(&cache, &q, 1, &visible, "infinite scores");
    let out =
        attention_support::run(Isa::best(), 1, &cache, &Queries { q: &q, n_heads: 1, scale: 0.3 }, &visible);
    let finite: Vec<bool> = out.chunks(8).map(|row| row.iter().all(|x| x.is_finite())).collect();
    assert_eq!(finite, [false, true, true, false, true, false, true, false, true]);
}

/// No score is too low to count: the values of equal keys are averaged.
#[test]
fn scores_below_all_others() {
    let layout = KvLayout::new(KvType::F32, 4, 1, 8).expect("eight elements");
    let mut cache = Cache::new(&mut Random::new(8), layout, &[600]);
    cache.sequences[0].k.fill(-1e20);
    cache.write(0, 0..600);
    let q = vec![1e16; 2 * 8];
    check_attention(&cache, &q, 1, &[vec![0..600, 3..5]], "scores of -2.4e36");
}

#[test]
fn attention_without_pages() {
    let (rows, dim) = (50, 16);
    let mut random = Random::new(9);
    let layout = KvLayout::new(KvType::F32, KvLayout::DEFAULT_BLOCK_LEN, 1, dim).expect("16 elements");
    let mut cache = Cache::new(&mut random, layout, &[rows]);
    cache.sequences[0].k[30 * dim + 1] = f32::NAN;
    cache.sequences[0].v[20 * dim + 2] = f32::INFINITY;
    let visible: Vec<Range<u32>> = causal(0..40).into_iter().chain((40..50).map(|_| 31..50)).collect();
    let q = random.bell(rows * dim);
    let queries = Queries { q: &q, n_heads: 1, scale: 0.3 };
    let expected = reference(&cache, &queries, std::slice::from_ref(&visible));
    let sequence = &cache.sequences[0];
    let kv = DenseKv { k: &sequence.k, v: &sequence.v, n_kv_heads: 1, head_dim: dim };
    for isa in isas() {
        let mut out = vec![7.0; q.len()];
        dense_attention_with(isa, &ThreadPool::new(2), &kv, &queries, &visible, &mut out);
        for (row, (out, expected)) in out.chunks(dim).zip(expected.chunks(dim)).enumerate() {
            assert_broken_alike(out, expected, 1e-5, &format!("row {row}, {isa:?}"));
        }
    }
}

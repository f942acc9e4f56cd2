//! The CPU operations against their definitions in plain tensor operations, and those definitions against loops in f64.
mod common;

use burn::tensor::{Tensor, TensorData};
use burn_ndarray::NdArray;
use common::values;
use ember_loaders::gguf::{GgmlType, dequantize};
use ember_models::backend::{Backend, HeadInput, HeadNorms, KvLayout, Pairing, conformance, default};
use ember_models::kv_cache::KvPages;
use ember_models::layers::rope::RopeTable;
use ember_models::{KvType, PackedMatrix, Step};
use ember_test_support::{assert_broken_alike, definition, max_relative, random};
use half::{bf16, f16};

type B = NdArray;

fn tensor<const D: usize>(values: &[f32], shape: [usize; D]) -> Tensor<B, D> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), &Default::default())
}

/// Three operations of the CPU are their own definitions (`packed_lookup`, `rotate_and_write`, `top_k`): of these this
/// compares nothing, and the tests below do.
#[test]
fn operations_equal_their_definitions() {
    let mut findings = Vec::new();
    conformance::operations::<B>(&Default::default(), &mut |finding| findings.push(finding))
        .expect("no device");
    assert!(findings.len() > 50, "{} comparisons", findings.len());
    for finding in findings {
        assert!(finding.holds(), "{finding}");
    }
}

/// Activations are rounded to int8 for quantized weights.
#[test]
fn products_of_every_type_are_close_to_their_definitions() {
    let mut n = 0;
    for ty in GgmlType::ALL {
        let matrices = [conformance::random_matrix(ty, 1, 7, 512), conformance::random_matrix(ty, 2, 5, 512)];
        conformance::products::<B>(&matrices, &[1, 6], 2e-2, &Default::default(), &mut |finding| {
            n += 1;
            assert!(finding.holds(), "{finding}");
        })
        .expect("no device");
    }
    assert_eq!(
        n,
        GgmlType::ALL.len() * 7,
        "two numbers of rows of two matrices and of one, and looked-up rows"
    );
}

#[test]
fn broken_products_of_every_type_break_as_their_definitions() {
    let mut n = 0;
    for ty in GgmlType::ALL {
        conformance::broken_products::<B>(ty, &[1, 5, 13], 2e-2, &Default::default(), &mut |finding| {
            n += 1;
            assert!(finding.holds(), "{finding}");
        })
        .expect("no device");
    }
    assert_eq!(n, GgmlType::ALL.len() * 4, "three numbers of rows, and looked-up rows");
}

/// Attention on NaN and infinities against loops that know nothing of what a row does not see.
#[test]
fn definitions_break_where_rows_see() {
    let (t, heads, dim) = (6, 2, 4);
    let (q, mut k, mut v) = (random(1, t * heads * dim), random(2, t * dim), random(3, t * dim));
    (k[4 * dim], v[2 * dim + 1], v[5 * dim + 2]) = (f32::NAN, f32::INFINITY, f32::NAN);
    let visible = [0..1, 0..2, 0..3, 0..4, 0..5, 0..6];
    let shape = [t, 1, dim];
    let attention = default::unpaged_attention(
        tensor(&q, [t, heads, dim]),
        tensor(&k, shape),
        tensor(&v, shape),
        &visible,
        0.7,
    );
    let entries: Vec<_> = k.chunks(dim).zip(v.chunks(dim)).collect();
    let row = |(i, q): (usize, &[f32])| definition::attend(q, &entries[..i / heads + 1], 0.7);
    let expected: Vec<f64> = q.chunks(dim).enumerate().flat_map(row).collect();
    assert_broken_alike(&values(attention), &expected, 1e-6, "causal rows");
}

#[test]
fn definitions_equal_f64() {
    let (t, heads, dim) = (5, 3, 8);
    let (x, y, weight) = (random(1, t * heads * dim), random(2, t * heads * dim), random(3, dim));
    let rows = [t * heads, dim];
    let norm = values(default::rms_norm(tensor(&x, rows), tensor(&weight, [dim]), 1e-3));
    assert!(max_relative(&norm, &definition::rms_norm(&x, &weight, 1e-3)) < 1e-6);

    let matrix = conformance::random_matrix(GgmlType::F32, 4, 7, dim);
    let product = default::packed_linear(tensor(&x, rows), &[&matrix]).remove(0);
    let expected = definition::product(&x, &matrix.dequantize_rows(0..7), dim);
    assert!(max_relative(&values(product), &expected) < 1e-6);

    // Rows 0..2 are causal, rows 2..5 see each other; three query heads read one key head.
    let visible = [0..1, 0..2, 2..5, 2..5, 2..5];
    let (k, v) = (random(5, t * dim), random(6, t * dim));
    let attention = default::unpaged_attention(
        tensor(&y, [t, heads, dim]),
        tensor(&k, [t, 1, dim]),
        tensor(&v, [t, 1, dim]),
        &visible,
        0.7,
    );
    let entries: Vec<_> = k.chunks(dim).zip(v.chunks(dim)).collect();
    let row = |(i, q): (usize, &[f32])| {
        let seen = &visible[i / heads];
        definition::attend(q, &entries[seen.start as usize..seen.end as usize], 0.7)
    };
    let expected: Vec<f64> = y.chunks(dim).enumerate().flat_map(row).collect();
    assert!(max_relative(&values(attention), &expected) < 1e-6);
}

#[test]
fn rope_rotates_the_documented_pairs() {
    let device = Default::default();
    let x = Tensor::<B, 3>::from_floats([[[1.0, 2.0, 3.0, 4.0]]], &device);
    let cos = Tensor::<B, 2>::from_floats([[0.0, 1.0]], &device);
    let sin = Tensor::<B, 2>::from_floats([[1.0, 0.0]], &device);
    let turned = |pairing| values(default::rope(x.clone(), cos.clone(), sin.clone(), pairing));
    assert_eq!(turned(Pairing::Adjacent), [-2.0, 1.0, 3.0, 4.0]);
    assert_eq!(turned(Pairing::Half), [-3.0, 2.0, 1.0, 4.0]);
}

#[test]
fn the_likeliest_tokens() {
    let rows = [[0.5, 2.0, -1.0, 2.0, f32::NEG_INFINITY], [1.0, f32::NAN, 3.0, 2.0, 0.0]];
    let logits = Tensor::<B, 2>::from_floats(rows, &Default::default());
    let picks = B::top_k(logits, 3).expect("no device");
    assert_eq!(picks[0], [(1, 2.0), (3, 2.0), (0, 0.5)]);
    assert_eq!(picks[1].iter().map(|pick| pick.0).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(picks[1][0].1.is_nan());
}

/// The first largest of what is left, taken out `k` times.
fn likeliest(row: &[f32], k: usize) -> Vec<(u32, f32)> {
    let mut left: Vec<(u32, f32)> = (0..).zip(row.iter().copied()).collect();
    let mut picks = Vec::new();
    while picks.len() < k && !left.is_empty() {
        let mut best = 0;
        for i in 1..left.len() {
            if left[i].1 > left[best].1 {
                best = i;
            }
        }
        picks.push(left.remove(best));
    }
    picks
}

#[test]
fn the_likeliest_tokens_are_those_that_a_search_finds() {
    // Rounded to 21 values, so that most are equal to others.
    let logits: Vec<f32> = random(20, 2 * 150).iter().map(|x| (10.0 * x).round()).collect();
    for k in [1, 2, 5, 64, 149, 150, 400] {
        let picks = B::top_k(tensor(&logits, [2, 150]), k).expect("no device");
        let expected: Vec<_> = logits.chunks(150).map(|row| likeliest(row, k)).collect();
        assert_eq!(picks, expected, "k {k}");
    }
}

/// Weight `i` of a row of blocks, for the types that are simple enough to be written down here.
fn weight(ty: GgmlType, row: &[u8], i: usize) -> Option<f32> {
    let half = |at: usize| [row[at], row[at + 1]];
    let scale = |at: usize| f16::from_le_bytes(half(at)).to_f32();
    Some(match ty {
        GgmlType::F32 => f32::from_le_bytes([row[4 * i], row[4 * i + 1], row[4 * i + 2], row[4 * i + 3]]),
        GgmlType::F16 => scale(2 * i),
        GgmlType::BF16 => bf16::from_le_bytes(half(2 * i)).to_f32(),
        GgmlType::Q8_0 => {
            let block = i / 32 * 34;
            scale(block) * f32::from(row[block + 2 + i % 32] as i8)
        }
        GgmlType::Q4_0 => {
            let (block, code) = (i / 32 * 18, i % 32);
            let byte = row[block + 2 + code % 16];
            scale(block) * (f32::from(if code < 16 { byte & 0xf } else { byte >> 4 }) - 8.0)
        }
        _ => return None,
    })
}

#[test]
fn looked_up_rows_are_the_weights() {
    let (rows, cols, ids) = (6, 512, [4u32, 0, 0, 5, 2]);
    let mut by_hand = 0;
    for (seed, ty) in (1..).zip(GgmlType::ALL) {
        let table: PackedMatrix = conformance::random_matrix(ty, seed, rows, cols);
        let found = values(B::packed_lookup(&table, &ids, &Default::default()));
        // The table as a whole, by what loaders/tests compares with gguf-py.
        let mut all = vec![f32::NAN; rows * cols];
        dequantize(ty, table.bytes(), &mut all);
        let expected: Vec<f32> =
            ids.iter().flat_map(|&id| all[id as usize * cols..][..cols].to_vec()).collect();
        assert_eq!(found, expected, "{ty}");
        assert!(found[..cols] != found[cols..2 * cols], "{ty}: rows 4 and 0 differ");
        let blocks = table.bytes().chunks_exact(ty.row_bytes(cols));
        for (blocks, row) in blocks.zip(all.chunks_exact(cols)) {
            let Some(expected) = (0..cols).map(|i| weight(ty, blocks, i)).collect::<Option<Vec<f32>>>()
            else {
                break;
            };
            by_hand += 1;
            assert_eq!(row, expected, "{ty}");
        }
    }
    assert_eq!(by_hand, 5 * rows);
}

/// Sizes of the step below.
const ROWS: usize = 5;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const DIM: usize = 32;
const BLOCK: usize = 4;
/// Out of order, in blocks 2, 0 and 1.
const SLOTS: [u32; ROWS] = [9, 8, 3, 0, 6];

/// Heads `[ROWS, heads, DIM]` normalised, rotated and scaled, in f64.
fn rotated(x: &[f32], norm: Option<&[f32]>, rope: &RopeTable<B>, scale: &[f32]) -> Vec<f64> {
    let mut x: Vec<f64> = match norm {
        Some(weight) => definition::rms_norm(x, weight, 1e-6),
        None => x.iter().map(|&x| x.into()).collect(),
    };
    let (width, half) = (x.len() / ROWS, DIM / 2);
    for (row, x) in x.chunks_exact_mut(width).enumerate() {
        for head in x.chunks_exact_mut(DIM) {
            let angles = row * half..(row + 1) * half;
            let neighbours = rope.pairing == Pairing::Adjacent;
            definition::rotate(head, &rope.cos[angles.clone()], &rope.sin[angles], neighbours);
            head.iter_mut().for_each(|x| *x *= f64::from(scale[row]));
        }
    }
    x
}

/// The entries of a pool `[blocks][KV_HEADS][BLOCK][DIM]`, in the order of the slots.
fn entries(ty: KvType, pool: &[u8], slots: impl IntoIterator<Item = u32>) -> Vec<f32> {
    let (ggml, bytes) = match ty {
        KvType::F32 => (GgmlType::F32, 4 * DIM),
        KvType::F16 => (GgmlType::F16, 2 * DIM),
        KvType::BF16 => (GgmlType::BF16, 2 * DIM),
        KvType::Q8_0 => (GgmlType::Q8_0, 34),
    };
    let places = slots.into_iter().flat_map(|slot| (0..KV_HEADS).map(move |head| (slot as usize, head)));
    places
        .flat_map(|(slot, head)| {
            let at = ((slot / BLOCK * KV_HEADS + head) * BLOCK + slot % BLOCK) * bytes;
            let row = &pool[at..at + bytes];
            (0..DIM).map(|i| weight(ggml, row, i).expect("a type written down above")).collect::<Vec<_>>()
        })
        .collect()
}

/// Fails unless every value is the nearest that the type holds, or next to it where f32 and f64 round apart.
fn assert_stored(ty: KvType, stored: &[f32], exact: &[f64], what: &str) {
    for (stored, exact) in stored.chunks_exact(32).zip(exact.chunks_exact(32)) {
        let largest = exact.iter().fold(0.0, |largest: f64, x| largest.max(x.abs()));
        for (&stored, &exact) in stored.iter().zip(exact) {
            let step = match ty {
                KvType::F32 => 1e-6 * largest,
                KvType::F16 => exact.abs() / 2048.0 + 1e-6 * largest,
                KvType::BF16 => exact.abs() / 256.0 + 1e-6 * largest,
                // Half a step, and the rounding of the step itself to f16.
                KvType::Q8_0 => largest / 254.0 + exact.abs() / 2048.0 + 1e-6 * largest,
            };
            assert!((f64::from(stored) - exact).abs() <= step, "{what} in {ty:?}: {stored} for {exact}");
        }
    }
}

#[test]
fn heads_are_normalised_rotated_scaled_and_written() {
    let (q, k, v) =
        (random(1, ROWS * HEADS * DIM), random(2, ROWS * KV_HEADS * DIM), random(3, ROWS * KV_HEADS * DIM));
    let [q_norm, k_norm] = [4, 5].map(|seed| random(seed, DIM));
    let scales = random(6, ROWS);
    let device = Default::default();
    for ty in [KvType::F32, KvType::F16, KvType::BF16, KvType::Q8_0] {
        for (norms, scaled, pairing) in
            [(true, false, Pairing::Half), (false, true, Pairing::Adjacent), (true, true, Pairing::Adjacent)]
        {
            let angles = random(7, ROWS * DIM / 2).into_iter().map(|x| 3.0 * x);
            let rope = RopeTable::<B>::of_angles(angles, ROWS, 1.0, pairing, &device);
            let layout = KvLayout::new(ty, BLOCK, KV_HEADS, DIM).expect("32 divides into q8_0 blocks");
            let mut pages = KvPages::host(layout, 3).expect("a few bytes");
            let input = HeadInput {
                q: tensor(&q, [ROWS, HEADS, DIM]),
                k: tensor(&k, [ROWS, KV_HEADS, DIM]),
                v: tensor(&v, [ROWS, KV_HEADS, DIM]),
                norms: norms.then(|| HeadNorms {
                    q: tensor(&q_norm, [DIM]),
                    k: tensor(&k_norm, [DIM]),
                    eps: 1e-6,
                }),
            };
            let query_scale = scaled.then(|| scales.clone());
            let step = Step::over_pages(rope.clone(), query_scale, &SLOTS, &[], layout, &device);
            let step = step.expect("no device");
            let queries = values(B::rotate_and_write(input, &mut pages, &step));

            let ones = [1.0; ROWS];
            let expected =
                rotated(&q, norms.then_some(&q_norm[..]), &rope, if scaled { &scales } else { &ones });
            assert!(max_relative(&queries, &expected) < 1e-6, "queries, {pairing:?}, norms: {norms}");
            let (k_pool, v_pool) = pages.as_host();
            let keys = rotated(&k, norms.then_some(&k_norm[..]), &rope, &ones);
            assert_stored(ty, &entries(ty, k_pool, SLOTS), &keys, "keys");
            let exact: Vec<f64> = v.iter().map(|&v| v.into()).collect();
            assert_stored(ty, &entries(ty, v_pool, SLOTS), &exact, "values");
            for pool in [k_pool, v_pool] {
                let others = entries(ty, pool, (0..12).filter(|slot| !SLOTS.contains(slot)));
                assert_eq!(others, [0.0; 7 * KV_HEADS * DIM], "slots that no row has");
            }
        }
    }
}

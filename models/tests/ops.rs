//! The CPU operations against their definitions in plain tensor operations.
mod common;

use burn_ndarray::NdArray;
use common::{max_relative, random, tensor, values};
use ember_loaders::checkpoint::WeightTensor;
use ember_loaders::gguf::{GgmlType, MappedBytes};
use ember_models::backend::{Backend, Pairing, default};
use ember_models::kv_cache::KvPages;
use ember_models::{KvLayout, KvType, PackedMatrix, SequenceRows};

type B = NdArray;

fn f32_matrix(seed: u64, rows: usize, cols: usize) -> PackedMatrix {
    let bytes = random(seed, rows * cols).iter().flat_map(|v| v.to_le_bytes()).collect();
    PackedMatrix::new(&WeightTensor {
        name: "w".into(),
        ty: GgmlType::F32,
        dims: vec![cols, rows],
        bytes: MappedBytes::from_vec(bytes),
    })
}

#[test]
fn packed_linear() {
    let device = Default::default();
    let weights = [f32_matrix(1, 48, 64), f32_matrix(2, 33, 64)];
    let refs: Vec<&PackedMatrix> = weights.iter().collect();
    for t in [1, 2, 3, 5, 17] {
        let x = tensor::<B, 2>(3, [t, 64], &device);
        let fast = B::packed_linear(x.clone(), &refs);
        let defined = default::packed_linear(x, &refs);
        for (fast, defined) in fast.into_iter().zip(defined) {
            assert_eq!(fast.dims(), defined.dims());
            let error = max_relative(&values(fast), &values(defined));
            assert!(error < 1e-5, "{t} rows: {error}");
        }
    }
}

#[test]
fn packed_rows() {
    let device = Default::default();
    let table = f32_matrix(4, 10, 8);
    let rows = values(B::packed_rows(&table, &[7, 0, 7], &device));
    let all = random(4, 80);
    assert_eq!(rows, [&all[56..64], &all[0..8], &all[56..64]].concat());
}

#[test]
fn norms_and_gates() {
    let device = Default::default();
    for dim in [8, 40, 129] {
        let x = tensor::<B, 2>(5, [6, dim], &device);
        let y = tensor::<B, 2>(6, [6, dim], &device);
        let weight = tensor::<B, 1>(7, [dim], &device);
        let fast = values(B::rms_norm(x.clone(), weight.clone(), 1e-5));
        let defined = values(default::rms_norm(x.clone(), weight.clone(), 1e-5));
        assert!(max_relative(&fast, &defined) < 1e-6, "rms_norm {dim}");
        let (sum, normed) = B::add_rms_norm(x.clone(), y.clone(), weight.clone(), 1e-5);
        assert_eq!(values(sum), values(x.clone() + y.clone()));
        let defined = values(default::rms_norm(x.clone() + y.clone(), weight, 1e-5));
        assert!(max_relative(&values(normed), &defined) < 1e-6, "add_rms_norm {dim}");
        let fast = values(B::swiglu(x.clone(), y.clone()));
        let defined = values(burn::tensor::activation::silu(x) * y);
        assert!(max_relative(&fast, &defined) < 1e-6, "swiglu {dim}");
    }
}

#[test]
fn rope_both_pairings_and_partial_width() {
    let device = Default::default();
    for pairing in [Pairing::Adjacent, Pairing::Half] {
        for half in [16, 10] {
            let x = tensor::<B, 3>(8, [5, 3, 32], &device);
            let cos = tensor::<B, 2>(9, [5, half], &device);
            let sin = tensor::<B, 2>(10, [5, half], &device);
            let fast = values(B::rope(x.clone(), cos.clone(), sin.clone(), pairing));
            let defined = values(default::rope(x, cos, sin, pairing));
            assert!(max_relative(&fast, &defined) < 1e-6, "{pairing:?} {half}");
        }
    }
}

#[test]
fn rope_rotates_the_documented_pairs() {
    let device = Default::default();
    let x = burn::tensor::Tensor::<B, 3>::from_floats([[[1.0, 2.0, 3.0, 4.0]]], &device);
    let cos = burn::tensor::Tensor::<B, 2>::from_floats([[0.0, 1.0]], &device);
    let sin = burn::tensor::Tensor::<B, 2>::from_floats([[1.0, 0.0]], &device);
    let turned = |pairing| values(default::rope(x.clone(), cos.clone(), sin.clone(), pairing));
    assert_eq!(turned(Pairing::Adjacent), [-2.0, 1.0, 3.0, 4.0]);
    assert_eq!(turned(Pairing::Half), [-3.0, 2.0, 1.0, 4.0]);
}

#[test]
fn attention_with_causal_rows_and_segments() {
    let device = Default::default();
    let (t, h, g, d) = (12, 6, 2, 16);
    let q = tensor::<B, 3>(11, [t, h, d], &device);
    let k = tensor::<B, 3>(12, [t, g, d], &device);
    let v = tensor::<B, 3>(13, [t, g, d], &device);
    // Two sequences of 5 and 7 rows, the second one bidirectional.
    let visible: Vec<_> = (0..5).map(|i| 0..i + 1).chain((5..12).map(|_| 5..12)).collect();
    let fast = values(B::dense_attention(q.clone(), k.clone(), v.clone(), &visible, 0.25));
    let defined = values(default::dense_attention(q, k, v, &visible, 0.25));
    assert!(max_relative(&fast, &defined) < 1e-5);
}

#[test]
fn paged_attention_of_every_page_type() {
    let device = Default::default();
    let (h, g, d) = (4, 2, 32);
    for (ty, tolerance) in [(KvType::F32, 1e-5), (KvType::F16, 1e-5), (KvType::Q8_0, 1e-5)] {
        let layout = KvLayout::new(ty, 8, g, d).expect("32 divides into q8_0 blocks");
        let pool = || vec![0u8; 6 * layout.block_bytes()];
        let mut pages = KvPages::Host { k: pool(), v: pool() };
        let table = vec![4u32, 1, 5];
        let sequence = |rows: std::ops::Range<usize>, kv_start| SequenceRows {
            rows,
            kv_start,
            block_table: table.clone(),
            segments: std::iter::once(6..12).collect(),
            ..SequenceRows::default()
        };
        let slots: Vec<u32> = (0..20).map(|i| ember_models::batch::slot(i, &table, 8)).collect();
        let k = tensor::<B, 3>(14, [20, g, d], &device);
        let v = tensor::<B, 3>(15, [20, g, d], &device);
        B::kv_write(&mut pages, layout, k, v, &slots);
        let q = tensor::<B, 3>(16, [20, h, d], &device);
        let fast = values(B::paged_attention(q.clone(), &pages, layout, &[sequence(0..20, 0)], 0.2));
        let defined = values(default::paged_attention(q, &pages, layout, &[sequence(0..20, 0)], 0.2));
        let error = max_relative(&fast, &defined);
        assert!(error < tolerance, "{ty:?}: {error}");
    }
}

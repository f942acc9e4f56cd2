//! Operations of a backend against their definitions, which run on ndarray tensors.
use super::{max_relative, random, tensor, values};
use burn::tensor::Tensor;
use burn_ndarray::NdArray;
use ember_loaders::checkpoint::WeightTensor;
use ember_loaders::gguf::{GgmlType, MappedBytes};
use ember_models::backend::{Backend, HeadInput, HeadNorms, Pairing, default};
use ember_models::kv_cache::KvPages;
use ember_models::layers::rope::RopeTable;
use ember_models::{KvLayout, KvType, PackedMatrix, SequenceRows, StepPlan};
use std::ops::Range;

/// The backend of the definitions.
type D = NdArray;

fn f32_matrix(seed: u64, rows: usize, cols: usize) -> PackedMatrix {
    let bytes = random(seed, rows * cols).iter().flat_map(|v| v.to_le_bytes()).collect();
    PackedMatrix::new(&WeightTensor {
        name: "w".into(),
        ty: GgmlType::F32,
        dims: vec![cols, rows],
        bytes: MappedBytes::from_vec(bytes),
    })
}

/// The matrices where the backend wants them.
fn placed<B: Backend>(matrices: &[PackedMatrix]) -> Vec<PackedMatrix> {
    let mut moved = 0;
    let placed = B::place("w", matrices.to_vec(), &Default::default(), &mut |bytes| moved += bytes);
    assert_eq!(moved, matrices.iter().map(|m| m.n_bytes() as u64).sum::<u64>(), "progress");
    placed.expect("small matrices fit")
}

fn assert_close<B: Backend, const N: usize>(
    fast: Tensor<B, N>,
    defined: Tensor<D, N>,
    limit: f32,
    what: &str,
) {
    assert_eq!(fast.dims(), defined.dims(), "{what}");
    let error = max_relative(&values(fast), &values(defined));
    assert!(error < limit, "{what}: {error}");
}

/// Products with matrices side by side, and with one of them alone.
pub fn packed_linear<B: Backend>() {
    let device = Default::default();
    let host = [f32_matrix(1, 48, 64), f32_matrix(2, 33, 64)];
    let weights = placed::<B>(&host);
    for t in [1, 2, 3, 5, 17] {
        for which in [&[0, 1][..], &[1], &[1, 0]] {
            let x = tensor::<B, 2>(3, [t, 64], &device);
            let fast = B::packed_linear(x, &which.iter().map(|&i| &weights[i]).collect::<Vec<_>>());
            let x = tensor::<D, 2>(3, [t, 64], &Default::default());
            let defined = default::packed_linear(x, &which.iter().map(|&i| &host[i]).collect::<Vec<_>>());
            assert_eq!(fast.len(), which.len());
            for (fast, defined) in fast.into_iter().zip(defined) {
                assert_close(fast, defined, 1e-5, &format!("{t} rows, {which:?}"));
            }
        }
    }
}

/// Embedding rows, in order and repeated.
pub fn packed_rows<B: Backend>() {
    let tables = placed::<B>(&[f32_matrix(4, 10, 8)]);
    let rows = values(B::packed_rows(&tables[0], &[7, 0, 7], &Default::default()));
    let all = random(4, 80);
    assert_eq!(rows, [&all[56..64], &all[0..8], &all[56..64]].concat());
}

/// RMSNorm with and without a residual, and SwiGLU.
pub fn norms_and_gates<B: Backend>() {
    for dim in [8, 40, 129] {
        let x = || tensor::<B, 2>(5, [6, dim], &Default::default());
        let y = || tensor::<B, 2>(6, [6, dim], &Default::default());
        let weight = || tensor::<B, 1>(7, [dim], &Default::default());
        let dx = || tensor::<D, 2>(5, [6, dim], &Default::default());
        let dy = || tensor::<D, 2>(6, [6, dim], &Default::default());
        let dweight = || tensor::<D, 1>(7, [dim], &Default::default());
        let what = format!("width {dim}");
        assert_close(B::rms_norm(x(), weight(), 1e-5), default::rms_norm(dx(), dweight(), 1e-5), 1e-6, &what);
        let (sum, normed) = B::add_rms_norm(x(), y(), weight(), 1e-5);
        assert_eq!(values(sum), values(dx() + dy()));
        assert_close(normed, default::rms_norm(dx() + dy(), dweight(), 1e-5), 1e-6, &what);
        let gated = burn::tensor::activation::silu(dx()) * dy();
        assert_close(B::swiglu(x(), y()), gated, 1e-6, &what);
    }
}

/// Both pairings, whole and partial width.
pub fn rope<B: Backend>() {
    for pairing in [Pairing::Adjacent, Pairing::Half] {
        for half in [16, 10] {
            let table = rope_table::<B>(5, half, pairing);
            let fast = table.apply(tensor(8, [5, 3, 32], &Default::default()));
            let table = rope_table::<D>(5, half, pairing);
            let x = tensor::<D, 3>(8, [5, 3, 32], &Default::default());
            let [cos, sin] = table.tensors().clone();
            let defined = default::rope(x, cos, sin, pairing);
            assert_close(fast, defined, 1e-6, &format!("{pairing:?} {half}"));
        }
    }
}

fn rope_table<B: Backend>(t: usize, half: usize, pairing: Pairing) -> RopeTable<B> {
    RopeTable::new(random(9, t * half), random(10, t * half), t, pairing, &Default::default())
}

/// Causal rows and a bidirectional sequence.
pub fn dense_attention<B: Backend>() {
    fn run<B: Backend>(
        f: impl Fn(Tensor<B, 3>, Tensor<B, 3>, Tensor<B, 3>, &[Range<u32>], f32) -> Tensor<B, 3>,
    ) -> Tensor<B, 3> {
        let (device, (t, h, g, d)) = (Default::default(), (12, 6, 2, 32));
        let q = tensor(11, [t, h, d], &device);
        let (k, v) = (tensor(12, [t, g, d], &device), tensor(13, [t, g, d], &device));
        // Two sequences of 5 and 7 rows, the second one bidirectional.
        let visible: Vec<_> = (0..5).map(|i| 0..i + 1).chain((5..12).map(|_| 5..12)).collect();
        f(q, k, v, &visible, 0.25)
    }
    assert_close(run::<B>(B::dense_attention), run::<D>(default::dense_attention), 1e-5, "dense attention");
}

/// What Qwen3 and Mistral 3 do between the projections and the output of attention, over pages of each type.
pub fn paged_attention<B: Backend>() {
    for ty in [KvType::F32, KvType::F16, KvType::BF16, KvType::Q8_0] {
        for qwen3 in [true, false] {
            let (fast, defined) = (attend::<B>(ty, qwen3, false), attend::<D>(ty, qwen3, true));
            // A key next to a rounding boundary may fall to either side of it.
            let limit = match ty {
                KvType::F32 => 1e-5,
                KvType::F16 => 2e-3,
                KvType::BF16 | KvType::Q8_0 => 1e-2,
            };
            assert_close(fast, defined, limit, &format!("{ty:?}, Qwen3: {qwen3}"));
        }
    }
}

/// 20 rows of one sequence with a segment; by the definitions if asked, else by the backend's own operations.
fn attend<B: Backend>(ty: KvType, qwen3: bool, defined: bool) -> Tensor<B, 3> {
    let device = Default::default();
    let (t, h, g, d) = (20, 4, 2, 32);
    let layout = KvLayout::new(ty, 8, g, d).expect("32 divides into q8_0 blocks");
    let table = vec![4u32, 1, 5];
    let slots: Vec<u32> = (0..t as u32).map(|i| ember_models::batch::slot(i, &table, 8)).collect();
    let sequences = [SequenceRows {
        rows: 0..t,
        block_table: table,
        segments: std::iter::once(6..12).collect(),
        ..SequenceRows::default()
    }];
    let norms = HeadNorms { q: tensor(17, [d], &device), k: tensor(18, [d], &device), eps: 1e-6 };
    let query_scale = random(19, t);
    let query_scale = (!qwen3).then_some(query_scale.as_slice());
    let rope = rope_table(t, d / 2, if qwen3 { Pairing::Half } else { Pairing::Adjacent });
    let input = HeadInput {
        q: tensor(16, [t, h, d], &device),
        k: tensor(14, [t, g, d], &device),
        v: tensor(15, [t, g, d], &device),
        norms: qwen3.then_some(norms),
        rope: &rope,
        query_scale,
    };
    if defined {
        let plan = StepPlan { slots: &slots, sequences: &sequences, device: None };
        let mut pages = KvPages::host(layout, 6).expect("small pages");
        let q = default::rotate_and_write(input, &mut pages, layout, &plan);
        return default::paged_attention(q, &pages, layout, &plan, 0.2);
    }
    let plan = B::plan(&slots, &sequences, &rope, query_scale, layout, &device).expect("a small plan");
    let mut pages = B::kv_pages(layout, 6, &device).expect("small pages");
    let q = B::rotate_and_write(input, &mut pages, layout, &plan);
    B::paged_attention(q, &pages, layout, &plan, 0.2)
}

/// The likeliest tokens, ties and numbers that broke down included.
pub fn top_k<B: Backend>() {
    let rows = [[0.5, 2.0, -1.0, 2.0, f32::NEG_INFINITY], [1.0, f32::NAN, 3.0, 2.0, 0.0]];
    let picks = B::top_k(Tensor::from_floats(rows, &Default::default()), 3).expect("a healthy device");
    assert_eq!(picks[0], [(1, 2.0), (3, 2.0), (0, 0.5)]);
    assert_eq!(picks[1][0].0, 1);
    assert!(!picks[1][0].1.is_finite());
    assert_eq!(picks[1][1..], [(2, 3.0), (3, 2.0)]);
    let all = B::top_k(Tensor::from_floats(rows, &Default::default()), 40).expect("a healthy device");
    assert_eq!(all[0].len(), 5);
    assert_eq!(all[0][4], (4, f32::NEG_INFINITY));
}

//! Calls every public operation in every way that chooses another kernel.
use cubecl::prelude::Runtime;
use ember_kernels_cubecl::attention::{Plan, SequencePlan, paged_attention};
use ember_kernels_cubecl::kv::{KvLayout, KvPages, KvType};
use ember_kernels_cubecl::rope::{HeadInput, Pairing, RowTable};
use ember_kernels_cubecl::{
    DeviceMatrix, GgmlType, Gpu, activation, gather, linear, norm, pick, probe, rope,
};
use std::slice::from_ref;

/// Every operation.
pub fn all<R: Runtime>(gpu: &Gpu<R>) {
    element_wise(gpu);
    for ty in GgmlType::ALL {
        products(gpu, ty, ty.block_len().max(32));
    }
    // Rows that are no whole number of loads.
    for ty in [GgmlType::F32, GgmlType::F16, GgmlType::BF16] {
        products(gpu, ty, 20);
    }
    for ty in [KvType::F32, KvType::F16, KvType::BF16, KvType::Q8_0] {
        for heads in HEADS {
            attention(gpu, ty, &heads);
        }
    }
    for k in [1, 64] {
        // In one launch, and in two.
        pick::top_k(gpu, &gpu.empty(1000), 1, k);
        pick::top_k(gpu, &gpu.empty(2 * 151_936), 2, k);
    }
    probe::floor(gpu).expect("nothing runs");
    many_rows(gpu);
}

/// Rows that take more cubes than a grid has in one direction: the variants are none that the others do not choose.
fn many_rows<R: Runtime>(gpu: &Gpu<R>) {
    const ROWS: usize = 65_537;
    norm::rms_norm(gpu, &gpu.empty(ROWS * 200), &gpu.empty(200), 1e-6);
    pick::top_k(gpu, &gpu.empty(ROWS * 200), ROWS, 1);
    // Tiles of 64 rows in f32, and of 128 on matrix units.
    for (ty, tile) in [(GgmlType::F32, 64), (GgmlType::F16, 128)] {
        let zeros = vec![0; ty.row_bytes(1)];
        let matrix = DeviceMatrix::upload(gpu, "zeros", ty, 1, &[&zeros], &mut |_| ()).expect("it is small");
        linear::linear(gpu, &gpu.empty(ROWS * tile), &matrix, 0, &[1]);
    }
    let layout = KvLayout { ty: KvType::F32, block_len: 1, n_kv_heads: 1, head_dim: 2 };
    let pages = KvPages::new(gpu, layout, 1).expect("it is small");
    let (rows, visible) = (16 * ROWS, vec![0..1; 16 * ROWS]);
    let table = RowTable::new(gpu, &[], &[], &vec![0; ROWS], None).expect("it is small");
    let [q, k, v] = [(); 3].map(|()| gpu.empty(2 * ROWS));
    let input = HeadInput { q: &q, k: &k, v: &v, norms: None, pairing: Pairing::Half };
    rope::rotate_and_write(gpu, &input, &table, &pages);
    let sequence = SequencePlan { rows: 0..rows, block_table: &[0], visible: &visible };
    let plan = Plan::new(gpu, &[sequence], layout.block_len).expect("it is small");
    paged_attention(gpu, &gpu.empty(2 * rows), &pages, &plan, 0.1);
}

fn element_wise<R: Runtime>(gpu: &Gpu<R>) {
    let (x, weight) = (gpu.empty(4 * 1024), gpu.empty(1024));
    norm::rms_norm(gpu, &x, &weight, 1e-6);
    norm::add_rms_norm(gpu, &x, &x, &weight, 1e-6);
    activation::swiglu(gpu, &x, &x);
    activation::geglu(gpu, &x, &x);
}

/// Products and look-ups, on both sides of the limits of the tables.
fn products<R: Runtime>(gpu: &Gpu<R>, ty: GgmlType, cols: usize) {
    let most = 8192;
    let bytes = vec![0; most * ty.row_bytes(cols)];
    let matrix = DeviceMatrix::upload(gpu, "zeros", ty, cols, &[&bytes], &mut |_| ()).expect("it is small");
    gather::gather(gpu, &matrix, &gpu.empty(3), 3);
    for tokens in [1, 2, 3, 4, 5, 17, 33, 64, 512] {
        for segments in [&[64, 16, 16][..], &[2048], &[most]] {
            linear::linear(gpu, &gpu.empty(tokens * cols), &matrix, 0, segments);
        }
    }
}

/// Attention heads of a model.
struct Heads {
    queries: usize,
    keys: usize,
    dim: usize,
    rotated: usize,
    pairing: Pairing,
    norms: bool,
    scaled: bool,
}

/// Qwen3; Mistral 3 and Pixtral's decoder; sizes that are no multiple of a plane; the largest.
const HEADS: [Heads; 4] = [
    Heads {
        queries: 16,
        keys: 8,
        dim: 128,
        rotated: 128,
        pairing: Pairing::Half,
        norms: true,
        scaled: false,
    },
    Heads {
        queries: 32,
        keys: 8,
        dim: 128,
        rotated: 128,
        pairing: Pairing::Adjacent,
        norms: false,
        scaled: true,
    },
    Heads { queries: 9, keys: 3, dim: 96, rotated: 32, pairing: Pairing::Half, norms: false, scaled: false },
    Heads {
        queries: 4,
        keys: 4,
        dim: 256,
        rotated: 256,
        pairing: Pairing::Half,
        norms: false,
        scaled: false,
    },
];

fn attention<R: Runtime>(gpu: &Gpu<R>, ty: KvType, heads: &Heads) {
    let &Heads { queries, keys, dim, rotated, pairing, norms, scaled } = heads;
    let layout = KvLayout { ty, block_len: 16, n_kv_heads: keys, head_dim: dim };
    let pages = KvPages::new(gpu, layout, 64).expect("it is small");
    let rows = 8;
    let angles = vec![0.0; rows * rotated / 2];
    let slots: Vec<u32> = (0..rows as u32).collect();
    let table =
        RowTable::new(gpu, &angles, &angles, &slots, scaled.then_some(&[1.0; 8][..])).expect("it is small");
    let (q, k, v) =
        (gpu.empty(rows * queries * dim), gpu.empty(rows * keys * dim), gpu.empty(rows * keys * dim));
    let norm = gpu.empty(dim);
    let input = HeadInput { q: &q, k: &k, v: &v, norms: norms.then_some((&norm, &norm, 1e-6)), pairing };
    let rotated_q = rope::rotate_and_write(gpu, &input, &table, &pages);
    let half = gpu.empty(rows * rotated / 2);
    if rotated == dim {
        rope::rope(gpu, &q, &half, &half, rows, dim, pairing);
    }
    // A short and a long sequence with one row each, and six rows of a third.
    let blocks: Vec<u32> = (0..64).collect();
    let visible: Vec<_> = (0..6).map(|row| 0..row + 1).collect();
    let sequences = [
        SequencePlan { rows: 0..1, block_table: &blocks, visible: from_ref(&(0..5)) },
        SequencePlan { rows: 1..2, block_table: &blocks, visible: from_ref(&(0..1000)) },
        SequencePlan { rows: 2..8, block_table: &blocks, visible: &visible },
    ];
    let plan = Plan::new(gpu, &sequences, layout.block_len).expect("it is small");
    paged_attention(gpu, &rotated_q, &pages, &plan, 0.1);
}

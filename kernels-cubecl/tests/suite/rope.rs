//! Rotary embedding, and rotated heads on their way into the pages.
use crate::device::{TestRuntime, gpu, upload};
use crate::kv_reference::{row_start, stored_words};
use ember_kernels_cubecl::kv::{KvLayout, KvPages, KvType};
use ember_kernels_cubecl::rope::{HeadInput, Pairing, RowTable, rope, rotate_and_write};
use ember_kernels_cubecl::{Gpu, GpuError};
use ember_test_support::{definition, distance, random};

const TYPES: [KvType; 4] = [KvType::F32, KvType::F16, KvType::BF16, KvType::Q8_0];
const EPS: f32 = 1e-3;

/// Heads of a step and what happens to them.
struct Step {
    rows: usize,
    n_heads: usize,
    rotated: usize,
    pairing: Pairing,
    norms: bool,
    scaled: bool,
    layout: KvLayout,
}

/// Everything a step reads.
struct Data {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    cos: Vec<f32>,
    sin: Vec<f32>,
    weights: Vec<f32>,
    scales: Vec<f32>,
    slots: Vec<u32>,
}

impl Step {
    fn data(&self) -> Data {
        let kv = self.rows * self.layout.n_kv_heads * self.layout.head_dim;
        let angles: Vec<f32> = random(4, self.rows * self.rotated / 2).iter().map(|x| 3.0 * x).collect();
        Data {
            q: random(1, self.rows * self.n_heads * self.layout.head_dim),
            k: random(2, kv),
            v: random(3, kv),
            cos: angles.iter().map(|x| x.cos()).collect(),
            sin: angles.iter().map(|x| x.sin()).collect(),
            weights: random(5, 2 * self.layout.head_dim),
            scales: random(6, self.rows),
            slots: (0..self.rows as u32).map(|row| (7 * row + 3) % BLOCKS as u32 * 4 + row % 4).collect(),
        }
    }

    /// Runs the kernel; the queries and the pages.
    fn run(&self, gpu: &Gpu<TestRuntime>, data: &Data) -> (Vec<f32>, KvPages) {
        let pages = KvPages::new(gpu, self.layout, BLOCKS).unwrap();
        let scales = self.scaled.then_some(&data.scales[..]);
        let table = RowTable::new(gpu, &data.cos, &data.sin, &data.slots, scales).unwrap();
        let (q_norm, k_norm) = data.weights.split_at(self.layout.head_dim);
        let (q_norm, k_norm) = (upload(gpu, q_norm), upload(gpu, k_norm));
        let (q, k, v) = (upload(gpu, &data.q), upload(gpu, &data.k), upload(gpu, &data.v));
        let norms = self.norms.then_some((&q_norm, &k_norm, EPS));
        let input = HeadInput { q: &q, k: &k, v: &v, norms, pairing: self.pairing };
        let rotated = rotate_and_write(gpu, &input, &table, &pages);
        (gpu.read_f32(&rotated).unwrap(), pages)
    }

    /// A head normalised and rotated, in f64.
    fn expected(&self, head: &[f32], row: usize, weights: &[f32], data: &Data) -> Vec<f64> {
        let head = if self.norms { definition::rms_norm(head, weights, EPS) } else { wide(head) };
        rotated(head, row, self.rotated, self.pairing, data)
    }
}

const BLOCKS: usize = 5;

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| x.into()).collect()
}

fn rotated(mut x: Vec<f64>, row: usize, rotated: usize, pairing: Pairing, data: &Data) -> Vec<f64> {
    let angles = row * rotated / 2..(row + 1) * rotated / 2;
    let neighbours = pairing == Pairing::Adjacent;
    definition::rotate(&mut x, &data.cos[angles.clone()], &data.sin[angles], neighbours);
    x
}

fn layout(ty: KvType, n_kv_heads: usize, head_dim: usize) -> KvLayout {
    KvLayout { ty, block_len: 4, n_kv_heads, head_dim }
}

#[test]
fn heads_are_rotated_by_either_pairing() {
    let gpu = gpu();
    for (pairing, dim, part) in [
        (Pairing::Half, 128, 128),
        (Pairing::Adjacent, 64, 64),
        (Pairing::Half, 80, 40),
        (Pairing::Adjacent, 50, 12),
    ] {
        let step = Step {
            rows: 5,
            n_heads: 3,
            rotated: part,
            pairing,
            norms: false,
            scaled: false,
            layout: layout(KvType::F32, 1, dim),
        };
        let data = step.data();
        let (q, cos, sin) = (upload(&gpu, &data.q), upload(&gpu, &data.cos), upload(&gpu, &data.sin));
        let y = rope(&gpu, &q, &cos, &sin, step.rows, dim, pairing);
        let heads = data.q.chunks_exact(dim).enumerate();
        let expected: Vec<f64> =
            heads.flat_map(|(i, head)| rotated(wide(head), i / step.n_heads, part, pairing, &data)).collect();
        assert!(distance(&gpu.read_f32(&y).unwrap(), &expected) < 1e-6, "{pairing:?} {dim} {part}");
    }
}

#[test]
fn queries_are_normalised_rotated_and_scaled() {
    let gpu = gpu();
    for (norms, scaled, pairing, n_heads, dim, part) in [
        (true, false, Pairing::Half, 4, 128, 128),
        (false, true, Pairing::Adjacent, 2, 64, 64),
        (true, true, Pairing::Half, 6, 80, 32),
        (false, false, Pairing::Adjacent, 8, 256, 256),
        (true, false, Pairing::Adjacent, 2, 30, 30),
    ] {
        let step = Step {
            rows: 6,
            n_heads,
            rotated: part,
            pairing,
            norms,
            scaled,
            layout: layout(KvType::F32, 2, dim),
        };
        let data = step.data();
        let (queries, pages) = step.run(&gpu, &data);
        let mut expected = Vec::new();
        for (i, head) in data.q.chunks_exact(dim).enumerate() {
            let factor = if scaled { f64::from(data.scales[i / n_heads]) } else { 1.0 };
            let head = step.expected(head, i / n_heads, &data.weights[..dim], &data);
            expected.extend(head.iter().map(|x| x * factor));
        }
        assert!(distance(&queries, &expected) < 1e-6, "queries of {dim}");

        let (k, v) = (gpu.read_f32(&pages.k).unwrap(), gpu.read_f32(&pages.v).unwrap());
        for (i, (key, value)) in data.k.chunks_exact(dim).zip(data.v.chunks_exact(dim)).enumerate() {
            let at = row_start(data.slots[i / 2], i % 2, step.layout);
            let expected = step.expected(key, i / 2, &data.weights[dim..], &data);
            assert!(distance(&k[at..at + dim], &expected) < 1e-6, "key {i} of {dim}");
            assert_eq!(&v[at..at + dim], value, "value {i} of {dim}");
        }
    }
}

/// Values that rounding treats specially: ties, subnormals, overflow.
fn awkward(ty: KvType) -> Vec<f32> {
    let half = |bits: u16| half::f16::from_bits(bits).to_f32();
    let mut values = vec![0.0, -0.0, 1.0, -1.0, 65504.0, 6.1e-5, half(1), half(0x3ff), -half(0x400)];
    for bits in [0u16, 1, 2, 0x3fe, 0x3ff, 0x400, 0x3c00, 0x3c01, 0x7bfe] {
        // The tie between two halves, and its neighbours.
        let tie = (half(bits) + half(bits + 1)) / 2.0;
        values.extend([
            tie,
            -tie,
            f32::from_bits(tie.to_bits() + 1),
            f32::from_bits(tie.to_bits().max(1) - 1),
        ]);
    }
    values.extend([1.0 + 2f32.powi(-8), 1.0 + 3.0 * 2f32.powi(-8), 1.0 + 2f32.powi(-8) + 2f32.powi(-20)]);
    if ty != KvType::Q8_0 {
        values.extend([65519.0, 65520.0, -65520.0, 1e9, f32::INFINITY, f32::NEG_INFINITY, f32::MAX]);
    }
    values.resize(64, 0.37);
    values
}

#[test]
fn values_are_stored_with_the_rounding_of_their_type() {
    let gpu = gpu();
    for (ty, dim) in TYPES.into_iter().flat_map(|ty| [(ty, 32), (ty, 64), (ty, 96), (ty, 256)]) {
        let step = Step {
            rows: 6,
            n_heads: 1,
            rotated: 0,
            pairing: Pairing::Half,
            norms: false,
            scaled: false,
            layout: layout(ty, 2, dim),
        };
        let mut data = step.data();
        let len = data.v.len();
        data.v.splice(..64, awkward(ty));
        data.v[len - dim..].fill(0.0);
        data.k = data.v.iter().map(|x| 0.5 * x).collect();
        let (_, pages) = step.run(&gpu, &data);
        for (pool, rows) in [(&pages.k, &data.k), (&pages.v, &data.v)] {
            let mut expected = vec![0; pool.len];
            for (i, head) in rows.chunks_exact(dim).enumerate() {
                let at = row_start(data.slots[i / 2], i % 2, step.layout);
                expected[at..at + step.layout.row_words()].copy_from_slice(&stored_words(head, step.layout));
            }
            assert_eq!(gpu.read(pool).unwrap(), expected, "{ty:?} {dim}");
        }
    }
}

#[test]
fn nan_stays_nan() {
    let gpu = gpu();
    for ty in TYPES {
        let step = Step {
            rows: 1,
            n_heads: 1,
            rotated: 0,
            pairing: Pairing::Half,
            norms: false,
            scaled: false,
            layout: layout(ty, 1, 64),
        };
        let mut data = step.data();
        (data.v[5], data.v[6]) = (f32::NAN, f32::from_bits(0xffff_ffff));
        let (_, pages) = step.run(&gpu, &data);
        let at = row_start(data.slots[0], 0, step.layout);
        let row = &gpu.read(&pages.v).unwrap()[at..at + step.layout.row_words()];
        let values = crate::kv_reference::read_row(row, step.layout);
        assert!(values[5].is_nan() && values[6].is_nan(), "{ty:?}: {values:?}");
        // The rest of a row is not touched, except that a q8_0 block has one step.
        assert!(values[32..].iter().all(|x| !x.is_nan()), "{ty:?}: {values:?}");
    }
}

#[test]
fn pages_and_tables_that_cannot_be_are_refused() {
    let gpu = gpu();
    let refused = KvPages::new(&gpu, layout(KvType::F32, 8, 128), 1 << 20);
    assert!(matches!(refused, Err(GpuError::TooLarge { .. })), "{refused:?}");
    for (ty, dim) in [(KvType::Q8_0, 80), (KvType::F16, 33), (KvType::F16, 0), (KvType::F32, 512)] {
        let refused = KvPages::new(&gpu, layout(ty, 1, dim), 1);
        assert!(matches!(refused, Err(GpuError::Invalid(_))), "{ty:?} {dim}: {refused:?}");
    }
    let refused = RowTable::new(&gpu, &[1.0; 6], &[0.0; 5], &[0, 1], None);
    assert!(matches!(refused, Err(GpuError::Invalid(_))), "{refused:?}");
}

//! Operations of a backend against their definitions, which run on ndarray tensors: for the tests, and for a look at a
//! device that no test has met.
pub use super::not_finite::products as broken_products;

use super::definitions::{self, Values};
use super::{Backend, HeadInput, HeadNorms, KvLayout, Pairing, not_finite};
use crate::batch::{SequenceRows, slot};
use crate::error::ModelError;
use crate::kv_cache::KvPages;
use crate::layers::rope::RopeTable;
use crate::packed::PackedMatrix;
use crate::step::Step;
use burn::tensor::{Tensor, TensorData};
use ember_formats::sample::{Random, random, sample_blocks};
use ember_kernels_cpu::kv::KvType;
use ember_loaders::checkpoint::WeightTensor;
use ember_loaders::gguf::{GgmlType, MappedBytes};
use std::fmt;
use std::ops::Range;

/// One comparison.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Operation and shape.
    pub what: String,
    /// Largest difference over largest magnitude.
    pub error: f32,
    /// The bound of the error.
    pub limit: f32,
}

impl Finding {
    /// True when the operation does what its definition says; NaN is not below anything.
    pub fn holds(&self) -> bool {
        self.error < self.limit
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, error, limit } = self;
        write!(f, "{what}: off by {error:.1e}, {limit:.0e} allowed")
    }
}

/// The receiver of findings.
pub type Report<'a> = &'a mut dyn FnMut(Finding);

/// Every operation of backend `B` on shapes that are no multiple of anything.
///
/// # Errors
/// [`ModelError::Device`] when the device fails.
pub fn operations<B: Backend>(device: &B::Device, report: Report<'_>) -> Result<(), ModelError> {
    let matrices = [(1, 48), (2, 33)].map(|(seed, rows)| random_matrix(GgmlType::F32, seed, rows, 64));
    products::<B>(&matrices, &[1, 2, 3, 5, 17], 1e-5, device, report)?;
    dense_products::<B>(device, report)?;
    norms_and_gates::<B>(device, report)?;
    rope::<B>(device, report)?;
    unpaged_attention::<B>(device, report)?;
    paged_attention::<B>(device, report)?;
    top_k::<B>(device, report)?;
    not_finite::operations::<B>(device, report)
}

/// Products with `matrices` side by side and with one of them alone, for each number of rows.
///
/// # Errors
/// [`ModelError::Device`] when the device fails.
pub fn products<B: Backend>(
    matrices: &[PackedMatrix],
    rows: &[usize],
    limit: f32,
    device: &B::Device,
    report: Report<'_>,
) -> Result<(), ModelError> {
    let (cols, ty) = (matrices[0].cols(), matrices[0].ty().name());
    let placed = B::place("a test matrix", matrices.to_vec(), device, &mut |_| ())?;
    let all: Vec<usize> = (0..matrices.len()).collect();
    for &t in rows {
        for which in [&all[..], &all[all.len() - 1..]] {
            let x = random(3, t * cols);
            let fast = B::packed_linear(on(&x, [t, cols], device), &pick(&placed, which));
            let defined = definitions::packed_linear(&x, [t, cols], &pick(matrices, which));
            for ((fast, defined), &i) in fast.into_iter().zip(defined).zip(which) {
                let what = format!("{ty} product, {t} x {cols} x {}", matrices[i].rows());
                compare(what, fast, defined, limit, report)?;
            }
        }
    }
    let ids = [matrices[0].rows() as u32 - 1, 0, 0];
    let fast = B::packed_lookup(&placed[0], &ids, device);
    let defined = definitions::packed_lookup(&matrices[0], &ids);
    compare(format!("{ty} rows"), fast, defined, 1e-6, report)
}

fn pick<'a>(matrices: &'a [PackedMatrix], which: &[usize]) -> Vec<&'a PackedMatrix> {
    which.iter().map(|&i| &matrices[i]).collect()
}

/// Products with a weight that is a tensor, rows of whole groups of eight elements and not.
fn dense_products<B: Backend>(device: &B::Device, report: Report<'_>) -> Result<(), ModelError> {
    for (t, cols, out) in [(1, 64, 33), (17, 64, 33), (5, 43, 20)] {
        let (x, weight) = (random(21, t * cols), random(22, out * cols));
        let fast = B::dense_linear(on(&x, [t, cols], device), on(&weight, [out, cols], device));
        let defined = definitions::dense_linear(&x, [t, cols], &weight, out);
        compare(format!("dense product, {t} x {cols} x {out}"), fast, defined, 1e-5, report)?;
    }
    Ok(())
}

/// RMSNorm with and without a residual, SwiGLU and GEGLU.
fn norms_and_gates<B: Backend>(device: &B::Device, report: Report<'_>) -> Result<(), ModelError> {
    for dim in [8, 40, 129, 1024] {
        let (x, y, weight) = (random(5, 6 * dim), random(6, 6 * dim), random(7, dim));
        let (fx, fy, fw) = (on(&x, [6, dim], device), on(&y, [6, dim], device), on(&weight, [dim], device));
        let shape = [6, dim];
        let fast = B::rms_norm(fx, fw, 1e-5);
        let defined = definitions::rms_norm(&x, shape, &weight, 1e-5);
        compare(format!("RMSNorm of {dim}"), fast, defined, 1e-6, report)?;
        let (fx, fw) = (on(&x, shape, device), on(&weight, [dim], device));
        let (sum, normed) = B::add_rms_norm(fx, fy, fw, 1e-5);
        compare(format!("residual of {dim}"), sum, definitions::sum(&x, &y, shape), 1e-7, report)?;
        let defined = definitions::add_rms_norm(&x, &y, shape, &weight, 1e-5);
        compare(format!("RMSNorm of a sum of {dim}"), normed, defined, 1e-6, report)?;
        let fast = B::swiglu(on(&x, shape, device), on(&y, shape, device));
        compare(format!("SwiGLU of {dim}"), fast, definitions::swiglu(&x, &y, shape), 1e-6, report)?;
        let fast = B::geglu(on(&x, shape, device), on(&y, shape, device));
        compare(format!("GEGLU of {dim}"), fast, definitions::geglu(&x, &y, shape), 1e-6, report)?;
    }
    Ok(())
}

/// Both pairings, whole and partial width.
fn rope<B: Backend>(device: &B::Device, report: Report<'_>) -> Result<(), ModelError> {
    let x = random(8, 5 * 3 * 32);
    for pairing in [Pairing::Adjacent, Pairing::Half] {
        for half in [16, 10] {
            let fast = rope_table::<B>(5, half, pairing, device).apply(on(&x, [5, 3, 32], device));
            let defined = definitions::rope(&x, [5, 3, 32], rope_table, half, pairing);
            compare(format!("RoPE of {} in {pairing:?} pairs", 2 * half), fast, defined, 1e-6, report)?;
        }
    }
    Ok(())
}

pub(super) fn rope_table<B: Backend>(
    t: usize,
    half: usize,
    pairing: Pairing,
    device: &B::Device,
) -> RopeTable<B> {
    RopeTable::new(random(9, t * half), random(10, t * half), t, pairing, device)
}

/// Causal rows and a bidirectional sequence.
fn unpaged_attention<B: Backend>(device: &B::Device, report: Report<'_>) -> Result<(), ModelError> {
    let (t, h, g, d) = (12, 6, 2, 32);
    let (q, k, v) = (random(11, t * h * d), random(12, t * g * d), random(13, t * g * d));
    // Two sequences of 5 and 7 rows, the second one bidirectional.
    let visible: Vec<Range<u32>> = (0..5).map(|i| 0..i + 1).chain((5..12).map(|_| 5..12)).collect();
    let fast = B::unpaged_attention(
        on(&q, [t, h, d], device),
        on(&k, [t, g, d], device),
        on(&v, [t, g, d], device),
        &visible,
        0.25,
    );
    let defined = definitions::unpaged_attention([&q, &k, &v], [[t, h, d], [t, g, d]], &visible, 0.25);
    compare("attention without a cache".to_owned(), fast, defined, 1e-5, report)
}

/// Qwen3's and Mistral 3's operations between the projections and the output of attention, over pages of each type, for
/// a prompt with a segment and for single rows after it.
fn paged_attention<B: Backend>(device: &B::Device, report: Report<'_>) -> Result<(), ModelError> {
    for ty in [KvType::F32, KvType::F16, KvType::BF16, KvType::Q8_0] {
        for qwen3 in [true, false] {
            let pages = |layout, n_blocks| B::kv_pages(layout, n_blocks, device);
            let fast = attend::<B>(ty, qwen3, None, pages, attention_of_backend, device)?;
            let defined = definitions::attention(ty, qwen3, None)?;
            // A key next to a rounding boundary may fall to either side of it.
            let limit = match ty {
                KvType::F32 => 1e-5,
                KvType::F16 => 2e-3,
                KvType::BF16 | KvType::Q8_0 => 1e-2,
            };
            let family = if qwen3 { "Qwen3" } else { "Mistral 3" };
            for ((fast, defined), step) in fast.into_iter().zip(defined).zip(["a prompt", "single rows"]) {
                compare(format!("attention of {family} over {ty:?}, {step}"), fast, defined, limit, report)?;
            }
        }
    }
    Ok(())
}

/// A way from the projections of a step's rows to the output of attention.
pub(super) type Attention<B> = fn(HeadInput<B>, &mut KvPages, &Step<'_, B>) -> Tensor<B, 3>;

/// By the backend's own operations.
pub(super) fn attention_of_backend<B: Backend>(
    heads: HeadInput<B>,
    pages: &mut KvPages,
    step: &Step<'_, B>,
) -> Tensor<B, 3> {
    let q = B::rotate_and_write(heads, pages, step);
    B::paged_attention(q, pages, step, 0.2)
}

/// 20 rows of one sequence with a segment, then one more. What is `broken` is an element of a query, and of one head of a key
/// and of a value that the later rows see.
pub(super) fn attend<B: Backend>(
    ty: KvType,
    qwen3: bool,
    broken: Option<f32>,
    pages: impl FnOnce(KvLayout, usize) -> Result<KvPages, ModelError>,
    attention: Attention<B>,
    device: &B::Device,
) -> Result<[Tensor<B, 3>; 2], ModelError> {
    let (n_rows, h, g, d) = (21, 4, 2, 32);
    let layout = KvLayout::new(ty, 8, g, d).expect("32 divides into q8_0 blocks");
    let table = vec![4u32, 1, 5];
    let slots: Vec<u32> = (0..n_rows as u32).map(|i| slot(i, &table, 8)).collect();
    let mut pages = pages(layout, 6)?;
    let pairing = if qwen3 { Pairing::Half } else { Pairing::Adjacent };
    let query_scale = random(19, n_rows);
    let mut step = |rows: Range<usize>| -> Result<Tensor<B, 3>, ModelError> {
        let (start, t) = (rows.start, rows.len());
        let sequences = [SequenceRows {
            rows: 0..t,
            kv_start: start as u32,
            block_table: table.clone(),
            segments: std::iter::once(6..12).collect(),
            ..SequenceRows::default()
        }];
        let part = |seed, heads: usize, broken_row: usize| {
            let mut all = random(seed, n_rows * heads * d);
            broken.into_iter().for_each(|value| all[(broken_row * heads + heads - 1) * d + 3] = value);
            all[start * heads * d..][..t * heads * d].to_vec()
        };
        let query_scale = (!qwen3).then(|| query_scale[rows.clone()].to_vec());
        let rope = rope_table(t, d / 2, pairing, device);
        let norm = |seed| on(&random(seed, d), [d], device);
        let heads = HeadInput {
            q: on(&part(16, h, 2), [t, h, d], device),
            k: on(&part(14, g, 17), [t, g, d], device),
            v: on(&part(15, g, 14), [t, g, d], device),
            norms: qwen3.then(|| HeadNorms { q: norm(17), k: norm(18), eps: 1e-6 }),
        };
        let step = Step::over_pages(rope, query_scale, &slots[rows], &sequences, layout, device)?;
        Ok(attention(heads, &mut pages, &step))
    };
    Ok([step(0..20)?, step(20..21)?])
}

/// The likeliest tokens, with ties, more than there are, and numbers that broke down.
fn top_k<B: Backend>(device: &B::Device, report: Report<'_>) -> Result<(), ModelError> {
    let row = [0.5, 2.0, -1.0, 2.0, f32::NEG_INFINITY];
    let broken = [1.0, f32::NAN, 3.0, 2.0, 0.0];
    let logits = [row, broken].concat();
    for k in [1, 3, 40] {
        let picks = B::top_k(on(&logits, [2, 5], device), k)?;
        let defined = definitions::top_k(&logits, [2, 5], k)?;
        // NaN is not equal to itself, its position is.
        let same = picks.len() == 2
            && picks[0] == defined[0]
            && picks[1].iter().map(|pick| pick.0).eq(defined[1].iter().map(|pick| pick.0))
            && !picks[1][0].1.is_finite();
        let error = if same { 0.0 } else { f32::INFINITY };
        report(Finding { what: format!("the {k} likeliest tokens"), error, limit: 1e-6 });
    }
    // More than kernels sort.
    let logits = random(20, 300);
    let picks = B::top_k(on(&logits, [2, 150], device), 100)?;
    let defined = definitions::top_k(&logits, [2, 150], 100)?;
    let error = if picks == defined { 0.0 } else { f32::INFINITY };
    report(Finding { what: "the 100 likeliest tokens".to_owned(), error, limit: 1e-6 });
    Ok(())
}

/// A matrix of seeded blocks.
pub fn random_matrix(ty: GgmlType, seed: u64, rows: usize, cols: usize) -> PackedMatrix {
    let blocks = rows * ty.row_bytes(cols) / ty.block_bytes();
    let bytes = sample_blocks(ty, blocks, &mut Random::new(seed));
    let (name, dims) = ("w".to_owned(), vec![cols, rows]);
    PackedMatrix::new(&WeightTensor { name, ty, dims, bytes: MappedBytes::from_vec(bytes) })
}

fn compare<B: Backend, const N: usize>(
    what: String,
    fast: Tensor<B, N>,
    defined: Values,
    limit: f32,
    report: Report<'_>,
) -> Result<(), ModelError> {
    let fast = Values::read(fast)?;
    let same_shape = fast.shape == defined.shape;
    let error = if same_shape { largest_error(&fast.elements, &defined.elements) } else { f32::INFINITY };
    report(Finding { what, error, limit });
    Ok(())
}

/// The largest difference over the largest magnitude; NaN if any number is NaN, or both are infinite.
fn largest_error(fast: &[f32], defined: &[f32]) -> f32 {
    // NaN is the largest of the total order, while `f32::max` would drop it.
    let largest = |values: &mut dyn Iterator<Item = f32>| {
        values.map(f32::abs).max_by(f32::total_cmp).unwrap_or(f32::NAN)
    };
    let differences = &mut fast.iter().zip(defined).map(|(a, b)| a - b);
    largest(differences) / largest(&mut defined.iter().copied())
}

pub(super) fn on<B: Backend, const N: usize>(
    values: &[f32],
    shape: [usize; N],
    device: &B::Device,
) -> Tensor<B, N> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), device)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(fast: &[f32], defined: &[f32]) -> bool {
        Finding { what: String::new(), error: largest_error(fast, defined), limit: 1e-3 }.holds()
    }

    #[test]
    fn numbers_that_broke_down_do_not_hold() {
        let defined = [1.0, -4.0, 2.0];
        assert_eq!(largest_error(&[1.0, -4.0, 3.0], &defined), 0.25);
        assert!(holds(&[1.0, -4.001, 2.0], &defined));
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in 0..3 {
                let mut broken = defined;
                broken[at] = bad;
                assert!(!holds(&broken, &defined) && !holds(&defined, &broken), "{bad} at {at}");
                assert!(!holds(&broken, &broken), "{bad} at {at} of both");
            }
        }
        assert!(!holds(&[], &[]), "nothing was compared");
    }
}

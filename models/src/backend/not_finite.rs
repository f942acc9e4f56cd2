//! Operations of a backend on NaN and infinities: they come out where the definitions give them and nowhere else.
//!
//! Which of NaN and infinity an element is depends on the order of a sum: they count as the same. What a row does not see
//! never breaks it.
use super::conformance::{Finding, Report, attend, attention_of_backend, on, random_matrix, rope_table};
use super::definitions::{self, Values};
use super::{Backend, Pairing};
use crate::error::ModelError;
use crate::packed::PackedMatrix;
use burn::tensor::Tensor;
use ember_formats::sample::random;
use ember_kernels_cpu::kv::KvType;
use ember_loaders::gguf::GgmlType;
use std::ops::Range;

const BROKEN: [f32; 3] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];

/// Seeded numbers, of which those at `places` are broken, each in another way.
fn broken(seed: u64, n: usize, places: &[usize]) -> Vec<f32> {
    let mut values = random(seed, n);
    for (&place, value) in places.iter().zip(BROKEN.into_iter().cycle()) {
        values[place] = value;
    }
    values
}

/// Every operation but products with packed matrices, which are [`products`].
pub(super) fn operations<B: Backend>(device: &B::Device, report: Report<'_>) -> Result<(), ModelError> {
    dense_products::<B>(device, report)?;
    norms_and_gates::<B>(device, report)?;
    rope::<B>(device, report)?;
    unpaged_attention::<B>(device, report)?;
    paged_attention::<B>(device, report)
}

/// Products and rows of a matrix of `ty` with broken scales, and with broken rows of `x`.
///
/// # Errors
/// [`ModelError::Device`] when the device fails.
pub fn products<B: Backend>(
    ty: GgmlType,
    rows: &[usize],
    limit: f32,
    device: &B::Device,
    report: Report<'_>,
) -> Result<(), ModelError> {
    let (out, cols) = (21, 512);
    let matrix = broken_matrix(ty, out, cols);
    let placed = B::place("a broken test matrix", vec![matrix.clone()], device, &mut |_| ())?;
    for &t in rows {
        // The first row is sound, and of the others every second.
        let places: Vec<usize> = (1..t).step_by(2).map(|row| row * cols + 7).collect();
        let x = broken(1, t * cols, &places);
        let fast = B::packed_linear(on(&x, [t, cols], device), &[&placed[0]]).remove(0);
        let defined = definitions::packed_linear(&x, [t, cols], &[&matrix]).remove(0);
        compare(format!("{ty} product, {t} x {cols} x {out}"), fast, &defined, limit, report)?;
    }
    let ids: Vec<u32> = (0..out as u32).collect();
    let fast = B::packed_lookup(&placed[0], &ids, device);
    compare(format!("{ty} rows"), fast, &definitions::packed_lookup(&matrix, &ids), 1e-6, report)
}

/// A matrix whose every fourth row is broken: in a scale, or where the type has none, in an element.
fn broken_matrix(ty: GgmlType, rows: usize, cols: usize) -> PackedMatrix {
    let sound = random_matrix(ty, 5, rows, cols);
    let mut bytes = sound.bytes().to_vec();
    // Infinity, either NaN, and -infinity in the upper bits of the float that is broken.
    for (i, row) in bytes.chunks_exact_mut(ty.row_bytes(cols)).skip(1).step_by(4).enumerate() {
        let half: u16 = [0x7c00, 0x7e00, 0xfc01, 0xfc00, 0x7c00][i % 5];
        let wide: u16 = [0x7f80, 0x7fc0, 0xff81, 0xff80, 0x7f80][i % 5];
        let block = &mut row[i % 2 * ty.block_bytes()..][..ty.block_bytes()];
        let (at, bits) = match ty {
            GgmlType::F32 => (2, wide),
            GgmlType::BF16 => (0, wide),
            _ => (ty.scale_offsets().get(i % 2).or(ty.scale_offsets().first()).map_or(0, |&at| at), half),
        };
        block[at..at + 2].copy_from_slice(&bits.to_le_bytes());
    }
    PackedMatrix::new(&ember_loaders::checkpoint::WeightTensor {
        name: "w".to_owned(),
        ty,
        dims: vec![cols, rows],
        bytes: ember_loaders::gguf::MappedBytes::from_vec(bytes),
    })
}

fn dense_products<B: Backend>(device: &B::Device, report: Report<'_>) -> Result<(), ModelError> {
    for (t, cols, out) in [(2, 64, 33), (17, 43, 20)] {
        let x = broken(2, t * cols, &[cols + 3]);
        let weight = broken(3, out * cols, &[5, 9 * cols, 12 * cols + 40]);
        let fast = B::dense_linear(on(&x, [t, cols], device), on(&weight, [out, cols], device));
        let defined = definitions::dense_linear(&x, [t, cols], &weight, out);
        compare(format!("dense product, {t} x {cols} x {out}"), fast, &defined, 1e-5, report)?;
    }
    Ok(())
}

fn norms_and_gates<B: Backend>(device: &B::Device, report: Report<'_>) -> Result<(), ModelError> {
    let shape @ [rows, dim] = [6, 129];
    let x = broken(4, rows * dim, &[0, dim + 40, 3 * dim + 128]);
    let y = broken(5, rows * dim, &[50, 4 * dim + 7]);
    let sound = random(6, dim);
    let weights = [sound, broken(6, dim, &[1, 2, 3])];
    for weight in weights {
        let fast = B::rms_norm(on(&x, shape, device), on(&weight, [dim], device), 1e-5);
        compare("RMSNorm".to_owned(), fast, &definitions::rms_norm(&x, shape, &weight, 1e-5), 1e-6, report)?;
        let (fx, fy) = (on(&x, shape, device), on(&y, shape, device));
        let (sum, normed) = B::add_rms_norm(fx, fy, on(&weight, [dim], device), 1e-5);
        compare("a residual".to_owned(), sum, &definitions::sum(&x, &y, shape), 1e-7, report)?;
        let defined = definitions::add_rms_norm(&x, &y, shape, &weight, 1e-5);
        compare("RMSNorm of a sum".to_owned(), normed, &defined, 1e-6, report)?;
    }
    let fast = B::swiglu(on(&x, shape, device), on(&y, shape, device));
    compare("SwiGLU".to_owned(), fast, &definitions::swiglu(&x, &y, shape), 1e-6, report)?;
    let fast = B::geglu(on(&x, shape, device), on(&y, shape, device));
    compare("GEGLU".to_owned(), fast, &definitions::geglu(&x, &y, shape), 1e-6, report)
}

fn rope<B: Backend>(device: &B::Device, report: Report<'_>) -> Result<(), ModelError> {
    let x = broken(7, 5 * 3 * 32, &[3, 70, 150, 190, 331]);
    for pairing in [Pairing::Adjacent, Pairing::Half] {
        let fast = rope_table::<B>(5, 10, pairing, device).apply(on(&x, [5, 3, 32], device));
        let defined = definitions::rope(&x, [5, 3, 32], rope_table, 10, pairing);
        compare(format!("RoPE in {pairing:?} pairs"), fast, &defined, 1e-6, report)?;
    }
    Ok(())
}

/// Causal rows, of which the later ones see what is broken, and a bidirectional sequence, of which one head does.
fn unpaged_attention<B: Backend>(device: &B::Device, report: Report<'_>) -> Result<(), ModelError> {
    let (t, h, g, d) = (24, 4, 2, 32);
    let visible: Vec<Range<u32>> = (0..14).map(|i| 0..i + 1).chain((14..24).map(|_| 14..24)).collect();
    let entry = |row: usize, head: usize| (row * g + head) * d + 5;
    let q = broken(8, t * h * d, &[4 * h * d]);
    let k = broken(9, t * g * d, &[entry(9, 1), entry(20, 0)]);
    let v = broken(10, t * g * d, &[entry(11, 0), entry(13, 0), entry(23, 1)]);
    let shapes = [[t, h, d], [t, g, d]];
    let defined = definitions::unpaged_attention([&q, &k, &v], shapes, &visible, 0.25);
    let (k, v) = (on(&k, shapes[1], device), on(&v, shapes[1], device));
    let fast = B::unpaged_attention(on(&q, shapes[0], device), k, v, &visible, 0.25);
    compare("attention without a cache".to_owned(), fast, &defined, 1e-5, report)
}

fn paged_attention<B: Backend>(device: &B::Device, report: Report<'_>) -> Result<(), ModelError> {
    for ty in KvType::ALL {
        for (qwen3, broken) in [true, false].into_iter().flat_map(|qwen3| BROKEN.map(|value| (qwen3, value)))
        {
            let pages = |layout, n_blocks| B::kv_pages(layout, n_blocks, device);
            let fast = attend::<B>(ty, qwen3, Some(broken), pages, attention_of_backend, device)?;
            let defined = definitions::attention(ty, qwen3, Some(broken))?;
            let limit = if ty == KvType::F32 { 1e-5 } else { 1e-2 };
            for ((fast, defined), step) in fast.into_iter().zip(defined).zip(["a prompt", "single rows"]) {
                let what = format!("attention over {ty}, norms: {qwen3}, {step}, {broken}");
                compare(what, fast, &defined, limit, report)?;
            }
        }
    }
    Ok(())
}

fn compare<B: Backend, const N: usize>(
    what: String,
    fast: Tensor<B, N>,
    defined: &Values,
    limit: f32,
    report: Report<'_>,
) -> Result<(), ModelError> {
    let fast = Values::read(fast)?;
    let same_shape = fast.shape == defined.shape;
    let error = if same_shape { error(&fast.elements, &defined.elements) } else { f32::INFINITY };
    report(Finding { what: format!("{what}, with NaN and infinities"), error, limit });
    Ok(())
}

/// The largest difference of what is finite over its largest magnitude; infinite where only one of both is finite, or nothing
/// of them, or all.
fn error(fast: &[f32], defined: &[f32]) -> f32 {
    let pairs = || fast.iter().zip(defined);
    let finite = || pairs().filter(|(_, defined)| defined.is_finite());
    let alike = pairs().all(|(fast, defined)| fast.is_finite() == defined.is_finite());
    if !alike || [0, defined.len()].contains(&finite().count()) {
        return f32::INFINITY;
    }
    let largest = finite().fold(f32::MIN_POSITIVE, |largest, (_, defined)| largest.max(defined.abs()));
    finite().fold(0.0, |error: f32, (fast, defined)| error.max((fast - defined).abs() / largest))
}

#[cfg(test)]
mod tests {
    use super::error;

    #[test]
    fn what_breaks_elsewhere_is_seen() {
        let defined = [1.0, f32::NAN, -4.0];
        assert_eq!(error(&[1.0, f32::INFINITY, -3.0], &defined), 0.25);
        for fast in [[1.0, 0.0, -4.0], [f32::NAN, f32::NAN, -4.0], [1.0, f32::NAN, f32::INFINITY]] {
            assert_eq!(error(&fast, &defined), f32::INFINITY, "{fast:?}");
        }
        assert_eq!(error(&[1.0], &[1.0]), f32::INFINITY, "nothing was broken");
        assert_eq!(error(&[f32::NAN], &[f32::NAN]), f32::INFINITY, "nothing was sound");
    }
}

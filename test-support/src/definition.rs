//! Operations as their definitions say: plain loops in f64, which share no code with what they check.
use crate::Real;
use half::f16;

/// `Σ a b`.
pub fn dot(a: &[impl Real], b: &[impl Real]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(&a, &b)| a.into() * b.into()).sum()
}

/// `x · Wᵀ`: `[m, cols]` times rows of `weights` `[rows, cols]`, giving `[m, rows]`.
pub fn product(x: &[impl Real], weights: &[impl Real], cols: usize) -> Vec<f64> {
    x.chunks_exact(cols).flat_map(|x| weights.chunks_exact(cols).map(move |w| dot(x, w))).collect()
}

/// `x / sqrt(mean(x²) + eps) * weight` of each row of `weight.len()` elements.
pub fn rms_norm<T: Real>(x: &[T], weight: &[f32], eps: f32) -> Vec<f64> {
    let row = |row: &[T]| {
        let factor = (dot(row, row) / row.len() as f64 + f64::from(eps)).sqrt().recip();
        row.iter().zip(weight).map(|(&x, &w)| x.into() * factor * f64::from(w)).collect::<Vec<f64>>()
    };
    x.chunks_exact(weight.len()).flat_map(row).collect()
}

/// Rotates pairs of a head's first `2 * cos.len()` elements: neighbours, or one of each half.
pub fn rotate(head: &mut [f64], cos: &[f32], sin: &[f32], neighbours: bool) {
    assert_eq!(cos.len(), sin.len());
    let half = cos.len();
    for (i, (&cos, &sin)) in cos.iter().zip(sin).enumerate() {
        let (cos, sin) = (f64::from(cos), f64::from(sin));
        let (a, b) = if neighbours { (2 * i, 2 * i + 1) } else { (i, i + half) };
        (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[a] * sin + head[b] * cos);
    }
}

/// Blocks of 32 values as q8_0 keeps them: the largest magnitude over 127 in f16, and the values in steps of it. NaN is the
/// largest of all; a block that holds it, or an infinity, reads back as NaN throughout.
pub fn q8_0(values: &[f32]) -> Vec<(f16, [i8; 32])> {
    let block = |block: &[f32; 32]| {
        let largest = block.iter().map(|x| x.abs()).max_by(f32::total_cmp).expect("a block has elements");
        let step = largest / 127.0;
        let inverse = if step == 0.0 { 0.0 } else { 1.0 / step };
        (f16::from_f32(step), block.map(|x| (x * inverse).round() as i8))
    };
    let (blocks, rest) = values.as_chunks();
    assert!(rest.is_empty(), "{} values are no whole blocks", values.len());
    blocks.iter().map(block).collect()
}

/// [`q8_0`] as the bytes of a GGUF file.
pub fn q8_0_bytes(values: &[f32]) -> Vec<u8> {
    let bytes =
        |(step, codes): (f16, [i8; 32])| step.to_le_bytes().into_iter().chain(codes.map(|code| code as u8));
    q8_0(values).into_iter().flat_map(bytes).collect()
}

/// `softmax(scale q · k) v` of one head over `(key, value)` entries; zeros where there are none.
pub fn attend(q: &[f32], entries: &[(&[f32], &[f32])], scale: f32) -> Vec<f64> {
    let scores: Vec<f64> = entries.iter().map(|(key, _)| f64::from(scale) * dot(q, key)).collect();
    let largest = scores.iter().copied().fold(f64::MIN, f64::max);
    let total: f64 = scores.iter().map(|score| (score - largest).exp()).sum();
    let mut out = vec![0.0; q.len()];
    for ((_, value), score) in entries.iter().zip(scores) {
        let weight = (score - largest).exp() / total;
        out.iter_mut().zip(*value).for_each(|(out, &v)| *out += weight * f64::from(v));
    }
    out
}

//! The definitions of the operations, in ordinary Burn tensor operations.
use super::{Backend, HeadInput, Pairing, TopK, read};
use crate::error::ModelError;
use crate::kv_cache::{KvPages, read_entries};
use crate::packed::PackedMatrix;
use crate::step::Step;
use burn::tensor::{Bool, Tensor, TensorData, activation::softmax};
use ember_kernels_cpu::kv;
use std::ops::Range;

/// See [`Backend::packed_linear`].
pub fn packed_linear<B: Backend>(x: Tensor<B, 2>, weights: &[&PackedMatrix]) -> Vec<Tensor<B, 2>> {
    let one = |weight: &&PackedMatrix| {
        let values =
            TensorData::new(weight.dequantize_rows(0..weight.rows()), [weight.rows(), weight.cols()]);
        x.clone().matmul(Tensor::from_data(values, &x.device()).transpose())
    };
    weights.iter().map(one).collect()
}

/// See [`Backend::packed_lookup`].
pub fn packed_lookup<B: Backend>(table: &PackedMatrix, ids: &[u32], device: &B::Device) -> Tensor<B, 2> {
    Tensor::from_data(TensorData::new(table.gather(ids), [ids.len(), table.cols()]), device)
}

/// See [`Backend::rms_norm`].
pub fn rms_norm<B: Backend>(x: Tensor<B, 2>, weight: Tensor<B, 1>, eps: f32) -> Tensor<B, 2> {
    let mean_square = x.clone().square().mean_dim(1);
    x / (mean_square + eps).sqrt() * weight.unsqueeze()
}

/// See [`Backend::rope`].
pub fn rope<B: Backend>(
    x: Tensor<B, 3>,
    cos: Tensor<B, 2>,
    sin: Tensor<B, 2>,
    pairing: Pairing,
) -> Tensor<B, 3> {
    let [t, heads, dim] = x.dims();
    let half = cos.dims()[1];
    let rotated = x.clone().narrow(2, 0, 2 * half);
    // Both pairings as `[t, heads, first | second element of the pair, half]`.
    let pairs = match pairing {
        Pairing::Half => rotated.reshape([t, heads, 2, half]),
        Pairing::Adjacent => rotated.reshape([t, heads, half, 2]).swap_dims(2, 3),
    };
    let (a, b) = (pairs.clone().narrow(2, 0, 1), pairs.narrow(2, 1, 1));
    let (cos, sin) = (cos.reshape([t, 1, 1, half]), sin.reshape([t, 1, 1, half]));
    let first = a.clone() * cos.clone() - b.clone() * sin.clone();
    let second = a * sin + b * cos;
    let turned = Tensor::cat(vec![first, second], 2);
    let turned = match pairing {
        Pairing::Half => turned,
        Pairing::Adjacent => turned.swap_dims(2, 3),
    };
    let turned = turned.reshape([t, heads, 2 * half]);
    if 2 * half == dim { turned } else { Tensor::cat(vec![turned, x.narrow(2, 2 * half, dim - 2 * half)], 2) }
}

/// See [`Backend::unpaged_attention`].
pub fn unpaged_attention<B: Backend>(
    q: Tensor<B, 3>,
    k: Tensor<B, 3>,
    v: Tensor<B, 3>,
    visible: &[Range<u32>],
    scale: f32,
) -> Tensor<B, 3> {
    let mut outputs = Vec::new();
    let mut start = 0;
    // Rows that begin at the same key form a sequence: nothing outside it is ever multiplied.
    for group in visible.chunk_by(|a, b| a.start == b.start) {
        let rows = start..start + group.len();
        start = rows.end;
        let keys = group[0].start as usize..group.iter().map(|range| range.end).max().unwrap_or(0) as usize;
        let (k, v) = (k.clone().slice([keys.clone()]), v.clone().slice([keys.clone()]));
        outputs.push(one_sequence(q.clone().slice([rows]), k, v, group, scale));
    }
    Tensor::cat(outputs, 0)
}

/// `q` `[t, h, d]` against `k`, `v` `[s, g, d]`; key `j` of the slice is entry `visible[..].start + j`.
fn one_sequence<B: Backend>(
    q: Tensor<B, 3>,
    k: Tensor<B, 3>,
    v: Tensor<B, 3>,
    visible: &[Range<u32>],
    scale: f32,
) -> Tensor<B, 3> {
    let ([t, h, d], [s, g, _]) = (q.dims(), k.dims());
    let group = h / g;
    let spread =
        |x: Tensor<B, 3>| x.swap_dims(0, 1).reshape([g, 1, s, d]).expand([g, group, s, d]).reshape([h, s, d]);
    let scores = q.swap_dims(0, 1).matmul(spread(k).swap_dims(1, 2)) * scale; // [h, t, s]
    let device = scores.device();
    let hidden: Vec<bool> =
        visible.iter().flat_map(|range| (0..s as u32).map(move |j| j + range.start >= range.end)).collect();
    let hidden = Tensor::<B, 2, Bool>::from_data(TensorData::new(hidden, [t, s]), &device);
    let mask = hidden.clone().unsqueeze::<3>().expand([h, t, s]);
    let weights = softmax(scores.mask_fill(mask, f32::NEG_INFINITY), 2);
    // What a row does not see has the weight zero, but zero times NaN is NaN: values that are not finite are left out of the
    // product, and break the rows that see them afterwards.
    let broken = v.clone().is_finite().bool_not();
    let seen = hidden.bool_not().float().matmul(broken.clone().float().reshape([s, g * d]));
    let seen = seen.greater_elem(0.5).reshape([t, g, 1, d]).expand([t, g, group, d]).reshape([t, h, d]);
    let sums = weights.matmul(spread(v.mask_fill(broken, 0.0))).swap_dims(0, 1);
    sums.mask_fill(seen, f32::NAN)
}

/// Queries and keys, normalised, rotated and scaled, and the values as they are.
pub fn rotate<B: Backend>(heads: HeadInput<B>, step: &Step<'_, B>) -> [Tensor<B, 3>; 3] {
    let HeadInput { q, k, v, norms } = heads;
    let norm = |x: Tensor<B, 3>, weight: fn(&super::HeadNorms<B>) -> &Tensor<B, 1>| match &norms {
        Some(norms) => {
            let [t, heads, d] = x.dims();
            B::rms_norm(x.reshape([t * heads, d]), weight(norms).clone(), norms.eps).reshape([t, heads, d])
        }
        None => x,
    };
    let q = step.rope.apply(norm(q, |norms| &norms.q));
    let k = step.rope.apply(norm(k, |norms| &norms.k));
    match &step.query_scale {
        Some(scale) => {
            let factors = TensorData::new(scale.clone(), [scale.len(), 1, 1]);
            let factors = Tensor::from_data(factors, &q.device());
            [q * factors, k, v]
        }
        None => [q, k, v],
    }
}

/// See [`Backend::rotate_and_write`].
pub fn rotate_and_write<B: Backend>(
    heads: HeadInput<B>,
    pages: &mut KvPages,
    step: &Step<'_, B>,
) -> Tensor<B, 3> {
    let [q, k, v] = rotate(heads, step);
    let (k_pool, v_pool) = pages.as_host_mut();
    let paged = step.paged();
    kv::kv_write(&paged.layout, k_pool, v_pool, &to_vec(k), &to_vec(v), paged.slots);
    q
}

/// See [`Backend::paged_attention`].
pub fn paged_attention<B: Backend>(
    q: Tensor<B, 3>,
    pages: &KvPages,
    step: &Step<'_, B>,
    scale: f32,
) -> Tensor<B, 3> {
    let (k, v) = pages.as_host();
    let (layout, device) = (step.paged().layout, q.device());
    let outputs = step.sequences().filter(|(_, visible)| !visible.is_empty()).map(|(sequence, visible)| {
        let entries = visible.iter().map(|range| range.end as usize).max().unwrap_or(0);
        let read = |pool: &[u8]| {
            let values = read_entries(&layout, pool, &sequence.block_table, entries);
            Tensor::from_data(TensorData::new(values, [entries, layout.n_kv_heads, layout.head_dim]), &device)
        };
        one_sequence(q.clone().slice([sequence.rows.clone()]), read(k), read(v), visible, scale)
    });
    Tensor::cat(outputs.collect(), 0)
}

/// See [`Backend::top_k`].
pub fn top_k<B: Backend>(logits: Tensor<B, 2>, k: usize) -> Result<Vec<TopK>, ModelError> {
    let [_, vocab] = logits.dims();
    // NaN, of either sign, before everything.
    let key = |logit: f32| if logit.is_nan() { f32::INFINITY } else { logit };
    let pick = |row: &[f32]| {
        let likelier = |a: &u32, b: &u32| {
            let (a_key, b_key) = (key(row[*a as usize]), key(row[*b as usize]));
            b_key.partial_cmp(&a_key).expect("no key is NaN").then(a.cmp(b))
        };
        let ids = 0..vocab as u32;
        if k == 1 {
            // Greedy decoding comes here for every token: one pass, no list.
            return ids.min_by(likelier).map(|id| (id, row[id as usize])).into_iter().collect();
        }
        let mut order: Vec<u32> = ids.collect();
        if k < vocab {
            order.select_nth_unstable_by(k, likelier);
            order.truncate(k);
        }
        order.sort_unstable_by(likelier);
        order.into_iter().map(|id| (id, row[id as usize])).collect()
    };
    Ok(read(logits)?.chunks_exact(vocab).map(pick).collect())
}

/// The elements in row-major order, as f32.
fn to_vec<B: Backend, const D: usize>(x: Tensor<B, D>) -> Vec<f32> {
    x.into_data().convert::<f32>().into_vec().expect("converted to f32 just above")
}

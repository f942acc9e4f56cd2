//! The CPU: Burn's ndarray tensors, computed by `ember-kernels-cpu`.
use super::{Backend, HeadInput, Pairing, default};
use crate::kv_cache::KvPages;
use crate::packed::PackedMatrix;
use crate::step::Step;
use burn::tensor::{Tensor, TensorData, TensorPrimitive};
use burn_ndarray::{IntNdArrayElement, NdArray, NdArrayTensor, QuantElement, SharedArray};
use ember_kernels_cpu::attention::{self, AttentionRows, DenseKv, PagedKv, Queries};
use ember_kernels_cpu::{Matrix, float, kv, linear};
use std::ops::Range;

impl<I: IntNdArrayElement, Q: QuantElement> Backend for NdArray<f32, I, Q>
where
    NdArrayTensor: From<SharedArray<I>>,
{
    fn packed_linear(x: Tensor<Self, 2>, weights: &[&PackedMatrix]) -> Vec<Tensor<Self, 2>> {
        let [t, _] = x.dims();
        let device = x.device();
        let matrices: Vec<Matrix<'_>> = weights.iter().map(|weight| weight.as_matrix()).collect();
        let mut outputs: Vec<Vec<f32>> = weights.iter().map(|weight| vec![0.0; t * weight.rows()]).collect();
        let mut slices: Vec<&mut [f32]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
        read(x, |x| linear(x, t, &matrices, &mut slices));
        let wrap = |(values, weight): (Vec<f32>, &&PackedMatrix)| {
            Tensor::from_data(TensorData::new(values, [t, weight.rows()]), &device)
        };
        outputs.into_iter().zip(weights).map(wrap).collect()
    }

    fn rms_norm(x: Tensor<Self, 2>, weight: Tensor<Self, 1>, eps: f32) -> Tensor<Self, 2> {
        let shape = x.dims();
        let mut out = vec![0.0; shape[0] * shape[1]];
        read(x, |x| read(weight, |weight| float::rms_norm(x, weight, eps, &mut out)));
        tensor(out, shape)
    }

    fn add_rms_norm(
        residual: Tensor<Self, 2>,
        x: Tensor<Self, 2>,
        weight: Tensor<Self, 1>,
        eps: f32,
    ) -> (Tensor<Self, 2>, Tensor<Self, 2>) {
        let shape = x.dims();
        let mut out = vec![0.0; shape[0] * shape[1]];
        let mut sum = into_vec(residual);
        read(x, |x| read(weight, |weight| float::add_rms_norm(&mut sum, x, weight, eps, &mut out)));
        (tensor(sum, shape), tensor(out, shape))
    }

    fn rope(
        x: Tensor<Self, 3>,
        cos: Tensor<Self, 2>,
        sin: Tensor<Self, 2>,
        pairing: Pairing,
    ) -> Tensor<Self, 3> {
        let shape @ [_, heads, dim] = x.dims();
        let mut x = into_vec(x);
        read(cos, |cos| read(sin, |sin| float::rope(&mut x, heads, dim, cos, sin, pairing)));
        tensor(x, shape)
    }

    fn swiglu(gate: Tensor<Self, 2>, up: Tensor<Self, 2>) -> Tensor<Self, 2> {
        gated(gate, up, float::swiglu)
    }

    fn geglu(gate: Tensor<Self, 2>, up: Tensor<Self, 2>) -> Tensor<Self, 2> {
        gated(gate, up, float::geglu_erf)
    }

    fn unpaged_attention(
        q: Tensor<Self, 3>,
        k: Tensor<Self, 3>,
        v: Tensor<Self, 3>,
        visible: &[Range<u32>],
        scale: f32,
    ) -> Tensor<Self, 3> {
        let shape @ [t, heads, dim] = q.dims();
        let n_kv_heads = k.dims()[1];
        let mut out = vec![0.0; t * heads * dim];
        read(q, |q| {
            read(k, |k| {
                read(v, |v| {
                    let kv = DenseKv { k, v, n_kv_heads, head_dim: dim };
                    attention::dense_attention(&kv, &Queries { q, n_heads: heads, scale }, visible, &mut out);
                })
            })
        });
        tensor(out, shape)
    }

    fn rotate_and_write(
        heads: HeadInput<Self>,
        pages: &mut KvPages,
        step: &Step<'_, Self>,
    ) -> Tensor<Self, 3> {
        let [q, k, v] = default::rotate(heads, step);
        let (k_pool, v_pool) = pages.as_host_mut();
        let paged = step.paged();
        read(k, |k| read(v, |v| kv::kv_write(&paged.layout, k_pool, v_pool, k, v, paged.slots)));
        q
    }

    fn paged_attention(
        q: Tensor<Self, 3>,
        pages: &KvPages,
        step: &Step<'_, Self>,
        scale: f32,
    ) -> Tensor<Self, 3> {
        let shape @ [t, heads, dim] = q.dims();
        let (k, v) = pages.as_host();
        let mut out = vec![0.0; t * heads * dim];
        let rows: Vec<AttentionRows<'_>> = step
            .sequences()
            .map(|(sequence, visible)| AttentionRows {
                rows: sequence.rows.clone(),
                block_table: &sequence.block_table,
                visible,
            })
            .collect();
        let kv = PagedKv { layout: step.paged().layout, k, v };
        read(q, |q| attention::paged_attention(&kv, &Queries { q, n_heads: heads, scale }, &rows, &mut out));
        tensor(out, shape)
    }
}

/// `f(gate, up, out)` over all elements.
fn gated<I: IntNdArrayElement, Q: QuantElement>(
    gate: Tensor<NdArray<f32, I, Q>, 2>,
    up: Tensor<NdArray<f32, I, Q>, 2>,
    f: fn(&[f32], &[f32], &mut [f32]),
) -> Tensor<NdArray<f32, I, Q>, 2>
where
    NdArrayTensor: From<SharedArray<I>>,
{
    let shape = gate.dims();
    let mut out = vec![0.0; shape[0] * shape[1]];
    read(gate, |gate| read(up, |up| f(gate, up, &mut out)));
    tensor(out, shape)
}

/// Calls `f` with the row-major elements, without a copy when the tensor is laid out so.
fn read<I: IntNdArrayElement, Q: QuantElement, const D: usize, T>(
    x: Tensor<NdArray<f32, I, Q>, D>,
    f: impl FnOnce(&[f32]) -> T,
) -> T
where
    NdArrayTensor: From<SharedArray<I>>,
{
    let primitive = x.into_primitive().tensor();
    let NdArrayTensor::F32(storage) = primitive else {
        panic!("float tensors of NdArray<f32> hold f32");
    };
    let view = storage.view();
    match view.as_slice() {
        Some(slice) => f(slice),
        None => f(&view.iter().copied().collect::<Vec<f32>>()),
    }
}

/// The row-major elements, without a copy when nobody else holds the tensor.
fn into_vec<I: IntNdArrayElement, Q: QuantElement, const D: usize>(
    x: Tensor<NdArray<f32, I, Q>, D>,
) -> Vec<f32>
where
    NdArrayTensor: From<SharedArray<I>>,
{
    let primitive = x.into_primitive().tensor();
    if let NdArrayTensor::F32(storage) = &primitive
        && !storage.is_unique()
        && let Some(values) = storage.view().as_slice()
    {
        // In one piece; `into_data` would copy a shared tensor element by element.
        return values.to_vec();
    }
    let x = Tensor::<NdArray<f32, I, Q>, D>::from_primitive(TensorPrimitive::Float(primitive));
    x.into_data().into_vec().expect("float tensors of NdArray<f32> hold f32")
}

fn tensor<I: IntNdArrayElement, Q: QuantElement, const D: usize>(
    values: Vec<f32>,
    shape: [usize; D],
) -> Tensor<NdArray<f32, I, Q>, D>
where
    NdArrayTensor: From<SharedArray<I>>,
{
    let primitive = NdArrayTensor::from_data(TensorData::new(values, shape));
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}

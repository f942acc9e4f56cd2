//! The default bodies on ndarray tensors, from host values to host values: what [`conformance`](super::conformance)
//! compares a backend with. None is generic, so that they are compiled once, here, and not with every backend.
use super::conformance::attend;
use super::{HeadInput, Pairing, TopK, default, read};
use crate::error::ModelError;
use crate::kv_cache::KvPages;
use crate::layers::rope::RopeTable;
use crate::packed::PackedMatrix;
use crate::step::Step;
use burn::tensor::activation::{gelu, silu};
use burn::tensor::{Tensor, TensorData};
use burn_ndarray::{NdArray, NdArrayDevice};
use ember_kernels_cpu::kv::KvType;
use std::ops::Range;

/// The backend of the definitions.
type D = NdArray;

const CPU: NdArrayDevice = NdArrayDevice::Cpu;

/// A tensor's shape and its elements in row-major order.
pub(super) struct Values {
    pub(super) shape: Vec<usize>,
    pub(super) elements: Vec<f32>,
}

impl Values {
    pub(super) fn read<B: super::Backend, const N: usize>(x: Tensor<B, N>) -> Result<Self, ModelError> {
        Ok(Self { shape: x.dims().to_vec(), elements: read(x)? })
    }

    fn of<const N: usize>(x: Tensor<D, N>) -> Self {
        Self::read(x).expect("host memory does not fail")
    }
}

fn on<const N: usize>(values: &[f32], shape: [usize; N]) -> Tensor<D, N> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), &CPU)
}

pub(super) fn packed_linear(x: &[f32], shape: [usize; 2], weights: &[&PackedMatrix]) -> Vec<Values> {
    default::packed_linear(on(x, shape), weights).into_iter().map(Values::of).collect()
}

pub(super) fn packed_lookup(table: &PackedMatrix, ids: &[u32]) -> Values {
    Values::of(default::packed_lookup::<D>(table, ids, &CPU))
}

pub(super) fn dense_linear(x: &[f32], shape: [usize; 2], weight: &[f32], out: usize) -> Values {
    Values::of(on(x, shape).matmul(on(weight, [out, shape[1]]).transpose()))
}

pub(super) fn sum(x: &[f32], y: &[f32], shape: [usize; 2]) -> Values {
    Values::of(on(x, shape) + on(y, shape))
}

pub(super) fn rms_norm(x: &[f32], shape: [usize; 2], weight: &[f32], eps: f32) -> Values {
    Values::of(default::rms_norm(on(x, shape), on(weight, [shape[1]]), eps))
}

pub(super) fn add_rms_norm(x: &[f32], y: &[f32], shape: [usize; 2], weight: &[f32], eps: f32) -> Values {
    Values::of(default::rms_norm(on(x, shape) + on(y, shape), on(weight, [shape[1]]), eps))
}

pub(super) fn swiglu(gate: &[f32], up: &[f32], shape: [usize; 2]) -> Values {
    Values::of(silu(on(gate, shape)) * on(up, shape))
}

pub(super) fn geglu(gate: &[f32], up: &[f32], shape: [usize; 2]) -> Values {
    Values::of(gelu(on(gate, shape)) * on(up, shape))
}

pub(super) fn rope(
    x: &[f32],
    shape: [usize; 3],
    table: fn(usize, usize, Pairing, &NdArrayDevice) -> RopeTable<D>,
    half: usize,
    pairing: Pairing,
) -> Values {
    let [cos, sin] = table(shape[0], half, pairing, &CPU).tensors().clone();
    Values::of(default::rope(on(x, shape), cos, sin, pairing))
}

pub(super) fn unpaged_attention(
    [q, k, v]: [&[f32]; 3],
    [q_shape, kv_shape]: [[usize; 3]; 2],
    visible: &[Range<u32>],
    scale: f32,
) -> Values {
    let (k, v) = (on(k, kv_shape), on(v, kv_shape));
    Values::of(default::unpaged_attention(on(q, q_shape), k, v, visible, scale))
}

/// [`attend`] by the definitions, over host pages.
pub(super) fn attention(ty: KvType, qwen3: bool, broken: Option<f32>) -> Result<[Values; 2], ModelError> {
    fn body(heads: HeadInput<D>, pages: &mut KvPages, step: &Step<'_, D>) -> Tensor<D, 3> {
        let q = default::rotate_and_write(heads, pages, step);
        default::paged_attention(q, pages, step, 0.2)
    }
    Ok(attend::<D>(ty, qwen3, broken, KvPages::host, body, &CPU)?.map(Values::of))
}

pub(super) fn top_k(logits: &[f32], shape: [usize; 2], k: usize) -> Result<Vec<TopK>, ModelError> {
    default::top_k(on(logits, shape), k)
}

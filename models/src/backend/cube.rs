//! GPUs: Burn's CubeCL tensors, computed by `ember-kernels-cubecl`.
//!
//! One body for every runtime: CUDA, and wgpu with SPIR-V, MSL or WGSL.
use super::{Backend, HeadInput, KvLayout, Pairing, TopK, default};
use crate::error::ModelError;
use crate::kv_cache::KvPages;
use crate::opaque::Opaque;
use crate::packed::{DevicePosition, PackedMatrix};
use crate::step::{Paged, Step};
use burn::tensor::{DType, Shape, Tensor, TensorPrimitive};
use burn_cubecl::cubecl::device::Device;
use burn_cubecl::element::BoolElement;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeBackend, CubeRuntime, IntElement};
use ember_kernels_cubecl::attention::{self, Plan, SequencePlan};
use ember_kernels_cubecl::{
    Buffer, DeviceMatrix, Gpu, GpuError, activation, gather, kv, linear, norm, pick, rope,
};
use std::ops::Range;

/// The tensor type of `CubeBackend` with `D` dimensions.
type Cube<R, I, BT, const D: usize> = Tensor<CubeBackend<R, f32, I, BT>, D>;

impl<R: CubeRuntime, I: IntElement, BT: BoolElement> Backend for CubeBackend<R, f32, I, BT> {
    fn max_elements(device: &Self::Device) -> usize {
        gpu::<R>(device).caps().max_buffer as usize / size_of::<f32>()
    }

    fn guard<T>(
        device: &Self::Device,
        work: impl FnOnce() -> Result<T, ModelError>,
    ) -> Result<T, ModelError> {
        ember_kernels_cubecl::guard(device.to_id(), work)
    }

    fn place(
        what: &str,
        matrices: Vec<PackedMatrix>,
        device: &Self::Device,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<PackedMatrix>, ModelError> {
        let Some(first) = matrices.first() else { return Ok(matrices) };
        let parts: Vec<&[u8]> = matrices.iter().map(PackedMatrix::bytes).collect();
        let gpu = gpu::<R>(device);
        let stack = DeviceMatrix::upload(&gpu, what, first.ty(), first.cols(), &parts, progress)?;
        let stack = Opaque::new(stack);
        let mut first_row = 0;
        let positioned = |matrix: PackedMatrix| {
            let device = DevicePosition { stack: stack.clone(), first_row };
            first_row += matrix.rows();
            matrix.release();
            matrix.on_device(device)
        };
        Ok(matrices.into_iter().map(positioned).collect())
    }

    fn packed_linear(x: Tensor<Self, 2>, weights: &[&PackedMatrix]) -> Vec<Tensor<Self, 2>> {
        let [t, _] = x.dims();
        let x = On::new(x);
        let mut outputs = Vec::with_capacity(weights.len());
        let runs = weights.chunk_by(|a, b| adjacent(a, b));
        for run in runs.flat_map(|run| run.chunks(linear::MAX_SEGMENTS)) {
            let at = position(run[0]);
            let segments: Vec<usize> = run.iter().map(|weight| weight.rows()).collect();
            let products = linear::linear(&x.gpu, &x.buffer, at.stack.get(), at.first_row, &segments);
            outputs.extend(products.into_iter().zip(segments).map(|(y, n)| x.tensor(y, [t, n])));
        }
        outputs
    }

    /// By the kernels of packed f32 rows. Burn's own product would add its whole family of kernels to every binary: they
    /// took two thirds of the time to build one.
    fn dense_linear(x: Tensor<Self, 2>, weight: Tensor<Self, 2>) -> Tensor<Self, 2> {
        let ([t, cols], [out, _]) = (x.dims(), weight.dims());
        let (x, weight) = match cols % DeviceMatrix::DENSE_COLS {
            0 => (x, weight),
            over => {
                let missing = DeviceMatrix::DENSE_COLS - over;
                let pad = |x: Tensor<Self, 2>, rows| {
                    let zeros = Tensor::zeros([rows, missing], &x.device());
                    Tensor::cat(vec![x, zeros], 1)
                };
                (pad(x, t), pad(weight, out))
            }
        };
        let cols = x.dims()[1];
        let x = On::new(x);
        let matrix = DeviceMatrix::dense(buffer(weight), out, cols);
        let mut products = linear::linear(&x.gpu, &x.buffer, &matrix, 0, &[out]);
        x.tensor(products.remove(0), [t, out])
    }

    fn packed_lookup(table: &PackedMatrix, ids: &[u32], device: &Self::Device) -> Tensor<Self, 2> {
        let gpu = gpu::<R>(device);
        let at = position(table);
        let ids_on_device: Vec<u32> = ids.iter().map(|&id| id + at.first_row as u32).collect();
        let ids_on_device = gpu.upload("token ids", &ids_on_device).expect("a batch is far below the limit");
        let rows = gather::gather(&gpu, at.stack.get(), &ids_on_device, ids.len());
        wrap(gpu, device.clone(), rows, [ids.len(), table.cols()])
    }

    fn rms_norm(x: Tensor<Self, 2>, weight: Tensor<Self, 1>, eps: f32) -> Tensor<Self, 2> {
        let shape = x.dims();
        let x = On::new(x);
        let y = norm::rms_norm(&x.gpu, &x.buffer, &buffer(weight), eps);
        x.tensor(y, shape)
    }

    fn add_rms_norm(
        residual: Tensor<Self, 2>,
        x: Tensor<Self, 2>,
        weight: Tensor<Self, 1>,
        eps: f32,
    ) -> (Tensor<Self, 2>, Tensor<Self, 2>) {
        let shape = x.dims();
        let x = On::new(x);
        let (sum, y) = norm::add_rms_norm(&x.gpu, &buffer(residual), &x.buffer, &buffer(weight), eps);
        (x.tensor(sum, shape), x.tensor(y, shape))
    }

    fn rope(
        x: Tensor<Self, 3>,
        cos: Tensor<Self, 2>,
        sin: Tensor<Self, 2>,
        pairing: Pairing,
    ) -> Tensor<Self, 3> {
        let shape @ [t, _, d] = x.dims();
        let x = On::new(x);
        let y = rope::rope(&x.gpu, &x.buffer, &buffer(cos), &buffer(sin), t, d, pairing);
        x.tensor(y, shape)
    }

    fn swiglu(gate: Tensor<Self, 2>, up: Tensor<Self, 2>) -> Tensor<Self, 2> {
        let shape = gate.dims();
        let gate = On::new(gate);
        let y = activation::swiglu(&gate.gpu, &gate.buffer, &buffer(up));
        gate.tensor(y, shape)
    }

    fn geglu(gate: Tensor<Self, 2>, up: Tensor<Self, 2>) -> Tensor<Self, 2> {
        let shape = gate.dims();
        let gate = On::new(gate);
        let y = activation::geglu(&gate.gpu, &gate.buffer, &buffer(up));
        gate.tensor(y, shape)
    }

    fn unpaged_attention(
        q: Tensor<Self, 3>,
        k: Tensor<Self, 3>,
        v: Tensor<Self, 3>,
        visible: &[Range<u32>],
        scale: f32,
    ) -> Tensor<Self, 3> {
        let shape = q.dims();
        let [s, g, d] = k.dims();
        // Rows of keys are pages of one entry each.
        let pages = kv::KvPages::dense(&buffer(k), &buffer(v), g, d);
        let table: Vec<u32> = (0..s as u32).collect();
        let sequence = SequencePlan { rows: 0..shape[0], block_table: &table, visible };
        let q = On::new(q);
        let plan = Plan::new(&q.gpu, &[sequence], 1).expect("a batch is far below the limit");
        let y = attention::paged_attention(&q.gpu, &q.buffer, &pages, &plan, scale);
        q.tensor(y, shape)
    }

    fn kv_pages(layout: KvLayout, n_blocks: usize, device: &Self::Device) -> Result<KvPages, ModelError> {
        let pages = kv::KvPages::new(&gpu::<R>(device), layout, n_blocks).map_err(|error| match error {
            GpuError::Device(_) => error.into(),
            refused => ModelError::KvCache(refused.to_string()),
        })?;
        Ok(KvPages::Device(Opaque::new(pages)))
    }

    fn upload_step(
        step: &Step<'_, Self>,
        paged: &Paged<'_>,
        device: &Self::Device,
    ) -> Result<Option<Opaque>, ModelError> {
        let gpu = gpu::<R>(device);
        let parts: Vec<SequencePlan<'_>> = paged
            .sequences
            .iter()
            .map(|sequence| SequencePlan {
                rows: sequence.rows.clone(),
                block_table: &sequence.block_table,
                visible: &step.visible[sequence.rows.clone()],
            })
            .collect();
        let rope = &step.rope;
        let on_device = StepOnDevice {
            rows: rope::RowTable::new(&gpu, &rope.cos, &rope.sin, paged.slots, step.query_scale.as_deref())?,
            attention: Plan::new(&gpu, &parts, paged.layout.block_len)?,
        };
        Ok(Some(Opaque::new(on_device)))
    }

    fn rotate_and_write(
        heads: HeadInput<Self>,
        pages: &mut KvPages,
        step: &Step<'_, Self>,
    ) -> Tensor<Self, 3> {
        let shape = heads.q.dims();
        let q = On::new(heads.q);
        let (k, v) = (buffer(heads.k), buffer(heads.v));
        let norms = heads.norms.map(|norms| (buffer(norms.q), buffer(norms.k), norms.eps));
        let heads = rope::HeadInput {
            q: &q.buffer,
            k: &k,
            v: &v,
            norms: norms.as_ref().map(|(q, k, eps)| (q, k, *eps)),
            pairing: step.rope.pairing,
        };
        let table = &on_device(step).rows;
        let rotated = rope::rotate_and_write(&q.gpu, &heads, table, device_pages(pages));
        q.tensor(rotated, shape)
    }

    fn paged_attention(
        q: Tensor<Self, 3>,
        pages: &KvPages,
        step: &Step<'_, Self>,
        scale: f32,
    ) -> Tensor<Self, 3> {
        let shape = q.dims();
        let q = On::new(q);
        let plan = &on_device(step).attention;
        let y = attention::paged_attention(&q.gpu, &q.buffer, device_pages(pages), plan, scale);
        q.tensor(y, shape)
    }

    fn top_k(logits: Tensor<Self, 2>, k: usize) -> Result<Vec<TopK>, ModelError> {
        let [n, vocab] = logits.dims();
        let k = k.min(vocab);
        if k > pick::MAX_K {
            return default::top_k(logits, k);
        }
        let logits = On::new(logits);
        let words = logits.gpu.read(&pick::top_k(&logits.gpu, &logits.buffer, n, k))?;
        let pair = |pair: &[u32]| (pair[0], f32::from_bits(pair[1]));
        Ok(words.chunks_exact(2 * k).map(|row| row.chunks_exact(2).map(pair).collect()).collect())
    }
}

/// A step's tables in device memory.
struct StepOnDevice {
    rows: rope::RowTable,
    attention: Plan,
}

/// A tensor's memory and device.
struct On<R: CubeRuntime> {
    gpu: Gpu<R>,
    device: R::Device,
    buffer: Buffer,
}

impl<R: CubeRuntime> On<R> {
    fn new<I: IntElement, BT: BoolElement, const D: usize>(x: Cube<R, I, BT, D>) -> Self {
        let x = contiguous(x);
        let len = x.meta.shape().num_elements();
        Self { gpu: Gpu::new(x.client, &x.device), device: x.device, buffer: Buffer::new(x.handle, len) }
    }

    /// A result on the same device.
    fn tensor<I: IntElement, BT: BoolElement, const D: usize>(
        &self,
        y: Buffer,
        shape: [usize; D],
    ) -> Cube<R, I, BT, D> {
        wrap(self.gpu.clone(), self.device.clone(), y, shape)
    }
}

fn gpu<R: CubeRuntime>(device: &R::Device) -> Gpu<R> {
    Gpu::open(device)
}

fn wrap<R: CubeRuntime, I: IntElement, BT: BoolElement, const D: usize>(
    gpu: Gpu<R>,
    device: R::Device,
    buffer: Buffer,
    shape: [usize; D],
) -> Cube<R, I, BT, D> {
    let tensor =
        CubeTensor::new_contiguous(gpu.client, device, Shape::from(shape), buffer.handle, DType::F32);
    Tensor::from_primitive(TensorPrimitive::Float(tensor))
}

/// The tensor's primitive, its elements in row-major order without gaps.
fn contiguous<R: CubeRuntime, I: IntElement, BT: BoolElement, const D: usize>(
    x: Cube<R, I, BT, D>,
) -> CubeTensor<R> {
    let x = into_contiguous(x.into_primitive().tensor());
    assert_eq!(x.dtype, DType::F32, "the kernels compute in f32");
    x
}

fn buffer<R: CubeRuntime, I: IntElement, BT: BoolElement, const D: usize>(x: Cube<R, I, BT, D>) -> Buffer {
    let x = contiguous(x);
    let len = x.meta.shape().num_elements();
    Buffer::new(x.handle, len)
}

/// True when `b` follows `a` in one stack, so that one launch computes both.
fn adjacent(a: &PackedMatrix, b: &PackedMatrix) -> bool {
    let (at, next) = (position(a), position(b));
    at.stack.is(&next.stack) && at.first_row + a.rows() == next.first_row
}

fn position(matrix: &PackedMatrix) -> &DevicePosition {
    matrix.device().expect("the weights of a model on a device were placed there when it was loaded")
}

fn on_device<'a, B: Backend>(step: &'a Step<'_, B>) -> &'a StepOnDevice {
    step.paged().device.as_ref().expect("made by this backend's upload_step").get()
}

fn device_pages(pages: &KvPages) -> &kv::KvPages {
    match pages {
        KvPages::Device(pages) => pages.get(),
        KvPages::Host { .. } => panic!("pages in host memory reached an operation on a device"),
    }
}

impl From<GpuError> for ModelError {
    fn from(error: GpuError) -> Self {
        Self::Device(error.to_string())
    }
}

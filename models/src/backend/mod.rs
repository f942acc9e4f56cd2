//! Burn's `Backend`, extended with the operations that inference lives on.
//!
//! Every operation has a default body in ordinary tensor operations ([`default`]): it defines the operation, the fast
//! versions are tested against it, a new backend starts from it, and it is differentiable.
mod autodiff;
#[cfg(feature = "ndarray")]
pub mod conformance;
#[cfg(feature = "cube")]
mod cube;
pub mod default;
#[cfg(feature = "ndarray")]
mod definitions;
#[cfg(feature = "ndarray")]
mod ndarray;
#[cfg(feature = "ndarray")]
mod not_finite;

use crate::error::ModelError;
use crate::kv_cache::KvPages;
use crate::opaque::Opaque;
use crate::packed::PackedMatrix;
use crate::step::{Paged, Step};
use burn::tensor::Tensor;
pub use ember_formats::{KvLayout, Pairing};
use std::ops::Range;

/// Queries, keys and values of a step as the projections left them, and the norms that come before their rotation.
#[derive(Clone, Debug)]
pub struct HeadInput<B: Backend> {
    /// `[t, h, d]`.
    pub q: Tensor<B, 3>,
    /// `[t, g, d]`.
    pub k: Tensor<B, 3>,
    /// `[t, g, d]`.
    pub v: Tensor<B, 3>,
    /// Qwen3's norm over each head of the queries and of the keys, before the rotation.
    pub norms: Option<HeadNorms<B>>,
}

/// RMSNorm of single heads.
#[derive(Clone, Debug)]
pub struct HeadNorms<B: Backend> {
    /// `[d]`.
    pub q: Tensor<B, 1>,
    /// `[d]`.
    pub k: Tensor<B, 1>,
    /// Added to the mean square.
    pub eps: f32,
}

/// The likeliest tokens of one row, likeliest first, each with its logit.
pub type TopK = Vec<(u32, f32)>;

/// The operations of a decoder step, over Burn tensors of the backend.
///
/// Shapes: `t` rows (tokens of all sequences), `h` query heads, `g` key/value heads, `d` head width.
pub trait Backend: burn::tensor::backend::Backend {
    /// Elements that one tensor may have at most: callers bound the rows of a step by it.
    fn max_elements(device: &Self::Device) -> usize {
        let _ = device;
        usize::MAX
    }

    /// The result of `work`, which uses `device`, or the failure of the device, before or meanwhile: GPUs do not always
    /// return one as an error, and what is read after it is zeros. Whatever loads, computes or reads goes through here.
    ///
    /// # Errors
    /// Those of `work`, and [`ModelError::Device`], at once, from the device's failure on.
    fn guard<T>(
        device: &Self::Device,
        work: impl FnOnce() -> Result<T, ModelError>,
    ) -> Result<T, ModelError> {
        let _ = device;
        work()
    }

    /// Moves matrices of one block type and width to where products read them, side by side, so that
    /// [`packed_linear`](Self::packed_linear) over all of them is one launch. `what` names them in errors; `progress`
    /// is called with the bytes moved since its last call. Where products no longer read them, the pages of the mapped
    /// file are given back.
    ///
    /// # Errors
    /// [`ModelError::Device`] when the device cannot hold them.
    fn place(
        what: &str,
        matrices: Vec<PackedMatrix>,
        device: &Self::Device,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<PackedMatrix>, ModelError> {
        let _ = (what, device);
        matrices.iter().for_each(|matrix| progress(matrix.n_bytes() as u64));
        Ok(matrices)
    }

    /// `x · Wᵀ` for several packed matrices over the same input.
    ///
    /// # Shapes
    /// `x` is `[t, cols]`; output `i` is `[t, weights[i].rows()]`.
    fn packed_linear(x: Tensor<Self, 2>, weights: &[&PackedMatrix]) -> Vec<Tensor<Self, 2>> {
        default::packed_linear(x, weights)
    }

    /// Product with a weight that is a tensor, `x · Wᵀ`.
    ///
    /// # Shapes
    /// `x` is `[t, in]`, `weight` `[out, in]`, the result `[t, out]`.
    fn dense_linear(x: Tensor<Self, 2>, weight: Tensor<Self, 2>) -> Tensor<Self, 2> {
        x.matmul(weight.transpose())
    }

    /// Rows of a packed embedding table.
    ///
    /// # Shapes
    /// The result is `[ids.len(), cols]`. Every id must be below `table.rows()`.
    fn packed_lookup(table: &PackedMatrix, ids: &[u32], device: &Self::Device) -> Tensor<Self, 2> {
        default::packed_lookup(table, ids, device)
    }

    /// `x / sqrt(mean(x²) + eps) * weight` over the last dimension.
    ///
    /// # Shapes
    /// `x` is `[n, dim]`, `weight` is `[dim]`.
    fn rms_norm(x: Tensor<Self, 2>, weight: Tensor<Self, 1>, eps: f32) -> Tensor<Self, 2> {
        default::rms_norm(x, weight, eps)
    }

    /// `residual + x`, and the RMSNorm of that sum.
    ///
    /// # Shapes
    /// All tensors are `[n, dim]`, `weight` is `[dim]`.
    fn add_rms_norm(
        residual: Tensor<Self, 2>,
        x: Tensor<Self, 2>,
        weight: Tensor<Self, 1>,
        eps: f32,
    ) -> (Tensor<Self, 2>, Tensor<Self, 2>) {
        let sum = residual + x;
        (sum.clone(), Self::rms_norm(sum, weight, eps))
    }

    /// Rotates pairs of each head's first `2 * cos.dims()[1]` elements by the row's angles; the rest pass through.
    ///
    /// # Shapes
    /// `x` is `[t, heads, d]`; `cos` and `sin` are `[t, rotated / 2]`.
    fn rope(
        x: Tensor<Self, 3>,
        cos: Tensor<Self, 2>,
        sin: Tensor<Self, 2>,
        pairing: Pairing,
    ) -> Tensor<Self, 3> {
        default::rope(x, cos, sin, pairing)
    }

    /// `silu(gate) * up`, element by element.
    fn swiglu(gate: Tensor<Self, 2>, up: Tensor<Self, 2>) -> Tensor<Self, 2> {
        burn::tensor::activation::silu(gate) * up
    }

    /// `gelu(gate) * up`, element by element, with `gelu(x) = x / 2 * (1 + erf(x / sqrt(2)))`.
    fn geglu(gate: Tensor<Self, 2>, up: Tensor<Self, 2>) -> Tensor<Self, 2> {
        burn::tensor::activation::gelu(gate) * up
    }

    /// Attention over keys and values given as tensors: row `i` attends to the rows `visible[i]`. NaN and infinities break the
    /// rows that see them, and no others.
    ///
    /// # Shapes
    /// `q` is `[t, h, d]`, `k` and `v` are `[t, g, d]`, the result is `[t, h, d]`. Query head `i` reads key/value head
    /// `i / (h / g)`.
    fn unpaged_attention(
        q: Tensor<Self, 3>,
        k: Tensor<Self, 3>,
        v: Tensor<Self, 3>,
        visible: &[Range<u32>],
        scale: f32,
    ) -> Tensor<Self, 3> {
        default::unpaged_attention(q, k, v, visible, scale)
    }

    /// One layer's zeroed pages of keys and values.
    ///
    /// # Errors
    /// [`ModelError::KvCache`] when they do not fit into memory.
    fn kv_pages(layout: KvLayout, n_blocks: usize, device: &Self::Device) -> Result<KvPages, ModelError> {
        let _ = device;
        KvPages::host(layout, n_blocks)
    }

    /// The tables of a step over pages in device memory, for a backend that keeps them there: slots, sequences, angles and
    /// query multipliers. The result becomes the step's [`Paged::device`].
    ///
    /// # Errors
    /// [`ModelError::Device`] when the device cannot hold the tables.
    fn upload_step(
        step: &Step<'_, Self>,
        paged: &Paged<'_>,
        device: &Self::Device,
    ) -> Result<Option<Opaque>, ModelError> {
        let _ = (step, paged, device);
        Ok(None)
    }

    /// Normalises, rotates and scales queries and keys, writes keys and values into the rows' slots of the layer's pages,
    /// in place, and returns the queries.
    ///
    /// # Shapes
    /// See [`HeadInput`]; the result is `[t, h, d]`.
    fn rotate_and_write(
        heads: HeadInput<Self>,
        pages: &mut KvPages,
        step: &Step<'_, Self>,
    ) -> Tensor<Self, 3> {
        default::rotate_and_write(heads, pages, step)
    }

    /// Attention of each sequence's rows over its own entries of the paged cache. NaN and infinities break the rows that see
    /// them, and no others.
    ///
    /// # Shapes
    /// `q` and the result are `[t, h, d]`; the step's sequences cover the rows in order.
    fn paged_attention(
        q: Tensor<Self, 3>,
        pages: &KvPages,
        step: &Step<'_, Self>,
        scale: f32,
    ) -> Tensor<Self, 3> {
        default::paged_attention(q, pages, step, scale)
    }

    /// The `k` likeliest tokens of each row, equal logits by token id. NaN counts as the largest, so that it is seen.
    ///
    /// # Shapes
    /// `logits` is `[n, vocab]`; the result has `n` lists of `k.min(vocab)` entries.
    ///
    /// # Errors
    /// [`ModelError::Device`] when the device failed at the step.
    fn top_k(logits: Tensor<Self, 2>, k: usize) -> Result<Vec<TopK>, ModelError> {
        default::top_k(logits, k)
    }
}

/// The elements in row-major order, as f32.
///
/// # Errors
/// [`ModelError::Device`] when the device failed at what leads to them.
pub fn read<B: Backend, const D: usize>(x: Tensor<B, D>) -> Result<Vec<f32>, ModelError> {
    let device = x.device();
    let data =
        B::guard(&device, || x.try_into_data().map_err(|error| ModelError::Device(error.to_string())))?;
    Ok(data.convert::<f32>().into_vec().expect("converted to f32 just above"))
}

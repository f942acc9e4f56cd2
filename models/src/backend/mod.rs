//! Burn's `Backend`, extended with the operations that inference lives on.
//!
//! Every operation has a default body in ordinary tensor operations ([`default`]): it defines the operation, the fast
//! versions are tested against it, a new backend starts from it, and it is differentiable.
mod autodiff;
pub mod default;
#[cfg(feature = "ndarray")]
mod ndarray;

use crate::batch::SequenceRows;
use crate::kv_cache::KvPages;
use crate::packed::PackedMatrix;
use burn::tensor::Tensor;
pub use ember_kernels_cpu::float::Pairing;
pub use ember_kernels_cpu::kv::KvLayout;
use std::ops::Range;

/// The operations of a decoder step, over Burn tensors of the backend.
///
/// Shapes: `t` rows (tokens of all sequences), `h` query heads, `g` key/value heads, `d` head width.
pub trait Backend: burn::tensor::backend::Backend {
    /// `x · Wᵀ` for several packed matrices over the same input.
    ///
    /// # Shapes
    /// `x` is `[t, cols]`; output `i` is `[t, weights[i].rows()]`.
    fn packed_linear(x: Tensor<Self, 2>, weights: &[&PackedMatrix]) -> Vec<Tensor<Self, 2>> {
        default::packed_linear(x, weights)
    }

    /// Rows of a packed embedding table.
    ///
    /// # Shapes
    /// The result is `[ids.len(), cols]`. Every id must be below `table.rows()`.
    fn packed_rows(table: &PackedMatrix, ids: &[u32], device: &Self::Device) -> Tensor<Self, 2> {
        default::packed_rows(table, ids, device)
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

    /// Attention over keys and values given as tensors: row `i` attends to the rows `visible[i]`.
    ///
    /// # Shapes
    /// `q` is `[t, h, d]`, `k` and `v` are `[t, g, d]`, the result is `[t, h, d]`. Query head `i` reads key/value head
    /// `i / (h / g)`.
    fn dense_attention(
        q: Tensor<Self, 3>,
        k: Tensor<Self, 3>,
        v: Tensor<Self, 3>,
        visible: &[Range<u32>],
        scale: f32,
    ) -> Tensor<Self, 3> {
        default::dense_attention(q, k, v, visible, scale)
    }

    /// Writes each row's key and value into its slot of the layer's pool, in place.
    ///
    /// # Shapes
    /// `k` and `v` are `[t, g, d]`, `slots` has `t` entries.
    fn kv_write(
        pages: &mut KvPages,
        layout: KvLayout,
        k: Tensor<Self, 3>,
        v: Tensor<Self, 3>,
        slots: &[u32],
    ) {
        default::kv_write(pages, layout, k, v, slots)
    }

    /// Attention of each sequence's rows over its own entries of the paged cache.
    ///
    /// # Shapes
    /// `q` and the result are `[t, h, d]`; `sequences` cover the rows in order.
    fn paged_attention(
        q: Tensor<Self, 3>,
        pages: &KvPages,
        layout: KvLayout,
        sequences: &[SequenceRows],
        scale: f32,
    ) -> Tensor<Self, 3> {
        default::paged_attention(q, pages, layout, sequences, scale)
    }
}

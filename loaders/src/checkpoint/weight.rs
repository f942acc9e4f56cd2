//! One tensor of a checkpoint.

use super::CheckpointError;
use crate::gguf::{GgmlType, MappedBytes, dequantize};

/// A source of a module's tensors, by their GGUF names.
pub trait TensorSource {
    /// The tensor of this name, such as `blk.3.attn_q.weight`, if there is one.
    fn opt_tensor(&self, name: &str) -> Option<WeightTensor>;

    /// The tensor of this name.
    ///
    /// # Errors
    /// If there is none.
    fn tensor(&self, name: &str) -> Result<WeightTensor, CheckpointError> {
        self.opt_tensor(name).ok_or_else(|| CheckpointError::NoSuchTensor(name.to_owned()))
    }
}

/// A tensor of a checkpoint, still in the element type of the file.
#[derive(Clone, Debug)]
pub struct WeightTensor {
    /// GGUF name, such as `blk.3.attn_q.weight`.
    pub name: String,
    /// Element type.
    pub ty: GgmlType,
    /// Sizes, `dims[0]` contiguous: a matrix is `[cols, rows]`, a vector `[len]`.
    pub dims: Vec<usize>,
    /// The elements, row after row; the start has no guaranteed alignment.
    pub bytes: MappedBytes,
}

impl WeightTensor {
    /// Elements of a row (inputs of a matrix).
    pub fn cols(&self) -> usize {
        self.dims[0]
    }

    /// Rows (outputs of a matrix); 1 for a vector.
    pub fn rows(&self) -> usize {
        self.dims[1..].iter().product()
    }

    /// Every element as f32, row after row.
    ///
    /// Meant for norms, biases and other vectors: a matrix of a quantized model should stay packed.
    pub fn to_f32(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.cols() * self.rows()];
        dequantize(self.ty, &self.bytes, &mut values);
        values
    }
}

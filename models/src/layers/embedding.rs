//! The token embedding, which also serves as the output head of tied models.
use crate::backend::Backend;
use crate::packed::PackedMatrix;
use burn::module::{Module, Param};
use burn::tensor::{Int, Tensor, TensorData};

/// A `[vocab, hidden]` table, as a parameter or in packed blocks.
#[derive(Module, Debug)]
pub struct Embedding<B: Backend> {
    /// `[vocab, hidden]`.
    dense: Option<Param<Tensor<B, 2>>>,
    /// `[vocab, hidden]`.
    packed: Option<PackedMatrix>,
}

impl<B: Backend> Embedding<B> {
    /// A table in packed blocks.
    pub fn packed(table: PackedMatrix) -> Self {
        Self { dense: None, packed: Some(table) }
    }

    /// A trainable table.
    pub fn dense(table: Param<Tensor<B, 2>>) -> Self {
        Self { dense: Some(table), packed: None }
    }

    /// The rows of `ids`, each below the vocabulary size.
    ///
    /// # Shapes
    /// `[ids.len(), hidden]`.
    pub fn forward(&self, ids: &[u32], device: &B::Device) -> Tensor<B, 2> {
        match (&self.dense, &self.packed) {
            (Some(table), _) => {
                let ids: Vec<i64> = ids.iter().map(|&id| i64::from(id)).collect();
                let n = ids.len();
                table.val().select(0, Tensor::<B, 1, Int>::from_data(TensorData::new(ids, [n]), device))
            }
            (None, Some(table)) => B::packed_lookup(table, ids, device),
            (None, None) => unreachable!("both constructors set a table"),
        }
    }

    /// The table as an output head.
    ///
    /// # Shapes
    /// `[t, hidden]` to `[t, vocab]`.
    pub fn head(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        match (&self.dense, &self.packed) {
            (Some(table), _) => B::dense_linear(x, table.val()),
            (None, Some(table)) => {
                B::packed_linear(x, &[table]).pop().expect("one product for the one matrix")
            }
            (None, None) => unreachable!("both constructors set a table"),
        }
    }
}

//! From checkpoint tensors to module parameters.
use crate::backend::Backend;
use crate::error::ModelError;
use crate::layers::{Embedding, Linear, RmsNorm};
use crate::packed::PackedMatrix;
use burn::module::Param;
use burn::tensor::{Tensor, TensorData};
use ember_loaders::checkpoint::Checkpoint;

/// How weight matrices are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WeightFormat {
    /// In their GGUF blocks, straight from the mapped file: for inference. Gradients flow through them to inputs.
    #[default]
    Packed,
    /// As f32 Burn parameters: for training every weight. Needs four bytes per weight.
    Dense,
}

/// Reads named tensors of a checkpoint into layers.
pub struct Weights<'a, B: Backend> {
    checkpoint: &'a Checkpoint,
    format: WeightFormat,
    device: &'a B::Device,
}

impl<'a, B: Backend> Weights<'a, B> {
    /// A reader of `checkpoint` that places parameters on `device`.
    pub fn new(checkpoint: &'a Checkpoint, format: WeightFormat, device: &'a B::Device) -> Self {
        Self { checkpoint, format, device }
    }

    /// `NAME.weight` `[out, in]` and, when the checkpoint has it, `NAME.bias` `[out]`.
    ///
    /// # Errors
    /// When `NAME.weight` is missing.
    pub fn linear(&self, name: &str) -> Result<Linear<B>, ModelError> {
        let bias =
            self.checkpoint.opt_tensor(&format!("{name}.bias")).map(|bias| self.vector_param(bias.to_f32()));
        let packed = PackedMatrix::new(&self.checkpoint.tensor(&format!("{name}.weight"))?);
        Ok(match self.format {
            WeightFormat::Packed => Linear::packed(packed, bias),
            WeightFormat::Dense => Linear::dense(self.matrix_param(&packed), bias),
        })
    }

    /// `NAME.weight` `[vocab, hidden]`.
    ///
    /// # Errors
    /// When it is missing.
    pub fn embedding(&self, name: &str) -> Result<Embedding<B>, ModelError> {
        let packed = PackedMatrix::new(&self.checkpoint.tensor(&format!("{name}.weight"))?);
        Ok(match self.format {
            WeightFormat::Packed => Embedding::packed(packed),
            WeightFormat::Dense => Embedding::dense(self.matrix_param(&packed)),
        })
    }

    /// `NAME.weight` `[dim]` as an RMSNorm.
    ///
    /// # Errors
    /// When it is missing.
    pub fn rms_norm(&self, name: &str, eps: f32) -> Result<RmsNorm<B>, ModelError> {
        let weight = self.checkpoint.tensor(&format!("{name}.weight"))?;
        Ok(RmsNorm::new(self.vector_param(weight.to_f32()), eps))
    }

    fn vector_param(&self, values: Vec<f32>) -> Param<Tensor<B, 1>> {
        let shape = [values.len()];
        Param::from_data(TensorData::new(values, shape), self.device)
    }

    fn matrix_param(&self, packed: &PackedMatrix) -> Param<Tensor<B, 2>> {
        let data = TensorData::new(packed.dequantize_rows(0..packed.rows()), [packed.rows(), packed.cols()]);
        Param::from_data(data, self.device)
    }
}

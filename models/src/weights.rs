//! From checkpoint tensors to module parameters.
use crate::backend::Backend;
use crate::error::ModelError;
use crate::layers::{Embedding, Linear, RmsNorm};
use crate::packed::PackedMatrix;
use burn::module::Param;
use burn::tensor::{Tensor, TensorData};
use ember_loaders::checkpoint::TensorSource;
use std::cell::RefCell;

/// How weight matrices are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WeightFormat {
    /// In their GGUF blocks, straight from the mapped file: for inference. Gradients flow through them to inputs.
    #[default]
    Packed,
    /// As f32 Burn parameters: for training every weight. Needs four bytes per weight.
    Dense,
}

/// Reads named tensors of a checkpoint or projector into layers.
pub struct Weights<'a, B: Backend> {
    source: &'a dyn TensorSource,
    format: WeightFormat,
    device: &'a B::Device,
    progress: RefCell<&'a mut dyn FnMut(u64)>,
}

impl<'a, B: Backend> Weights<'a, B> {
    /// A reader of `source` that places parameters on `device`, and calls `progress` with the bytes of weight
    /// matrices done since its last call.
    pub fn new(
        source: &'a dyn TensorSource,
        format: WeightFormat,
        device: &'a B::Device,
        progress: &'a mut dyn FnMut(u64),
    ) -> Self {
        Self { source, format, device, progress: RefCell::new(progress) }
    }

    /// `NAME.weight` `[out, in]` and, when the checkpoint has it, `NAME.bias` `[out]`.
    ///
    /// # Errors
    /// When `NAME.weight` is missing.
    pub fn linear(&self, name: &str) -> Result<Linear<B>, ModelError> {
        let packed = self.packed(name)?;
        let mut placed = self.place(name, vec![packed])?;
        Ok(self.linear_of(name, placed.pop().expect("as many as were placed")))
    }

    /// `PREFIX.NAME` for each name: layers over the same input. Those of one block type lie side by side, so that one
    /// launch computes them all.
    ///
    /// # Errors
    /// As [`linear`](Self::linear).
    pub fn linear_group<const N: usize>(
        &self,
        prefix: &str,
        names: [&str; N],
    ) -> Result<[Linear<B>; N], ModelError> {
        let names = names.map(|name| format!("{prefix}.{name}"));
        let mut layers: [Option<PackedMatrix>; N] = [const { None }; N];
        let packed = names.iter().map(|name| self.packed(name)).collect::<Result<Vec<_>, _>>()?;
        for first in 0..N {
            if layers[first].is_some() {
                continue;
            }
            let alike =
                |&i: &usize| (packed[i].ty(), packed[i].cols()) == (packed[first].ty(), packed[first].cols());
            let group: Vec<usize> = (first..N).filter(alike).collect();
            let matrices = group.iter().map(|&i| packed[i].clone()).collect();
            for (&i, placed) in group.iter().zip(self.place(&names[first], matrices)?) {
                layers[i] = Some(placed);
            }
        }
        let mut names = names.iter();
        Ok(layers.map(|placed| {
            let name = names.next().expect("one name for each layer");
            self.linear_of(name, placed.expect("every layer is in some group"))
        }))
    }

    fn packed(&self, name: &str) -> Result<PackedMatrix, ModelError> {
        Ok(PackedMatrix::new(&self.source.tensor(&format!("{name}.weight"))?))
    }

    fn place(&self, what: &str, matrices: Vec<PackedMatrix>) -> Result<Vec<PackedMatrix>, ModelError> {
        match self.format {
            WeightFormat::Packed => B::place(what, matrices, self.device, &mut **self.progress.borrow_mut()),
            WeightFormat::Dense => Ok(matrices),
        }
    }

    fn linear_of(&self, name: &str, packed: PackedMatrix) -> Linear<B> {
        let bias =
            self.source.opt_tensor(&format!("{name}.bias")).map(|bias| self.vector_param(bias.to_f32()));
        match self.format {
            WeightFormat::Packed => Linear::packed(packed, bias),
            WeightFormat::Dense => Linear::dense(self.matrix_param(&packed), bias),
        }
    }

    /// `NAME.weight` `[vocab, hidden]`.
    ///
    /// # Errors
    /// When it is missing.
    pub fn embedding(&self, name: &str) -> Result<Embedding<B>, ModelError> {
        let packed = self.packed(name)?;
        Ok(match self.format {
            WeightFormat::Packed => {
                let mut placed = self.place(name, vec![packed])?;
                Embedding::packed(placed.pop().expect("as many as were placed"))
            }
            WeightFormat::Dense => Embedding::dense(self.matrix_param(&packed)),
        })
    }

    /// `NAME.weight` `[dim]` as an RMSNorm.
    ///
    /// # Errors
    /// When it is missing.
    pub fn rms_norm(&self, name: &str, eps: f32) -> Result<RmsNorm<B>, ModelError> {
        let weight = self.source.tensor(&format!("{name}.weight"))?;
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

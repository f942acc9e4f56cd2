//! The weights of a model's layers: from a checkpoint, or random.
use crate::backend::Backend;
use crate::error::ModelError;
use crate::layers::{Embedding, Linear, RmsNorm};
use crate::packed::PackedMatrix;
use burn::module::{Initializer, Param};
use burn::tensor::{Tensor, TensorData};
use ember_loaders::checkpoint::{CheckpointError, TensorSource, TensorSpec, WeightTensor};
use std::cell::RefCell;
use std::collections::HashMap;

/// The form in which weight matrices are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WeightFormat {
    /// In their GGUF blocks, straight from the mapped file: for inference. Gradients flow through them to inputs.
    #[default]
    Packed,
    /// As f32 Burn parameters: for training every weight. Needs four bytes per weight.
    Dense,
}

/// Random matrices are normal with the deviation that Qwen3's and Mistral's own configurations have
/// (`initializer_range`); norms start at one, biases at zero.
const RANDOM_MATRIX: Initializer = Initializer::Normal { mean: 0.0, std: 0.02 };

/// Makes layers of the tensors that a model's description names.
pub struct Weights<'a, B: Backend> {
    /// The tensors of the model by name; a layer has a bias, or exists at all, if it is here.
    described: HashMap<String, TensorSpec>,
    origin: Origin<'a>,
    device: &'a B::Device,
}

enum Origin<'a> {
    Stored { source: &'a dyn TensorSource, format: WeightFormat, progress: RefCell<&'a mut dyn FnMut(u64)> },
    Random,
}

/// A weight matrix in either form.
enum Matrix<B: Backend> {
    Dense(Param<Tensor<B, 2>>),
    Packed(PackedMatrix),
}

impl<'a, B: Backend> Weights<'a, B> {
    /// The weights of `source`, of which `tensors` are read. Parameters are made on `device`, and `progress` is called
    /// with the bytes of weight matrices placed since its last call.
    pub fn stored(
        source: &'a dyn TensorSource,
        tensors: Vec<TensorSpec>,
        format: WeightFormat,
        device: &'a B::Device,
        progress: &'a mut dyn FnMut(u64),
    ) -> Self {
        Self::new(tensors, Origin::Stored { source, format, progress: RefCell::new(progress) }, device)
    }

    /// Random dense weights, drawn from the backend's generator (`B::seed`) when a layer is first used.
    pub fn random(tensors: Vec<TensorSpec>, device: &'a B::Device) -> Self {
        Self::new(tensors, Origin::Random, device)
    }

    fn new(tensors: Vec<TensorSpec>, origin: Origin<'a>, device: &'a B::Device) -> Self {
        let described = tensors.into_iter().map(|tensor| (tensor.name.clone(), tensor)).collect();
        Self { described, origin, device }
    }

    /// `NAME.weight` `[out, in]` and, when the model has it, `NAME.bias` `[out]`.
    ///
    /// # Errors
    /// If `NAME.weight` is missing, or the device cannot hold it.
    pub fn linear(&self, name: &str) -> Result<Linear<B>, ModelError> {
        let [layer] = self.linears([name.to_owned()])?;
        Ok(layer)
    }

    /// [`linear`](Self::linear) if the model has that layer.
    ///
    /// # Errors
    /// As [`linear`](Self::linear).
    pub fn opt_linear(&self, name: &str) -> Result<Option<Linear<B>>, ModelError> {
        self.has(name).then(|| self.linear(name)).transpose()
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
        self.linears(names.map(|name| format!("{prefix}.{name}")))
    }

    fn linears<const N: usize>(&self, names: [String; N]) -> Result<[Linear<B>; N], ModelError> {
        let mut matrices = self.matrices(&names)?.into_iter();
        Ok(names.map(|name| {
            let bias = self.bias(&name);
            match matrices.next().expect("one matrix for each name") {
                Matrix::Dense(weight) => Linear::dense(weight, bias),
                Matrix::Packed(weight) => Linear::packed(weight, bias),
            }
        }))
    }

    /// `NAME.weight` `[vocab, hidden]`.
    ///
    /// # Errors
    /// As [`linear`](Self::linear).
    pub fn embedding(&self, name: &str) -> Result<Embedding<B>, ModelError> {
        let table = self.matrices(&[name.to_owned()])?.pop().expect("one matrix for the one name");
        Ok(match table {
            Matrix::Dense(table) => Embedding::dense(table),
            Matrix::Packed(table) => Embedding::packed(table),
        })
    }

    /// `NAME.weight` `[dim]` as an RMSNorm.
    ///
    /// # Errors
    /// If it is missing.
    pub fn rms_norm(&self, name: &str, eps: f32) -> Result<RmsNorm<B>, ModelError> {
        let spec = self.weight(name)?;
        let weight = match &self.origin {
            Origin::Stored { source, .. } => self.vector_param(source.tensor(&spec.name)?.to_f32()),
            Origin::Random => Initializer::Ones.init([spec.elements()], self.device),
        };
        Ok(RmsNorm::new(weight, eps))
    }

    /// [`rms_norm`](Self::rms_norm) if the model has that norm.
    ///
    /// # Errors
    /// As [`rms_norm`](Self::rms_norm).
    pub fn opt_rms_norm(&self, name: &str, eps: f32) -> Result<Option<RmsNorm<B>>, ModelError> {
        self.has(name).then(|| self.rms_norm(name, eps)).transpose()
    }

    /// The values of `NAME.weight` in host memory, if the checkpoint has the tensor.
    pub fn values(&self, name: &str) -> Option<Vec<f32>> {
        match &self.origin {
            Origin::Stored { source, .. } => {
                let spec = self.weight(name).ok()?;
                source.opt_tensor(&spec.name).map(|tensor| tensor.to_f32())
            }
            Origin::Random => None,
        }
    }

    fn has(&self, name: &str) -> bool {
        self.weight(name).is_ok()
    }

    /// The description of `NAME.weight`.
    fn weight(&self, name: &str) -> Result<&TensorSpec, ModelError> {
        let name = format!("{name}.weight");
        Ok(self.described.get(&name).ok_or(CheckpointError::NoSuchTensor(name))?)
    }

    /// `NAME.weight` for each name, in the form asked for and, if packed, on the device.
    fn matrices(&self, names: &[String]) -> Result<Vec<Matrix<B>>, ModelError> {
        let specs = names.iter().map(|name| self.weight(name)).collect::<Result<Vec<_>, _>>()?;
        let Origin::Stored { source, format, progress } = &self.origin else {
            let random = |spec: &&TensorSpec| {
                // Ember's `[out, in]` is contiguous in `in`, the product of all but a GGUF tensor's last size.
                let rows = spec.dims.last().copied().unwrap_or(1);
                Matrix::Dense(RANDOM_MATRIX.init([rows, spec.elements() / rows], self.device))
            };
            return Ok(specs.iter().map(random).collect());
        };
        let tensors: Vec<WeightTensor> =
            specs.iter().map(|spec| source.tensor(&spec.name)).collect::<Result<_, _>>()?;
        let packed: Vec<PackedMatrix> = tensors.iter().map(PackedMatrix::new).collect();
        match format {
            WeightFormat::Dense => {
                Ok(packed.iter().map(|matrix| Matrix::Dense(self.matrix_param(matrix))).collect())
            }
            WeightFormat::Packed => {
                let placed = self.place(names, &packed, &mut **progress.borrow_mut())?;
                Ok(placed.into_iter().map(Matrix::Packed).collect())
            }
        }
    }

    /// The matrices on the device, those of one block type and width side by side.
    fn place(
        &self,
        names: &[String],
        matrices: &[PackedMatrix],
        progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<PackedMatrix>, ModelError> {
        let kind = |i: usize| (matrices[i].ty(), matrices[i].cols());
        let mut placed: Vec<Option<PackedMatrix>> = vec![None; matrices.len()];
        for first in 0..matrices.len() {
            if placed[first].is_some() {
                continue;
            }
            let group: Vec<usize> = (first..matrices.len()).filter(|&i| kind(i) == kind(first)).collect();
            let alike = group.iter().map(|&i| matrices[i].clone()).collect();
            for (&i, matrix) in group.iter().zip(B::place(&names[first], alike, self.device, progress)?) {
                placed[i] = Some(matrix);
            }
        }
        Ok(placed.into_iter().map(|matrix| matrix.expect("every matrix is in some group")).collect())
    }

    fn bias(&self, name: &str) -> Option<Param<Tensor<B, 1>>> {
        let spec = self.described.get(&format!("{name}.bias"))?;
        match &self.origin {
            Origin::Stored { source, .. } => {
                source.opt_tensor(&spec.name).map(|bias| self.vector_param(bias.to_f32()))
            }
            Origin::Random => {
                (!spec.optional).then(|| Initializer::Zeros.init([spec.elements()], self.device))
            }
        }
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

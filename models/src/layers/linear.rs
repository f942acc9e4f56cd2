//! A linear layer whose weight is either a parameter or packed GGUF blocks.
use crate::backend::Backend;
use crate::packed::PackedMatrix;
use burn::module::{Module, Param};
use burn::tensor::Tensor;

/// `y = x · Wᵀ + bias`: one code path for inference, quantized inference and training.
#[derive(Module, Debug)]
pub struct Linear<B: Backend> {
    /// `[out, in]`, when the layer is trained in full.
    dense: Option<Param<Tensor<B, 2>>>,
    /// `[out, in]`, when the weight stays in its blocks.
    packed: Option<PackedMatrix>,
    /// `[out]`.
    bias: Option<Param<Tensor<B, 1>>>,
}

impl<B: Backend> Linear<B> {
    /// A layer over packed blocks, `[out, in]`.
    pub fn packed(weight: PackedMatrix, bias: Option<Param<Tensor<B, 1>>>) -> Self {
        Self { dense: None, packed: Some(weight), bias }
    }

    /// A layer over a parameter, `[out, in]`.
    pub fn dense(weight: Param<Tensor<B, 2>>, bias: Option<Param<Tensor<B, 1>>>) -> Self {
        Self { dense: Some(weight), packed: None, bias }
    }

    /// # Shapes
    /// `[t, in]` to `[t, out]`.
    pub fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let [y] = Self::forward_group([self], x);
        y
    }

    /// Several layers over one input; packed weights share one launch and one quantization of the input.
    ///
    /// # Shapes
    /// `[t, in]` to `[t, out_i]` each.
    pub fn forward_group<const N: usize>(layers: [&Self; N], x: Tensor<B, 2>) -> [Tensor<B, 2>; N] {
        let [t, _] = x.dims();
        let width: usize = layers.iter().map(|layer| layer.out_features()).sum();
        let max_rows = (B::max_elements(&x.device()) / width).max(1);
        if t <= max_rows {
            return Self::forward_rows(layers, x);
        }
        let mut columns: [Vec<Tensor<B, 2>>; N] = [const { Vec::new() }; N];
        for rows in x.split(max_rows, 0) {
            for (column, y) in columns.iter_mut().zip(Self::forward_rows(layers, rows)) {
                column.push(y);
            }
        }
        columns.map(|pieces| Tensor::cat(pieces, 0))
    }

    /// As many rows as the device holds the results of in one buffer.
    fn forward_rows<const N: usize>(layers: [&Self; N], x: Tensor<B, 2>) -> [Tensor<B, 2>; N] {
        let packed: Vec<&PackedMatrix> = layers.iter().filter_map(|layer| layer.packed.as_ref()).collect();
        let mut products =
            if packed.is_empty() { Vec::new() } else { B::packed_linear(x.clone(), &packed) }.into_iter();
        layers.map(|layer| {
            let y = match &layer.dense {
                Some(weight) => B::dense_linear(x.clone(), weight.val()),
                None => products.next().expect("one product for every layer without a dense weight"),
            };
            match &layer.bias {
                Some(bias) => y + bias.val().unsqueeze(),
                None => y,
            }
        })
    }

    fn out_features(&self) -> usize {
        match (&self.dense, &self.packed) {
            (Some(weight), _) => weight.dims()[0],
            (None, Some(weight)) => weight.rows(),
            (None, None) => unreachable!("both constructors set a weight"),
        }
    }
}

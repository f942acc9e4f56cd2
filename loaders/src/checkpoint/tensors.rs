//! The tensors of a model, described once: checking a file, loading it, sizing it and writing one all read this.

use std::iter;

/// The part that a tensor plays in a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorRole {
    /// A matrix of which each token reads one row.
    Embedding,
    /// The matrix that turns the last hidden state into logits.
    Head,
    /// Any other matrix; every row of a step is multiplied with it.
    Matrix,
    /// The weight of an RMSNorm.
    Norm,
    /// A vector added to the product of a matrix.
    Bias,
    /// Divisors of the rotary frequencies.
    RopeFactors,
}

impl TensorRole {
    /// True of the matrices, which may be quantized.
    pub fn is_matrix(self) -> bool {
        matches!(self, Self::Embedding | Self::Head | Self::Matrix)
    }
}

/// One tensor that a model of given hyperparameters has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// GGUF name, such as `blk.3.attn_q.weight`.
    pub name: String,
    /// Index of its block; `None` outside the blocks.
    pub layer: Option<usize>,
    /// Sizes, `dims[0]` contiguous as in [`WeightTensor`](super::WeightTensor): `[cols, rows]` or `[len]`.
    pub dims: Vec<usize>,
    /// Its part in the model.
    pub role: TensorRole,
    /// True when a checkpoint may lack it.
    pub optional: bool,
}

impl TensorSpec {
    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.dims.iter().product()
    }
}

/// The property of a configuration on which a tensor depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// In every model of the description.
    Always,
    /// In none.
    Never,
    /// In some checkpoints, whatever the configuration says.
    IfStored,
    /// With a head of its own.
    Untied,
    /// With an RMSNorm on each head of Q and K.
    QkNorm,
    /// With biases on Q, K and V.
    QkvBias,
    /// In checkpoints with frequency factors, of architectures that may have them.
    RopeFactors,
    /// With a patch merger.
    Merger,
}

/// A configuration that knows its own properties.
pub(crate) trait Conditions {
    /// True when `condition` can hold for a checkpoint of this configuration.
    fn holds(&self, condition: Condition) -> bool;
}

/// A layer with weights: the tensor `NAME.weight` and, on a condition, `NAME.bias`, as long as the weight has rows.
pub(crate) struct Part<C: 'static> {
    /// Name inside Ember, which is that of GGUF text models.
    pub name: &'static str,
    /// Name in the other layout that is read: Hugging Face's of text models, llama.cpp's of projectors.
    pub alias: &'static str,
    /// Role of the weight.
    pub role: TensorRole,
    /// The weight exists on this condition.
    pub weight: Condition,
    /// The bias exists on this condition.
    pub bias: Condition,
    /// Sizes of the weight, contiguous first.
    dims: fn(&C) -> Vec<usize>,
}

impl<C: Conditions> Part<C> {
    /// A part that every model has, without a bias.
    pub const fn new(
        role: TensorRole,
        name: &'static str,
        alias: &'static str,
        dims: fn(&C) -> Vec<usize>,
    ) -> Self {
        Self { name, alias, role, weight: Condition::Always, bias: Condition::Never, dims }
    }

    /// A matrix; see [`new`](Self::new).
    pub const fn matrix(name: &'static str, alias: &'static str, dims: fn(&C) -> Vec<usize>) -> Self {
        Self::new(TensorRole::Matrix, name, alias, dims)
    }

    /// The weight of a norm; see [`new`](Self::new).
    pub const fn norm(name: &'static str, alias: &'static str, dims: fn(&C) -> Vec<usize>) -> Self {
        Self::new(TensorRole::Norm, name, alias, dims)
    }

    /// The same part, there on a condition.
    pub const fn when(mut self, condition: Condition) -> Self {
        self.weight = condition;
        self
    }

    /// The same part with a bias on a condition.
    pub const fn biased(mut self, condition: Condition) -> Self {
        self.bias = condition;
        self
    }

    /// The tensors of the part, named `PREFIX NAME.weight` and `PREFIX NAME.bias`.
    fn tensors(&self, config: &C, prefix: &str, layer: Option<usize>) -> impl Iterator<Item = TensorSpec> {
        let dims = (self.dims)(config);
        let rows = dims.last().copied().into_iter().collect();
        let weight = (self.weight, "weight", self.role, dims);
        let bias = (self.bias, "bias", TensorRole::Bias, rows);
        let there = [weight, bias].into_iter().filter(|(condition, ..)| config.holds(*condition));
        there.map(move |(condition, field, role, dims)| TensorSpec {
            name: format!("{prefix}{}.{field}", self.name),
            layer,
            dims,
            role,
            optional: matches!(condition, Condition::IfStored | Condition::RopeFactors),
        })
    }
}

/// Every tensor of a kind of model with configuration `C`, in the order of a file.
pub(crate) struct Description<C: 'static> {
    /// Parts before the blocks.
    pub before: &'static [Part<C>],
    /// `blk.` in `blk.3.attn_q.weight`.
    pub block_prefix: &'static str,
    /// The parts of each block.
    pub block: &'static [Part<C>],
    /// Parts after the blocks.
    pub after: &'static [Part<C>],
}

impl<C: Conditions> Description<C> {
    /// The tensors of a model with `n_layers` blocks.
    pub fn tensors(&self, config: &C, n_layers: usize) -> Vec<TensorSpec> {
        let outside =
            |parts: &'static [Part<C>]| parts.iter().flat_map(|part| part.tensors(config, "", None));
        let mut tensors: Vec<TensorSpec> = outside(self.before).collect();
        for layer in 0..n_layers {
            let prefix = format!("{}{layer}.", self.block_prefix);
            tensors.extend(self.block.iter().flat_map(|part| part.tensors(config, &prefix, Some(layer))));
        }
        tensors.extend(outside(self.after));
        tensors
    }

    /// The parts outside the blocks.
    pub fn outside(&self) -> impl Iterator<Item = &Part<C>> {
        iter::chain(self.before, self.after)
    }

    /// Splits `blk.12.attn_q.weight` into 12 and `attn_q.weight`.
    pub fn split_block<'a>(&self, name: &'a str) -> Option<(usize, &'a str)> {
        let (layer, rest) = name.strip_prefix(self.block_prefix)?.split_once('.')?;
        Some((layer.parse().ok()?, rest))
    }

    /// The other layout's name of a tensor, if it belongs to a described part.
    pub fn alias(&self, name: &str) -> Option<String> {
        let (module, field) = name.rsplit_once('.')?;
        match self.split_block(module) {
            Some((layer, module)) => {
                let part = self.block.iter().find(|part| part.name == module)?;
                Some(format!("{}{layer}.{}.{field}", self.block_prefix, part.alias))
            }
            None => {
                let part = self.outside().find(|part| part.name == module)?;
                Some(format!("{}.{field}", part.alias))
            }
        }
    }
}

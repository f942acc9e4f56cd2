//! A text model of whichever family its checkpoint is.
use crate::backend::Backend;
use crate::{Batch, Decoder, KvCache, Llama, Mistral3, ModelError, Qwen2, Qwen3, StepOutput, WeightFormat};
use burn::module::Module;
use burn::tensor::{Int, Tensor};
use ember_loaders::checkpoint::{Arch, Checkpoint, ModelConfig};

/// A text model of any supported family, for callers that take every checkpoint.
#[derive(Module, Debug)]
pub enum TextModel<B: Backend> {
    /// See [`Qwen3`].
    Qwen3(Qwen3<B>),
    /// See [`Mistral3`].
    Mistral3(Mistral3<B>),
    /// See [`Llama`].
    Llama(Llama<B>),
    /// See [`Qwen2`].
    Qwen2(Qwen2<B>),
}

impl<B: Backend> TextModel<B> {
    /// Builds the model of a checkpoint on `device`.
    ///
    /// # Errors
    /// If the checkpoint lacks a tensor or the device cannot hold one.
    pub fn load(
        checkpoint: &Checkpoint,
        format: WeightFormat,
        device: &B::Device,
    ) -> Result<Self, ModelError> {
        Self::load_with(checkpoint, checkpoint.config().clone(), format, device, &mut |_| ())
    }

    /// [`load`](Self::load) with other hyperparameters than the checkpoint's, for experiments: another rope scaling or
    /// context length, a norm left out. Sizes must stay those of the tensors.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_as(
        checkpoint: &Checkpoint,
        config: ModelConfig,
        format: WeightFormat,
        device: &B::Device,
    ) -> Result<Self, ModelError> {
        Self::load_with(checkpoint, config, format, device, &mut |_| ())
    }

    /// [`load_as`](Self::load_as), calling `progress` with the bytes of weight matrices placed since its last call.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_with(
        checkpoint: &Checkpoint,
        config: ModelConfig,
        format: WeightFormat,
        device: &B::Device,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self, ModelError> {
        let arch = config.arch;
        let decoder = Decoder::load_with(checkpoint, config, format, device, progress)?;
        Ok(match arch {
            Arch::Qwen3 => Self::Qwen3(Qwen3 { decoder }),
            Arch::Mistral3 => Self::Mistral3(Mistral3 { decoder }),
            Arch::Llama => Self::Llama(Llama { decoder }),
            Arch::Qwen2 => Self::Qwen2(Qwen2 { decoder }),
        })
    }

    /// The family's decoder.
    pub fn decoder(&self) -> &Decoder<B> {
        match self {
            Self::Qwen3(model) => &model.decoder,
            Self::Mistral3(model) => &model.decoder,
            Self::Llama(model) => &model.decoder,
            Self::Qwen2(model) => &model.decoder,
        }
    }

    /// The hyperparameters.
    pub fn config(&self) -> &ModelConfig {
        self.decoder().config()
    }

    /// Logits of every position, without a cache; see [`Decoder::forward`].
    ///
    /// # Shapes
    /// `[batch, seq]` to `[batch, seq, vocab]`.
    pub fn forward(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        self.decoder().forward(tokens)
    }

    /// [`forward`](Self::forward) with the rotary position of each column; see [`Decoder::forward_at`].
    ///
    /// # Shapes
    /// `tokens` is `[batch, seq]`, `positions` has `seq` entries, the result is `[batch, seq, vocab]`.
    pub fn forward_at(&self, tokens: Tensor<B, 2, Int>, positions: &[u32]) -> Tensor<B, 3> {
        self.decoder().forward_at(tokens, positions)
    }

    /// Runs one flat batch against the paged cache and returns the rows that are wanted; see [`Decoder::step`].
    ///
    /// # Errors
    /// [`ModelError::InvalidBatch`] when the batch contradicts itself, the model or the cache.
    pub fn step(
        &self,
        batch: &Batch,
        cache: &mut KvCache,
        device: &B::Device,
    ) -> Result<StepOutput<B>, ModelError> {
        self.decoder().step(batch, cache, device)
    }
}

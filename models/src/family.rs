//! The typed models: one decoder each, accepting only their own checkpoints.

/// Declares a model type over [`Decoder`](crate::Decoder) for one architecture.
macro_rules! decoder_family {
    ($(#[$doc:meta])* $model:ident, $arch:path, $name:literal) => {
        use crate::backend::Backend;
        use crate::{Decoder, ModelError, WeightFormat};
        use burn::module::Module;
        use burn::tensor::{Int, Tensor};
        use ember_loaders::checkpoint::Checkpoint;
        use ember_loaders::gguf::Gguf;

        $(#[$doc])*
        #[derive(Module, Debug)]
        pub struct $model<B: Backend> {
            /// The decoder; its configuration holds what is particular to the family.
            pub decoder: Decoder<B>,
        }

        impl<B: Backend> $model<B> {
            /// Loads a GGUF file, its weights left in their blocks.
            ///
            /// # Errors
            /// When the file is of another architecture or lacks a tensor.
            pub fn from_gguf(
                gguf: Gguf,
                device: &B::Device,
            ) -> Result<Self, ModelError> {
                let checkpoint = Checkpoint::from_gguf(gguf)?;
                Self::from_checkpoint(&checkpoint, WeightFormat::Packed, device)
            }

            /// Loads any checkpoint, with weights packed or as parameters.
            ///
            /// # Errors
            /// When the checkpoint is of another architecture or lacks a tensor.
            pub fn from_checkpoint(
                checkpoint: &Checkpoint,
                format: WeightFormat,
                device: &B::Device,
            ) -> Result<Self, ModelError> {
                match checkpoint.config().arch {
                    $arch => Ok(Self { decoder: Decoder::load(checkpoint, format, device)? }),
                    found => Err(ModelError::WrongArchitecture { found, wanted: $name }),
                }
            }

            /// Logits of every position, without a cache; see [`Decoder::forward`](crate::Decoder::forward).
            ///
            /// # Shapes
            /// `[batch, seq]` to `[batch, seq, vocab]`.
            pub fn forward(
                &self,
                tokens: Tensor<B, 2, Int>,
            ) -> Tensor<B, 3> {
                self.decoder.forward(tokens)
            }
        }
    };
}
pub(crate) use decoder_family;

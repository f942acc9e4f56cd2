//! An image encoder without its backend's type: pixels in, host embeddings out.
use crate::backend::{Backend, read};
use crate::{ModelError, Pixtral, WeightFormat};
use ember_loaders::image::PixelValues;
use ember_loaders::projector::{PixtralConfig, Projector};

/// A vision tower with its projector, on whichever backend it was loaded.
pub trait ImageEncoder {
    /// The tower's hyperparameters.
    fn config(&self) -> &PixtralConfig;
    /// The embeddings of an image: row-major `[cells, text hidden]`.
    ///
    /// # Errors
    /// An image beyond what the device holds, or a device that fails.
    fn encode(&mut self, image: &PixelValues) -> Result<Vec<f32>, ModelError>;
}

/// A [`Pixtral`] on backend `B`.
pub struct PixtralEncoder<B: Backend> {
    model: Pixtral<B>,
    device: B::Device,
}

impl<B: Backend> PixtralEncoder<B> {
    /// Builds the encoder of a projector file, its weights left in their blocks, calling `progress` with the bytes of
    /// weights loaded since its last call.
    ///
    /// # Errors
    /// Weights that the device cannot hold.
    pub fn load(
        projector: &Projector,
        device: B::Device,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self, ModelError> {
        let config = projector.config().clone();
        let model = Pixtral::load_with(projector, config, WeightFormat::Packed, &device, progress)?;
        Ok(Self { model, device })
    }
}

impl<B: Backend> ImageEncoder for PixtralEncoder<B> {
    fn config(&self) -> &PixtralConfig {
        self.model.config()
    }

    fn encode(&mut self, image: &PixelValues) -> Result<Vec<f32>, ModelError> {
        read(self.model.forward(std::slice::from_ref(image), &self.device)?)
    }
}

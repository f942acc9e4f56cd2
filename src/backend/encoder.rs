//! A Pixtral encoder behind the engine's trait.
use crate::engine::EngineError;
use crate::engine::vision::ImageEncoder;
use anyhow::Result;
use ember_loaders::image::PixelValues;
use ember_loaders::projector::{PixtralConfig, Projector};
use ember_models::backend::{Backend, read};
use ember_models::{Pixtral, WeightFormat};

/// A [`Pixtral`] on backend `B`.
pub struct PixtralEncoder<B: Backend> {
    model: Pixtral<B>,
    device: B::Device,
}

impl<B: Backend> PixtralEncoder<B> {
    /// Builds the encoder of a projector file, its weights left in their blocks.
    ///
    /// # Errors
    /// Weights that the device cannot hold.
    pub fn load(
        projector: &Projector,
        device: B::Device,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Box<dyn ImageEncoder>> {
        let config = projector.config().clone();
        let model = Pixtral::load_with(projector, config, WeightFormat::Packed, &device, progress)?;
        Ok(Box::new(Self { model, device }))
    }
}

impl<B: Backend> ImageEncoder for PixtralEncoder<B> {
    fn config(&self) -> &PixtralConfig {
        self.model.config()
    }

    fn encode(&mut self, image: &PixelValues) -> Result<Vec<f32>, EngineError> {
        let embeddings = self.model.forward(std::slice::from_ref(image), &self.device)?;
        Ok(read(embeddings)?)
    }
}

//! From preprocessed images to the embeddings that the text model reads, each distinct image once.
use super::{EncodedImage, EngineError};
use ember_loaders::image::PixelValues;
pub use ember_models::ImageEncoder;
use std::sync::Arc;

/// A preprocessed image and what tells it from others.
#[derive(Clone, Debug)]
pub struct PreparedImage {
    pixels: PixelValues,
    hash: [u8; 32],
}

impl PreparedImage {
    /// Hashes the pixels once, for all their uses.
    pub fn new(pixels: PixelValues) -> Self {
        Self { hash: pixels.content_hash(), pixels }
    }

    /// The pixels.
    pub fn pixels(&self) -> &PixelValues {
        &self.pixels
    }

    /// Hash of the pixels.
    pub fn hash(&self) -> &[u8; 32] {
        &self.hash
    }
}

/// Bytes of embeddings that an [`ImageCache`] keeps by default: eight images of the largest size (55 x 55 cells) for a
/// text model of width 5120.
pub const DEFAULT_CACHE_BYTES: usize = 512 << 20;

/// An encoder that keeps its results: the images of a conversation come with each of its turns.
pub struct ImageCache {
    encoder: Box<dyn ImageEncoder>,
    /// The one used last comes last.
    images: Vec<Arc<EncodedImage>>,
    max_bytes: usize,
}

impl ImageCache {
    /// An empty cache that keeps at most `max_bytes` of embeddings, and always the image used last.
    pub fn new(encoder: Box<dyn ImageEncoder>, max_bytes: usize) -> Self {
        Self { encoder, images: Vec::new(), max_bytes }
    }

    /// The encoder.
    pub fn encoder(&self) -> &dyn ImageEncoder {
        self.encoder.as_ref()
    }

    /// True if [`encode`](Self::encode) has the image at hand.
    pub fn contains(&self, image: &PreparedImage) -> bool {
        self.images.iter().any(|kept| kept.hash == image.hash)
    }

    /// The image's embeddings, computed unless they are kept.
    ///
    /// # Errors
    /// Any error of the encoder; [`EngineError::ImageEncoding`] when its result is not finite or of the wrong size.
    pub fn encode(&mut self, image: &PreparedImage) -> Result<Arc<EncodedImage>, EngineError> {
        let encoded = match self.images.iter().position(|kept| kept.hash == image.hash) {
            Some(at) => self.images.remove(at),
            None => Arc::new(self.compute(image)?),
        };
        self.images.push(encoded.clone());
        self.drop_oldest();
        Ok(encoded)
    }

    fn compute(&mut self, image: &PreparedImage) -> Result<EncodedImage, EngineError> {
        let grid = image.pixels.grid;
        let embeddings = self.encoder.encode(&image.pixels)?;
        let fail = |problem| Err(EngineError::ImageEncoding { problem });
        if let Some(value) = embeddings.iter().find(|value| !value.is_finite()) {
            return fail(value.to_string());
        }
        if embeddings.is_empty() || embeddings.len() % grid.cells().max(1) != 0 {
            return fail(format!("{} values for {} cells", embeddings.len(), grid.cells()));
        }
        Ok(EncodedImage { hash: image.hash, grid, embeddings: embeddings.into() })
    }

    fn drop_oldest(&mut self) {
        let bytes = |image: &Arc<EncodedImage>| size_of_val(&*image.embeddings);
        let mut kept: usize = self.images.iter().map(bytes).sum();
        while kept > self.max_bytes && self.images.len() > 1 {
            kept -= bytes(&self.images.remove(0));
        }
    }
}

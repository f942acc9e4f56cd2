//! From an image to what the encoder takes.

use sha2::{Digest, Sha256};

use super::decode::RgbImage;
use super::resize::{Cubic, resize};
use super::size::{ImageGrid, SizeRule};

/// Brings images to the size and range that an encoder was trained with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preprocessor {
    /// The size.
    pub rule: SizeRule,
    /// Mean of red, green and blue, where 1 is the brightest.
    pub mean: [f32; 3],
    /// Their standard deviations.
    pub std: [f32; 3],
}

/// An image as the encoder takes it.
#[derive(Clone, Debug, PartialEq)]
pub struct PixelValues {
    /// The cells that the pixels make.
    pub grid: ImageGrid,
    /// Pixels a row: the grid's columns x the cell's side.
    pub width: usize,
    /// Rows: the grid's rows x the cell's side.
    pub height: usize,
    /// Normalised values: [3, height, width].
    pub values: Vec<f32>,
}

impl Preprocessor {
    /// Resizes and normalises `image`, as mistral-common's `transform_image`.
    ///
    /// # Panics
    ///
    /// Where `image` has no pixels, or another number of them than its width and height say.
    pub fn preprocess(&self, image: &RgbImage) -> PixelValues {
        let grid = self.rule.grid(image.width, image.height);
        let (width, height) = (grid.cols * self.rule.cell, grid.rows * self.rule.cell);
        let resized = resize(image, width, height, Cubic::OPENCV);
        PixelValues { grid, width, height, values: self.normalize(&resized) }
    }

    /// [height, width, 3] of 0 to 255 to [3, height, width]; each step is rounded to f32, as numpy does it.
    fn normalize(&self, interleaved: &[f32]) -> Vec<f32> {
        let pixels = interleaved.as_chunks::<3>().0;
        let mut planes = Vec::with_capacity(interleaved.len());
        for (channel, (mean, std)) in self.mean.iter().zip(self.std).enumerate() {
            planes.extend(pixels.iter().map(|pixel| (pixel[channel] / 255.0 - mean) / std));
        }
        planes
    }
}

impl PixelValues {
    /// SHA-256 of the size and the values: equal for images that the encoder cannot tell apart.
    pub fn content_hash(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        for size in [self.grid.rows, self.grid.cols, self.height, self.width] {
            hash.update((size as u64).to_le_bytes());
        }
        // Some at a time: the hash is slow to start on few bytes.
        for values in self.values.chunks(1024) {
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            hash.update(bytes);
        }
        hash.finalize().into()
    }
}

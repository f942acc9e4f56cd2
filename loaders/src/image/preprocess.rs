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
    /// If `image` has no pixels, or another number of them than its width and height say.
    pub fn preprocess(&self, image: &RgbImage) -> PixelValues {
        self.preprocess_with(image, Cubic::OPENCV)
    }

    pub(super) fn preprocess_with(&self, image: &RgbImage, cubic: Cubic) -> PixelValues {
        let grid = self.rule.grid(image.width, image.height);
        let (width, height) = (grid.cols * self.rule.cell, grid.rows * self.rule.cell);
        let resized = resize(image, width, height, cubic);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_of_the_size_and_of_every_value() {
        let grid = ImageGrid { rows: 1, cols: 2 };
        let values = (0..24).map(|i| i as f32 / 8.0 - 1.0).collect();
        let image = PixelValues { grid, width: 4, height: 2, values };
        // hashlib.sha256(struct.pack("<4Q24f", 1, 2, 2, 4, *[i / 8 - 1 for i in range(24)])).hexdigest()
        let hex: String = image.content_hash().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "c198a2fb3d7b1ed3ec94fedef338c346dd018faf35ca0907034da1b726592b45");

        let mut hashes = vec![image.content_hash()];
        let turned = PixelValues { width: 2, height: 4, ..image.clone() };
        hashes.push(turned.content_hash());
        for i in 0..24 {
            let mut changed = image.clone();
            changed.values[i] += 0.5;
            hashes.push(changed.content_hash());
        }
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), 26);
    }
}

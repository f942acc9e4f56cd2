//! From the bytes of a file to upright 8-bit RGB pixels.

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;

use image::{ImageDecoder, ImageReader};

use super::error::ImageError;
use super::sniff::Format;
use super::{complete, orientation, pixels};

/// A decoded image: upright, and without transparency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RgbImage {
    /// Pixels a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Red, green and blue of each pixel, row by row from the top: [height, width, 3].
    pub pixels: Vec<u8>,
}

/// The largest image that is decoded. Decoding takes at most about 7 bytes a pixel, beside the file itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageLimits {
    /// Bytes of the file.
    pub max_bytes: u64,
    /// Width x height.
    pub max_pixels: u64,
    /// Width, and height.
    pub max_side: u32,
}

impl Default for ImageLimits {
    /// Fits the largest photographs of phones (200 megapixels: 16320 x 12240) and scans of A4 at 1200 dpi.
    fn default() -> Self {
        Self { max_bytes: 256 << 20, max_pixels: 200_000_000, max_side: 65_535 }
    }
}

impl ImageLimits {
    /// Bytes that the decoder may allocate, those of the decoded pixels included.
    fn max_alloc(&self) -> u64 {
        self.max_pixels.saturating_mul(4)
    }

    fn check_file(&self, bytes: u64) -> Result<(), ImageError> {
        match bytes {
            0 => Err(ImageError::Empty),
            bytes if bytes > self.max_bytes => Err(ImageError::TooManyBytes { bytes, limit: self.max_bytes }),
            _ => Ok(()),
        }
    }

    fn check_pixels(&self, decoder: &impl ImageDecoder) -> Result<(), ImageError> {
        let (width, height) = decoder.dimensions();
        if width == 0 || height == 0 {
            return Err(ImageError::NoPixels { width, height });
        }
        if width.max(height) > self.max_side {
            return Err(ImageError::SideTooLong { width, height, limit: self.max_side });
        }
        if u64::from(width) * u64::from(height) > self.max_pixels {
            return Err(ImageError::TooManyPixels { width, height, limit: self.max_pixels });
        }
        let (bytes, limit) = (decoder.total_bytes(), self.max_alloc());
        if bytes > limit {
            let color = format!("{:?}", decoder.color_type());
            return Err(ImageError::TooMuchMemory { width, height, color, bytes, limit });
        }
        Ok(())
    }
}

/// Reads and decodes the image at `path`, and reads no more of it than the limits allow.
pub fn decode_file(path: &Path, limits: &ImageLimits) -> Result<RgbImage, ImageError> {
    read(path, limits)
        .and_then(|bytes| decode(&bytes, limits))
        .map_err(|problem| ImageError::InFile { path: path.into(), problem: problem.into() })
}

fn read(path: &Path, limits: &ImageLimits) -> Result<Vec<u8>, ImageError> {
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    // The length of a pipe is 0 and that of a device means nothing: what is read is limited as well.
    if len > limits.max_bytes {
        return Err(ImageError::TooManyBytes { bytes: len, limit: limits.max_bytes });
    }
    let mut bytes = Vec::with_capacity(len as usize);
    file.take(limits.max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Decodes a PNG, JPEG, WebP, GIF (its first frame) or BMP file.
///
/// The orientation that Exif metadata names is applied, 16-bit channels keep their upper 8 bits, and transparency is
/// composited over white. Colour profiles are ignored, as mistral-common does.
pub fn decode(bytes: &[u8], limits: &ImageLimits) -> Result<RgbImage, ImageError> {
    limits.check_file(bytes.len() as u64)?;
    let format = Format::of(bytes)?;
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format.into());
    let mut decoder_limits = image::Limits::no_limits();
    decoder_limits.max_alloc = Some(limits.max_alloc());
    reader.limits(decoder_limits);
    let mut decoder = reader.into_decoder().map_err(|e| undecodable(format, e))?;
    limits.check_pixels(&decoder)?;
    if !complete::is_complete(format, bytes) {
        return Err(ImageError::Truncated { format: format.name() });
    }
    let orientation = orientation::read(format, bytes, &mut decoder);
    let (width, height) = decoder.dimensions();
    let color = decoder.color_type();
    let mut raw = vec![0; decoder.total_bytes() as usize];
    decoder.read_image(&mut raw).map_err(|e| undecodable(format, e))?;
    let pixels = pixels::to_rgb8(color, raw).ok_or_else(|| ImageError::Undecodable {
        format: format.name(),
        problem: format!("its pixels are {color:?}"),
    })?;
    Ok(orientation::apply(orientation, width, height, pixels))
}

fn undecodable(format: Format, error: image::ImageError) -> ImageError {
    let format = format.name();
    if complete::is_unexpected_end(&error) {
        return ImageError::Truncated { format };
    }
    ImageError::Undecodable { format, problem: error.to_string() }
}

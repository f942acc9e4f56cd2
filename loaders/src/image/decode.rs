//! From the bytes of a file to upright 8-bit RGB pixels.

use std::error::Error;
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

/// Bytes that a decoder may allocate beside pixels: rows, tables, a colour profile.
const BESIDE_PIXELS: u64 = 16 << 20;

/// The largest image that is decoded. Decoding takes 6 to 11 bytes a pixel, and the file once or twice.
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
    /// Fits the largest photographs of phones (200 megapixels: 16320 x 12240) and scans of A4 at 1200 dpi. Where files
    /// come from strangers, the 2 GB that such an image may take are a reason to allow less.
    fn default() -> Self {
        Self { max_bytes: 256 << 20, max_pixels: 200_000_000, max_side: 65_535 }
    }
}

impl ImageLimits {
    fn check_file(&self, bytes: u64) -> Result<(), ImageError> {
        match bytes {
            0 => Err(ImageError::Empty),
            bytes if bytes > self.max_bytes => Err(ImageError::TooManyBytes { bytes, limit: self.max_bytes }),
            _ => Ok(()),
        }
    }

    fn check_size(&self, (width, height): (u32, u32)) -> Result<(), ImageError> {
        if width == 0 || height == 0 {
            return Err(ImageError::NoPixels { width, height });
        }
        if width.max(height) > self.max_side {
            return Err(ImageError::SideTooLong { width, height, limit: self.max_side });
        }
        if u64::from(width) * u64::from(height) > self.max_pixels {
            return Err(ImageError::TooManyPixels { width, height, limit: self.max_pixels });
        }
        Ok(())
    }

    fn check_memory(&self, decoder: &impl ImageDecoder) -> Result<(), ImageError> {
        let (bytes, limit) = (decoder.total_bytes(), self.max_pixels.saturating_mul(4));
        if bytes > limit {
            let (width, height) = decoder.dimensions();
            let color = pixels::name(decoder.color_type());
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
    if !complete::is_complete(format, bytes) {
        return Err(ImageError::Truncated { format: format.name() });
    }
    // The decoders have limits of their own, and their errors do not all name the size.
    let header_size = format.header_size(bytes);
    header_size.map_or(Ok(()), |size| limits.check_size(size))?;
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format.into());
    reader.limits(decoder_limits(header_size));
    let mut decoder = reader.into_decoder().map_err(|e| undecodable(format, e))?;
    limits.check_size(decoder.dimensions())?;
    limits.check_memory(&decoder)?;
    let orientation = orientation::read(format, bytes, &mut decoder);
    let (width, height) = decoder.dimensions();
    let color = decoder.color_type();
    let mut raw = vec![0; decoder.total_bytes() as usize];
    decoder.read_image(&mut raw).map_err(|e| undecodable(format, e))?;
    let pixels = pixels::to_rgb8(color, raw).ok_or_else(|| ImageError::Undecodable {
        format: format.name(),
        problem: format!("its pixels are {}", pixels::name(color)),
    })?;
    Ok(orientation::apply(orientation, width, height, pixels))
}

/// Against GIF frames that are larger than the screen, and PNG profiles that unpack to gigabytes. The decoders of JPEG
/// and WebP allocate by the size that is checked before they read pixels.
fn decoder_limits(header_size: Option<(u32, u32)>) -> image::Limits {
    let mut limits = image::Limits::no_limits();
    limits.max_alloc = header_size.map(|(w, h)| BESIDE_PIXELS + 4 * u64::from(w) * u64::from(h));
    limits
}

fn undecodable(format: Format, error: image::ImageError) -> ImageError {
    let format = format.name();
    if complete::is_unexpected_end(&error) {
        return ImageError::Truncated { format };
    }
    // The error's own text says "Format error decoding" and the format again.
    let problem = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    ImageError::Undecodable { format, problem: problem.trim_end().into() }
}

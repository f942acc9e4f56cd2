//! The orientation that Exif metadata gives an image.

use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder};

use super::decode::RgbImage;
use super::sniff::Format;

/// The transformation of the pixels that makes the image upright.
pub(super) fn read(format: Format, bytes: &[u8], decoder: &mut impl ImageDecoder) -> Orientation {
    let orientation = match format {
        // The decoder reads no further than the pixels; some programs write the metadata behind them.
        Format::Png => png_exif(bytes).and_then(Orientation::from_exif_chunk),
        // Metadata that cannot be read is no reason to refuse the image.
        _ => decoder.orientation().ok(),
    };
    orientation.unwrap_or(Orientation::NoTransforms)
}

/// The content of a PNG file's eXIf chunk.
fn png_exif(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = bytes.get(8..)?;
    loop {
        // Length, type, content, CRC.
        let (len, after_len) = rest.split_first_chunk::<4>()?;
        let (kind, after_kind) = after_len.split_first_chunk::<4>()?;
        let (content, after_content) = after_kind.split_at_checked(u32::from_be_bytes(*len) as usize)?;
        if kind == b"eXIf" {
            return Some(content);
        }
        rest = after_content.get(4..)?;
    }
}

/// The image with its pixels rearranged.
pub(super) fn apply(orientation: Orientation, width: u32, height: u32, pixels: Vec<u8>) -> RgbImage {
    let buffer = image::RgbImage::from_raw(width, height, pixels).expect("three bytes a pixel");
    let mut image = DynamicImage::ImageRgb8(buffer);
    image.apply_orientation(orientation);
    let (width, height) = (image.width() as usize, image.height() as usize);
    RgbImage { width, height, pixels: image.into_bytes() }
}

//! A check that a file ends where its format says: decoders fill what is missing with grey.

use std::error::Error;
use std::io;

use super::sniff::Format;

/// True if nothing is cut off a JPEG or WebP file; the decoders of the other formats notice by themselves.
pub(super) fn is_complete(format: Format, bytes: &[u8]) -> bool {
    match format {
        Format::Jpeg => has_end_of_image(bytes).is_some(),
        // "RIFF", the number of bytes that follow.
        Format::WebP => {
            let len = bytes.get(4..8).and_then(|len| len.first_chunk()).copied().map(u32::from_le_bytes);
            len.is_some_and(|len| bytes.len() as u64 >= u64::from(len) + 8)
        }
        Format::Png | Format::Gif | Format::Bmp => true,
    }
}

/// Walks from segment to segment, so that the thumbnail within the metadata is not taken for the image.
fn has_end_of_image(jpeg: &[u8]) -> Option<()> {
    const END_OF_IMAGE: u8 = 0xd9;
    let mut rest = jpeg.get(2..)?;
    loop {
        // A marker is 0xff, perhaps repeated, and its code; what stands before it is a scan or padding.
        let at = rest.windows(2).position(|pair| pair[0] == 0xff && !matches!(pair[1], 0 | 0xff))?;
        let marker = rest[at + 1];
        rest = &rest[at + 2..];
        match marker {
            END_OF_IMAGE => return Some(()),
            // Restart markers stand within scans and TEM alone.
            0x01 | 0xd0..=0xd8 => {}
            _ => {
                let len = u16::from_be_bytes(*rest.first_chunk()?);
                rest = rest.get(usize::from(len)..)?;
            }
        }
    }
}

/// True if a decoder failed because the file is too short.
pub(super) fn is_unexpected_end(error: &image::ImageError) -> bool {
    // The source of this variant is that of the inner error.
    if let image::ImageError::IoError(e) = error {
        return e.kind() == io::ErrorKind::UnexpectedEof;
    }
    let mut cause = error.source();
    while let Some(error) = cause {
        if error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::UnexpectedEof) {
            return true;
        }
        cause = error.source();
    }
    false
}

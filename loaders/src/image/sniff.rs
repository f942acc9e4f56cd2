//! The kind of a file, by its first bytes.

use image::ImageFormat;

use super::error::ImageError;

/// The accepted formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Png,
    Jpeg,
    WebP,
    Gif,
    Bmp,
}

/// First bytes of what users pass instead of an accepted image.
const OTHERS: &[(&[u8], &str)] = &[
    (b"II*\0", "a TIFF file"),
    (b"MM\0*", "a TIFF file"),
    (b"%PDF-", "a PDF file"),
    (b"8BPS", "a Photoshop file"),
    (b"\0\0\x01\0", "an ICO file"),
    (b"\xff\x0a", "a JPEG XL file"),
    (b"\0\0\0\x0cJXL ", "a JPEG XL file"),
    (b"\0\0\0\x0cjP  ", "a JPEG 2000 file"),
    (b"\xff\x4f\xff\x51", "a JPEG 2000 file"),
    (b"qoif", "a QOI file"),
    (b"DDS ", "a DDS file"),
    (b"#?RADIANCE", "a Radiance HDR file"),
    (b"\x76\x2f\x31\x01", "an OpenEXR file"),
    (b"RIFF", "an AVI or WAV file"),
    (b"\x1aE\xdf\xa3", "a Matroska or WebM video"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x1f\x8b", "a gzip file"),
    (b"GGUF", "a GGUF model"),
    (b"version https://git-lfs", "a Git LFS pointer (run `git lfs pull`)"),
];

impl Format {
    /// The format of a file, or an error that names what it is instead.
    pub fn of(bytes: &[u8]) -> Result<Self, ImageError> {
        match bytes {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Ok(Self::Png),
            [0xff, 0xd8, 0xff, ..] => Ok(Self::Jpeg),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Ok(Self::WebP),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Ok(Self::Gif),
            [b'B', b'M', ..] => Ok(Self::Bmp),
            _ => Err(ImageError::UnsupportedFormat { looks_like: other(bytes) }),
        }
    }

    /// Width and height, in the formats that have them at a fixed place.
    pub fn header_size(self, bytes: &[u8]) -> Option<(u32, u32)> {
        let u16_at = |at: usize| Some(u32::from(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?)));
        let four_at = |at: usize| bytes.get(at..)?.first_chunk::<4>().copied();
        match self {
            Self::Png => Some((u32::from_be_bytes(four_at(16)?), u32::from_be_bytes(four_at(20)?))),
            Self::Gif => Some((u16_at(6)?, u16_at(8)?)),
            // By the length of the header: OS/2's old one has 16-bit sizes; in the others a negative height means
            // that the top row comes first.
            Self::Bmp if u32::from_le_bytes(four_at(14)?) == 12 => Some((u16_at(18)?, u16_at(20)?)),
            Self::Bmp => {
                let height = i32::from_le_bytes(four_at(22)?).unsigned_abs();
                Some((u32::from_le_bytes(four_at(18)?), height))
            }
            Self::Jpeg | Self::WebP => None,
        }
    }

    /// Its usual name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Png => "PNG",
            Self::Jpeg => "JPEG",
            Self::WebP => "WebP",
            Self::Gif => "GIF",
            Self::Bmp => "BMP",
        }
    }
}

impl From<Format> for ImageFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::Png => Self::Png,
            Format::Jpeg => Self::Jpeg,
            Format::WebP => Self::WebP,
            Format::Gif => Self::Gif,
            Format::Bmp => Self::Bmp,
        }
    }
}

fn other(bytes: &[u8]) -> Option<&'static str> {
    if let Some((_, name)) = OTHERS.iter().find(|(start, _)| bytes.starts_with(start)) {
        return Some(name);
    }
    // ISO base media: size, "ftyp", the major brand, a version, compatible brands.
    if bytes.get(4..8) == Some(b"ftyp") {
        let brands = bytes[8..bytes.len().min(64)].as_chunks::<4>().0;
        let has = |names: &[&[u8; 4]]| brands.iter().any(|brand| names.contains(&brand));
        return Some(match () {
            () if has(&[b"avif", b"avis"]) => "an AVIF file",
            () if has(&[b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1"]) => "a HEIC file",
            () => "an MP4 or QuickTime video",
        });
    }
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(1024)]).to_lowercase();
    let text = text.trim_start_matches('\u{feff}').trim_start();
    match text {
        _ if text.starts_with('<') && text.contains("<svg") && !text.contains("<html") => Some("an SVG file"),
        _ if text.starts_with("<!doctype html") || text.starts_with("<html") => Some("an HTML page"),
        _ => None,
    }
}

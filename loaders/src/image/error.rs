//! Errors of reading images.

use std::io;
use std::path::PathBuf;

/// The reason an image cannot be used; each message says what to do about it, or which limit is meant.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Something is wrong with a file on disk.
    #[error("{}: {problem}", path.display())]
    InFile {
        /// The path as given.
        path: PathBuf,
        /// The problem with it.
        problem: Box<ImageError>,
    },
    /// The file cannot be read.
    #[error("cannot read the image: {0}")]
    Io(#[from] io::Error),
    /// There are no bytes at all.
    #[error("the image is empty (0 bytes)")]
    Empty,
    /// Not one of the accepted formats.
    #[error("{}; accepted are PNG, JPEG, WebP, GIF and BMP", found(*looks_like))]
    UnsupportedFormat {
        /// The format that the bytes look like, where that is known.
        looks_like: Option<&'static str>,
    },
    /// The file is too large to be read.
    #[error("the image file has {bytes} bytes, more than the limit of {limit}; scale the image down")]
    TooManyBytes {
        /// Bytes of the file.
        bytes: u64,
        /// [`ImageLimits::max_bytes`](super::ImageLimits::max_bytes).
        limit: u64,
    },
    /// The image has too many pixels.
    #[error("the image is {width}x{height} ({:.1} megapixels), more than the limit of {:.1} megapixels; scale it down",
        (u64::from(*width) * u64::from(*height)) as f64 / 1e6, *limit as f64 / 1e6)]
    TooManyPixels {
        /// Its width in pixels.
        width: u32,
        /// Its height in pixels.
        height: u32,
        /// [`ImageLimits::max_pixels`](super::ImageLimits::max_pixels).
        limit: u64,
    },
    /// The image is too wide or too high.
    #[error("the image is {width}x{height}, more than the limit of {limit} pixels a side; scale it down")]
    SideTooLong {
        /// Its width in pixels.
        width: u32,
        /// Its height in pixels.
        height: u32,
        /// [`ImageLimits::max_side`](super::ImageLimits::max_side).
        limit: u32,
    },
    /// Its pixels are so wide (16 bits a channel, alpha) that they would take too much memory.
    #[error(
        "the image is {width}x{height} in {color}, which takes {bytes} bytes to decode, more than the limit \
        of {limit}; scale it down or save it with 8 bits a channel"
    )]
    TooMuchMemory {
        /// Its width in pixels.
        width: u32,
        /// Its height in pixels.
        height: u32,
        /// The kind of its pixels.
        color: String,
        /// Bytes of all its pixels.
        bytes: u64,
        /// The most that is decoded: four bytes for each of the pixels that are allowed.
        limit: u64,
    },
    /// The header gives the image no pixels.
    #[error("the image is {width}x{height}: it has no pixels")]
    NoPixels {
        /// Its width in pixels.
        width: u32,
        /// Its height in pixels.
        height: u32,
    },
    /// The file ends too early.
    #[error("the {format} image is incomplete: it ends before its last pixel (a broken download or copy?)")]
    Truncated {
        /// The format of the file.
        format: &'static str,
    },
    /// The bytes break the format, or use a part of it that is not supported.
    #[error("the {format} image cannot be decoded: {problem}")]
    Undecodable {
        /// The format of the file.
        format: &'static str,
        /// The decoder's message.
        problem: String,
    },
}

fn found(looks_like: Option<&str>) -> String {
    match looks_like {
        Some(kind) => format!("{kind} is not a supported image"),
        None => "this is not an image of a known format".into(),
    }
}

//! Images for Pixtral: decoding, and the size rule, cubic resizing and normalisation of mistral-common.

mod complete;
mod decode;
mod error;
mod orientation;
#[cfg(test)]
mod parity;
mod pixels;
mod preprocess;
mod resize;
mod size;
mod sniff;

pub use decode::{ImageLimits, RgbImage, decode, decode_file};
pub use error::ImageError;
pub use preprocess::{PixelValues, Preprocessor};
pub use size::{ImageGrid, SizeRule};

//! Files of the fixture folder, and the pixels that Pillow makes of them.
#![allow(dead_code, reason = "no test target uses all of it")]

use std::path::PathBuf;

use ember_loaders::image::{ImageError, ImageLimits, RgbImage, decode};
use ember_test_support::TensorFile;

/// A file of the fixtures.
pub fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name)).unwrap()
}

/// The fixtures that stand for files of users: name and content, in the order of their names.
pub fn files() -> Vec<(String, Vec<u8>)> {
    let names = std::fs::read_dir(folder().join("decode")).unwrap();
    let mut names: Vec<String> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names.into_iter().map(|name| (name.clone(), fixture(&format!("decode/{name}")))).collect()
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/image")
}

/// Decodes under the default limits.
pub fn decode_default(bytes: &[u8]) -> Result<RgbImage, ImageError> {
    decode(bytes, &ImageLimits::default())
}

/// What Pillow makes of the file.
pub fn expected(name: &str) -> RgbImage {
    let file = TensorFile::open(folder().join("decode.safetensors"));
    let [height, width, 3] = file.shape(name)[..] else { panic!("{name}: {:?}", file.shape(name)) };
    RgbImage { width, height, pixels: file.bytes(name) }
}

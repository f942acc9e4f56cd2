//! The tiny vision models, with a chat template and beside their projectors, and pictures for them.
#![allow(dead_code, reason = "each test binary uses a part")]
use ember_loaders::gguf::{Gguf, TensorInfo};
use ember_test_support::GgufFile;
use std::fs;
use std::path::{Path, PathBuf};

/// Side in pixels of a cell of `gelu-2`.
pub const CELL: usize = 28;

pub fn fixture(path: &str) -> String {
    ember_test_support::fixture("vision").join(path).to_str().unwrap().to_owned()
}

/// A folder of one's own for a test.
pub fn folder(name: &str) -> PathBuf {
    let own = format!("{}-{name}", std::process::id());
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(own);
    let _absent = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Writes a BMP image of `rows` x `cols` cells, whose colours depend on `seed`.
pub fn image(folder: &Path, name: &str, (rows, cols): (usize, usize), seed: usize) -> String {
    let (height, width) = (rows * CELL, cols * CELL);
    let mut bytes = b"BM".to_vec();
    // Its header, of 14 and 40 bytes, and no palette; a row is a multiple of 4 bytes, as `CELL` is.
    bytes.extend([0, 0, 54, 40, width as u32, height as u32].map(u32::to_le_bytes).concat());
    bytes.extend([1_u16, 24].map(u16::to_le_bytes).concat());
    bytes.extend([0; 24]);
    bytes.extend((0..width * height * 3).map(|i| ((i * (seed + 7)) % 251) as u8));
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Copies fixtures to a folder under other names.
pub fn copies<const N: usize>(folder: &Path, files: [(&str, &str); N]) {
    for (from, to) in files {
        fs::copy(fixture(from), folder.join(to)).unwrap();
    }
}

/// `gelu-2` with a real Mistral's chat template, beside its projector; the path of the model.
pub fn with_template(folder: &Path) -> String {
    let template = "chat/templates/mistral-common-v7-tekken-image.jinja";
    let template = fs::read_to_string(ember_test_support::fixture(template)).unwrap();
    let model = folder.join("model.gguf");
    rewrite(&fixture("gelu-2/text-f32.gguf"), &model, &template);
    copies(folder, [("gelu-2/mmproj-f32.gguf", "mmproj-mistral.gguf")]);
    model.to_str().unwrap().to_owned()
}

/// Copies a model with another chat template.
fn rewrite(from: &str, to: &Path, template: &str) {
    let gguf = Gguf::open(from).unwrap();
    let metadata = gguf.metadata().iter().map(|(key, value)| match key {
        "tokenizer.chat_template" => (key.to_owned(), template.into()),
        _ => (key.to_owned(), value.clone()),
    });
    let tensor = |info: &TensorInfo| {
        (info.name.clone(), info.ty.computable().unwrap(), info.dims.clone(), gguf.bytes(info).to_vec())
    };
    let tensors = gguf.tensors().iter().map(tensor).collect();
    fs::write(to, GgufFile { metadata: metadata.collect(), tensors }.into_bytes()).unwrap();
}

//! Loading a model, for commands that run it.
use anyhow::Result;
use ember::{EncodedImages, ImageFile, Model, ModelFiles};
use std::path::PathBuf;

use super::output;

/// Loads the weights and says on stderr what was loaded.
///
/// # Errors
/// If the device cannot hold the model.
pub fn load(files: ModelFiles) -> Result<Model> {
    let model = files.load()?;
    eprintln!("{}", model.description());
    let config = model.files().config();
    if let Some(label) = &config.relabelled_from {
        eprintln!("labelled {label}, served as {}", config.arch);
    }
    Ok(model)
}

/// Reads the images of a command, with the projector of its model, which is named on stderr.
///
/// # Errors
/// If the model takes no images, no projector fits it, or a file cannot be read.
pub fn read_images(files: &mut ModelFiles, paths: &[PathBuf]) -> Result<Vec<ImageFile>> {
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    let vision = files.vision()?;
    eprintln!("{}", vision.description());
    Ok(paths.iter().map(|path| vision.read(path)).collect::<Result<_, _>>()?)
}

/// Says on stderr what was encoded and how fast, when anything was.
pub fn report_images(encoded: &EncodedImages) {
    let (n, tokens, seconds) = (encoded.n_new, encoded.new_tokens, encoded.time.as_secs_f64());
    if n > 0 {
        let images = if n == 1 { "image" } else { "images" };
        let rate = tokens as f64 / seconds;
        let line = format!("{n} {images} encoded: {tokens} tokens in {seconds:.2} s, {rate:.1} tokens/s");
        output::dim_line(&line);
    }
}

//! Images for a model: opening its projector, reading image files, and encoding them.
mod search;

use crate::bytes::DecimalBytes;
use crate::chat::Message;
use crate::device::{self, DeviceOptions};
use crate::engine::vision::{DEFAULT_CACHE_BYTES, ImageCache, PreparedImage};
use crate::engine::{EncodedImage, ImageSpan};
use crate::error::Error;
use crate::progress::{Progress, Reporter};
use ember_loaders::checkpoint::Checkpoint;
use ember_loaders::image::{ImageGrid, ImageLimits, Preprocessor, decode_file};
use ember_loaders::projector::Projector;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An image that was read from a file and brought to the size that the encoder takes.
#[derive(Clone, Debug)]
pub struct ImageFile {
    /// The file's absolute path.
    pub path: PathBuf,
    /// The pixels.
    pub image: Arc<PreparedImage>,
}

impl ImageFile {
    /// The grid of cells that the image's tokens stand for.
    pub fn grid(&self) -> ImageGrid {
        self.image.pixels().grid
    }

    /// A message of images and the text after them.
    pub fn message(role: &str, images: &[Self], text: impl Into<String>) -> Message {
        if images.is_empty() {
            return Message::text(role, text);
        }
        Message::with_images(role, images.iter().map(|file| file.path.display().to_string()), text)
    }
}

/// The embeddings of the images of a prompt, and the time that they took.
#[derive(Clone, Debug, Default)]
pub struct EncodedImages {
    /// The images, in the order of the prompt.
    pub images: Vec<Arc<EncodedImage>>,
    /// Number of the images that were not encoded before.
    pub n_new: usize,
    /// Tokens of the images that were not encoded before.
    pub new_tokens: usize,
    /// Time that encoding took.
    pub time: Duration,
}

impl EncodedImages {
    /// The images at the given tokens of a prompt.
    pub fn at(&self, starts: &[usize]) -> Vec<ImageSpan> {
        let span = |(&start, image): (&usize, &Arc<EncodedImage>)| ImageSpan { start, image: image.clone() };
        starts.iter().zip(&self.images).map(span).collect()
    }

    /// Number of tokens of each image.
    pub fn token_counts(&self) -> Vec<usize> {
        self.images.iter().map(|image| image.grid.tokens()).collect()
    }
}

/// A Pixtral projector, loaded onto its device when the first image is to be encoded.
pub struct VisionModel {
    path: PathBuf,
    projector: Projector,
    preprocessor: Preprocessor,
    device: DeviceOptions,
    cache: Option<ImageCache>,
}

impl VisionModel {
    /// Opens the projector of a model: the file `named`, or the one beside the model that fits it. Images are scaled down
    /// to at most `max_tokens` tokens each.
    ///
    /// # Errors
    /// [`Error::Projector`] when no projector fits the model.
    pub fn open_for(
        checkpoint: &Checkpoint,
        named: Option<&Path>,
        max_tokens: Option<usize>,
        device: &DeviceOptions,
    ) -> Result<Self, Error> {
        let (path, projector) = search::open_for(checkpoint, named)?;
        Ok(Self::new(path, projector, max_tokens, device))
    }

    /// Opens a projector file without a model.
    ///
    /// # Errors
    /// [`Error::Projector`] when the file is not a projector.
    pub fn open(path: &Path, max_tokens: Option<usize>, device: &DeviceOptions) -> Result<Self, Error> {
        Ok(Self::new(path.to_owned(), search::open(path)?, max_tokens, device))
    }

    fn new(path: PathBuf, projector: Projector, max_tokens: Option<usize>, device: &DeviceOptions) -> Self {
        let preprocessor = projector.preprocessor(max_tokens);
        Self { path, projector, preprocessor, device: *device, cache: None }
    }

    /// The paths of the projector's files.
    pub fn paths(&self) -> &[PathBuf] {
        self.projector.gguf().paths()
    }

    /// A line that describes the projector to people.
    pub fn description(&self) -> String {
        let bytes = DecimalBytes(self.projector.gguf().file_bytes());
        let config = self.projector.config();
        let assumed = match config.activation_named {
            true => String::new(),
            false => format!("; it names no activation, {} is taken", config.activation),
        };
        format!("projector {}, {bytes}{assumed}", self.path.display())
    }

    /// Reads an image file (PNG, JPEG, WebP, the first frame of a GIF, BMP) and scales it.
    ///
    /// # Errors
    /// [`Error::Image`] for a file that cannot be read or decoded or is beyond the limits, [`Error::RemoteImage`] for the
    /// address of an image on the web.
    pub fn read(&self, path: &Path) -> Result<ImageFile, Error> {
        let name = path.to_string_lossy();
        if ["http://", "https://"].iter().any(|scheme| name.to_lowercase().starts_with(scheme)) {
            return Err(Error::RemoteImage(name.into_owned()));
        }
        let image = decode_file(path, &ImageLimits::default())?;
        let image = Arc::new(PreparedImage::new(self.preprocessor.preprocess(&image)));
        let absolute = std::path::absolute(path);
        let path = absolute.map_err(|source| Error::Io { path: path.to_owned(), source })?;
        Ok(ImageFile { path, image })
    }

    /// Encodes images, each of them once, however often it is asked for.
    ///
    /// # Errors
    /// [`Error::Backend`] when the device cannot hold the projector, [`Error::Engine`] when encoding fails,
    /// [`Error::Cancelled`] when the progress callback asked to stop.
    pub fn encode(&mut self, images: &[ImageFile], progress: &Reporter) -> Result<EncodedImages, Error> {
        let mut encoded = EncodedImages::default();
        if images.is_empty() {
            return Ok(encoded);
        }
        let mut cache = match self.cache.take() {
            Some(cache) => cache,
            None => load(&self.projector, &self.device, progress)?,
        };
        let started = Instant::now();
        let result = encode_all(&mut cache, images, &mut encoded, progress);
        self.cache = Some(cache);
        encoded.time = started.elapsed();
        // Asked once more: the last image may have taken long.
        let stop = progress.report(Progress::Done).is_break();
        result?;
        if stop { Err(Error::Cancelled) } else { Ok(encoded) }
    }
}

fn encode_all(
    cache: &mut ImageCache,
    images: &[ImageFile],
    encoded: &mut EncodedImages,
    progress: &Reporter,
) -> Result<(), Error> {
    for (at, file) in images.iter().enumerate() {
        let tokens = file.grid().tokens();
        if !cache.contains(&file.image) {
            encoded.n_new += 1;
            encoded.new_tokens += tokens;
        }
        let report = Progress::EncodingImage { nth: at + 1, of: images.len(), tokens };
        if progress.report(report).is_break() {
            return Err(Error::Cancelled);
        }
        encoded.images.push(cache.encode(&file.image)?);
    }
    Ok(())
}

fn load(projector: &Projector, options: &DeviceOptions, progress: &Reporter) -> Result<ImageCache, Error> {
    let total = projector.matrix_bytes() as u64;
    let mut done = 0;
    let encoder = device::load_projector(projector, options, &mut |bytes| {
        done += bytes;
        // Loading cannot be cancelled.
        let _goes_on = progress.report(Progress::LoadingProjector { done, total });
    });
    progress.done();
    let encoder = encoder?;
    Ok(ImageCache::new(encoder, DEFAULT_CACHE_BYTES))
}

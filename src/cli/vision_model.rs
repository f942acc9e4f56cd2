//! Images for a model: reading their files, and encoding them through a projector.
use super::args::DeviceArgs;
use super::backend_error::with_flags;
use super::interrupt::Listener;
use super::output;
use super::progress::{Bar, Spinner};
use super::projector::{self, ProjectorArgs};
use anyhow::{Result, bail};
use ember::backend::{self, KvType, LoadOptions};
use ember::chat::{ImageTokens, Message};
use ember::engine::vision::{DEFAULT_CACHE_BYTES, ImageCache, PreparedImage};
use ember::engine::{EncodedImage, ImageSpan};
use ember_loaders::checkpoint::Checkpoint;
use ember_loaders::image::{ImageGrid, ImageLimits, Preprocessor, decode_file};
use ember_loaders::projector::Projector;
use ember_loaders::tokenizer::Tokenizer;
use indicatif::DecimalBytes;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An image that was read from a file.
#[derive(Clone)]
pub struct ImageFile {
    /// Absolute.
    pub path: PathBuf,
    pub image: Arc<PreparedImage>,
}

impl ImageFile {
    /// The cells that its tokens stand for.
    pub fn grid(&self) -> ImageGrid {
        self.image.pixels().grid
    }
}

/// A message of images and the text after them.
pub fn message(role: &str, images: &[ImageFile], text: String) -> Message {
    if images.is_empty() {
        return Message::text(role, text);
    }
    Message::with_images(role, images.iter().map(|file| file.path.display().to_string()), text)
}

/// Images as the text model reads them.
#[derive(Default)]
pub struct EncodedImages {
    pub images: Vec<Arc<EncodedImage>>,
    /// How many of them were not encoded before.
    pub n_new: usize,
    /// Their tokens.
    pub new_tokens: usize,
    pub time: Duration,
}

impl EncodedImages {
    /// The images at their places in a prompt.
    pub fn at(&self, starts: &[usize]) -> Vec<ImageSpan> {
        let span = |(&start, image): (&usize, &Arc<EncodedImage>)| ImageSpan { start, image: image.clone() };
        starts.iter().zip(&self.images).map(span).collect()
    }

    /// Tokens of each image.
    pub fn token_counts(&self) -> Vec<usize> {
        self.images.iter().map(|image| image.grid.tokens()).collect()
    }

    /// Says on stderr what was encoded and how fast, when anything was.
    pub fn report(&self) {
        let (n, tokens, seconds) = (self.n_new, self.new_tokens, self.time.as_secs_f64());
        if n > 0 {
            let images = if n == 1 { "image" } else { "images" };
            let rate = tokens as f64 / seconds;
            let line = format!("{n} {images} encoded: {tokens} tokens in {seconds:.2} s, {rate:.1} tokens/s");
            eprintln!("{}", output::dim(&line));
        }
    }
}

/// A projector, placed on its backend when the first image is to be encoded.
pub struct VisionModel {
    path: PathBuf,
    projector: Projector,
    preprocessor: Preprocessor,
    device: DeviceArgs,
    cache: Option<ImageCache>,
}

impl VisionModel {
    /// Opens the projector for a model, named or beside it.
    ///
    /// # Errors
    /// When the model takes no images, or no projector fits it.
    pub fn open_for(
        checkpoint: &Checkpoint,
        tokenizer: &Tokenizer,
        args: &ProjectorArgs,
        device: &DeviceArgs,
    ) -> Result<(Self, ImageTokens)> {
        let tokens = ImageTokens::of_vocabulary(|text| tokenizer.token_id(text))?;
        let (path, projector) = projector::open_for(checkpoint, args.mmproj.as_deref())?;
        Ok((Self::new(path, projector, args.image_max_tokens, device), tokens))
    }

    /// A projector that was opened.
    pub fn new(path: PathBuf, projector: Projector, max_tokens: Option<usize>, device: &DeviceArgs) -> Self {
        let preprocessor = projector.preprocessor(max_tokens);
        Self { path, projector, preprocessor, device: *device, cache: None }
    }

    /// One line for people.
    pub fn description(&self) -> String {
        let bytes = DecimalBytes(self.projector.gguf().file_bytes());
        let config = self.projector.config();
        let assumed = match config.activation_named {
            true => String::new(),
            false => format!("; it names no activation, {} is taken", config.activation),
        };
        format!("projector {}, {bytes}{assumed}", self.path.display())
    }

    /// Reads an image and brings it to the size that the encoder takes.
    ///
    /// # Errors
    /// A file that cannot be read or decoded, or is beyond the limits; the address of an image on the web.
    pub fn read(&self, path: &Path) -> Result<ImageFile> {
        let name = path.to_string_lossy();
        if ["http://", "https://"].iter().any(|scheme| name.to_lowercase().starts_with(scheme)) {
            bail!("{name}: images are not fetched from the web; download it and name the file");
        }
        let image = decode_file(path, &ImageLimits::default())?;
        let image = Arc::new(PreparedImage::new(self.preprocessor.preprocess(&image)));
        Ok(ImageFile { path: std::path::absolute(path)?, image })
    }

    /// Encodes images, each of them once, however often it is asked for; `None` when Ctrl-C was pressed.
    ///
    /// # Errors
    /// When the projector cannot be placed, or fails.
    pub fn encode(&mut self, images: &[ImageFile]) -> Result<Option<EncodedImages>> {
        if self.cache.is_none() && !images.is_empty() {
            self.cache = Some(place(&self.projector, &self.device)?);
        }
        let mut encoded = EncodedImages::default();
        let listener = Listener::new();
        let started = Instant::now();
        for (at, file) in images.iter().enumerate() {
            let Some(cache) = self.cache.as_mut().filter(|_| !listener.requested()) else {
                return Ok(None);
            };
            if !cache.contains(&file.image) {
                encoded.n_new += 1;
                encoded.new_tokens += file.grid().tokens();
            }
            let (nth, n, tokens) = (at + 1, images.len(), file.grid().tokens());
            let _spinner = Spinner::start(format!("encoding image {nth} of {n} ({tokens} tokens)"));
            encoded.images.push(cache.encode(&file.image)?);
        }
        encoded.time = started.elapsed();
        Ok((!listener.requested()).then_some(encoded))
    }
}

fn place(projector: &Projector, device: &DeviceArgs) -> Result<ImageCache> {
    let options = LoadOptions {
        backend: device.backend,
        device: device.device,
        context_size: None,
        kv_type: KvType::F32,
        threads: device.threads,
    };
    let mut bar = Bar::bytes("loading the projector", projector.matrix_bytes());
    let mut done = 0;
    let encoder = backend::load_projector(projector, &options, &mut |bytes| {
        done += bytes as usize;
        bar.set(done);
    })
    .map_err(with_flags)?;
    Ok(ImageCache::new(encoder, DEFAULT_CACHE_BYTES))
}

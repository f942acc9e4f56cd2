//! A model: its files, and the engine that runs it.
use crate::bytes::DecimalBytes;
use crate::chat_tokenizer::ChatTokenizer;
use crate::device::{self, CacheOptions, DeviceOptions, KvType, LoadOptions};
use crate::engine::Engine;
use crate::error::Error;
use crate::progress::{Progress, Reporter};
use crate::session::Session;
use crate::settings::AnswerOptions;
use crate::vision::{EncodedImages, ImageFile, VisionModel};
use ember_loaders::checkpoint::{Checkpoint, ModelConfig};
use ember_loaders::gguf::StoredType;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Tokens of context when none are asked for: the model's own may need more memory than the machine has.
pub const DEFAULT_CONTEXT: usize = 8192;

/// The choices made when a model is opened.
#[derive(Default)]
pub struct ModelOptions {
    /// Backend, device and threads.
    pub device: DeviceOptions,
    /// Tokens that prompt and answer may have together; the default is the model's context, at most [`DEFAULT_CONTEXT`].
    pub context_size: Option<usize>,
    /// Element type of the KV cache.
    pub kv_type: KvType,
    /// Projector file that reads images; the default is the `*mmproj*.gguf` beside the model that fits it.
    pub projector: Option<PathBuf>,
    /// Most tokens of an image: larger ones are scaled down.
    pub image_max_tokens: Option<usize>,
    /// True to make every step look, part by part, for the first number that is not finite, which an error then names;
    /// slow.
    pub check_finite: bool,
    /// Text of a chat template, in place of those of the model.
    pub chat_template: Option<String>,
    /// Receiver of progress reports.
    pub progress: Reporter,
}

/// The files of a model, open and checked; no weight is loaded.
pub struct ModelFiles {
    checkpoint: Checkpoint,
    options: ModelOptions,
    /// From the first use on: a model can be measured without its tokenizer.
    chat: OnceLock<ChatTokenizer>,
    /// From the first image on: a model can be used without its projector.
    vision: Option<VisionModel>,
}

impl ModelFiles {
    /// Opens a GGUF file (any shard of a split one) or a Hugging Face folder.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] for a file that cannot be used, [`Error::ContextTooLarge`].
    pub fn open(path: impl AsRef<Path>, options: ModelOptions) -> Result<Self, Error> {
        Self::of_checkpoint(Checkpoint::open(path)?, options)
    }

    /// The files of an open checkpoint.
    ///
    /// # Errors
    /// [`Error::ContextTooLarge`].
    pub fn of_checkpoint(checkpoint: Checkpoint, options: ModelOptions) -> Result<Self, Error> {
        let limit = checkpoint.config().context_limit();
        match options.context_size {
            Some(asked) if asked > limit.tokens() => Err(Error::ContextTooLarge { asked, limit }),
            _ => Ok(Self { checkpoint, options, chat: OnceLock::new(), vision: None }),
        }
    }

    /// The checkpoint.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The paths of all files of the model: every shard, or what its folder holds; and those of its projector, if that is
    /// open.
    ///
    /// # Errors
    /// [`Error::Io`] when the folder cannot be listed.
    pub fn paths(&self) -> Result<Vec<PathBuf>, Error> {
        let folder = self.checkpoint.path();
        let io = |source| Error::Io { path: folder.to_owned(), source };
        let mut paths = match self.checkpoint.gguf() {
            Some(gguf) => gguf.paths().to_vec(),
            None => {
                let entries = folder.read_dir().map_err(io)?;
                entries.map(|entry| Ok(entry?.path())).collect::<Result<_, _>>().map_err(io)?
            }
        };
        paths.extend(self.vision.iter().flat_map(VisionModel::paths).cloned());
        Ok(paths)
    }

    /// The hyperparameters.
    pub fn config(&self) -> &ModelConfig {
        self.checkpoint.config()
    }

    /// The tokenizer with the chat template, opened at the first call.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] for a tokenizer that is not supported, [`Error::Template`] for a chat template among the options
    /// that does not compile.
    pub fn chat(&self) -> Result<&ChatTokenizer, Error> {
        if let Some(chat) = self.chat.get() {
            return Ok(chat);
        }
        let chat = ChatTokenizer::of_checkpoint(&self.checkpoint)?;
        let chat = match &self.options.chat_template {
            Some(template) => chat.with_chat_template(template)?,
            None => chat,
        };
        Ok(self.chat.get_or_init(|| chat))
    }

    /// The projector that reads images for the model, opened at the first call.
    ///
    /// # Errors
    /// [`Error::ImagePrompt`] when the model takes no images, [`Error::Projector`] when no projector fits it.
    pub fn vision(&mut self) -> Result<&mut VisionModel, Error> {
        self.chat()?.image_tokens()?;
        let ModelOptions { projector, image_max_tokens, device, .. } = &self.options;
        let vision = match self.vision.take() {
            Some(vision) => vision,
            None => VisionModel::open_for(&self.checkpoint, projector.as_deref(), *image_max_tokens, device)?,
        };
        Ok(self.vision.insert(vision))
    }

    /// True if the projector is open.
    pub fn has_vision(&self) -> bool {
        self.vision.is_some()
    }

    /// Tokens of context that the loaded model will have.
    pub fn context_size(&self) -> usize {
        self.options.context_size.unwrap_or(self.config().context_length.min(DEFAULT_CONTEXT))
    }

    /// Sets the tokens of context, before loading.
    ///
    /// # Errors
    /// [`Error::PromptTooLong`] for more than the model allows.
    pub fn set_context_size(&mut self, tokens: usize) -> Result<(), Error> {
        let allowed = self.config().context_limit().tokens();
        if tokens > allowed {
            return Err(Error::PromptTooLong { tokens, context: allowed, allowed });
        }
        self.options.context_size = Some(tokens);
        Ok(())
    }

    /// Refuses a prompt that does not fit, before any weight is read.
    ///
    /// # Errors
    /// [`Error::PromptTooLong`].
    pub fn check_prompt_fits(&self, tokens: usize) -> Result<(), Error> {
        let (context, allowed) = (self.context_size(), self.config().context_limit().tokens());
        if tokens <= context { Ok(()) } else { Err(Error::PromptTooLong { tokens, context, allowed }) }
    }

    /// Loads the weights onto the device.
    ///
    /// # Errors
    /// [`Error::Backend`] when there is no such device or it cannot hold the model, [`Error::Engine`] when it fails,
    /// [`Error::Template`] for a chat template among the options that does not compile.
    pub fn load(self) -> Result<Model, Error> {
        if self.options.chat_template.is_some() {
            self.chat()?;
        }
        let started = Instant::now();
        let options = LoadOptions {
            device: self.options.device,
            cache: CacheOptions { context_size: self.context_size(), kv_type: self.options.kv_type },
        };
        let progress = &self.options.progress;
        let total = self.checkpoint.matrix_bytes() as u64;
        let mut done = 0;
        let loaded = device::load(&self.checkpoint, &options, &mut |bytes| {
            done += bytes;
            // Loading cannot be cancelled.
            let _goes_on = progress.report(Progress::LoadingModel { done, total });
        });
        progress.done();
        let loaded = loaded?;
        let mut engine = Engine::new(loaded.runner);
        engine.set_check_finite(self.options.check_finite);
        if loaded.compiles_kernels {
            let _goes_on = progress.report(Progress::CompilingKernels);
            let warm = engine.warm_up();
            progress.done();
            warm?;
        }
        Ok(Model { files: self, engine, device_name: loaded.device, load_time: started.elapsed() })
    }

    pub(crate) fn encode(&mut self, images: &[ImageFile]) -> Result<EncodedImages, Error> {
        if images.is_empty() {
            return Ok(EncodedImages::default());
        }
        self.vision()?;
        let vision = self.vision.as_mut().expect("it was just opened");
        vision.encode(images, &self.options.progress)
    }

    pub(crate) fn progress(&self) -> &Reporter {
        &self.options.progress
    }
}

/// A model ready to answer.
pub struct Model {
    pub(crate) files: ModelFiles,
    pub(crate) engine: Engine,
    device_name: String,
    load_time: Duration,
}

impl Model {
    /// Opens a GGUF file (any shard of a split one) or a Hugging Face folder and loads the weights.
    ///
    /// # Errors
    /// As [`ModelFiles::open`] and [`ModelFiles::load`].
    pub fn open(path: impl AsRef<Path>, options: ModelOptions) -> Result<Self, Error> {
        ModelFiles::open(path, options)?.load()
    }

    /// A conversation with the model.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] for a tokenizer that is not supported, [`Error::Template`] when there is no chat template or it
    /// does not compile, [`Error::Setting`] for a setting outside its range.
    pub fn session(&mut self, options: AnswerOptions) -> Result<Session<'_>, Error> {
        self.files.chat()?.template()?;
        self.raw_session(options)
    }

    /// A session for [`Session::complete`] alone, also with a model whose chat template is missing or at fault.
    ///
    /// # Errors
    /// As [`session`](Self::session), but for the template.
    pub fn raw_session(&mut self, options: AnswerOptions) -> Result<Session<'_>, Error> {
        self.files.chat()?;
        let settings = options.resolve(&self.files.checkpoint)?;
        Ok(Session::new(self, settings))
    }

    /// The files.
    pub fn files(&self) -> &ModelFiles {
        &self.files
    }

    /// The projector that reads images, opened at the first call.
    ///
    /// # Errors
    /// As [`ModelFiles::vision`].
    pub fn vision(&mut self) -> Result<&mut VisionModel, Error> {
        self.files.vision()
    }

    /// The engine, for work on tokens.
    pub fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Encodes images that were read by [`vision`](Self::vision), each once.
    ///
    /// # Errors
    /// As [`VisionModel::encode`].
    pub fn encode(&mut self, images: &[ImageFile]) -> Result<EncodedImages, Error> {
        self.files.encode(images)
    }

    /// Time that loading took.
    pub fn load_time(&self) -> Duration {
        self.load_time
    }

    /// A line that describes the model to people: name, weights, device, context and KV cache.
    pub fn description(&self) -> String {
        let (files, engine) = (&self.files, &self.engine);
        let config = files.config();
        let name = config.name.as_ref().map(|name| format!(" {name:?}")).unwrap_or_default();
        let weights = weights_text(&files.checkpoint);
        format!(
            "{}{name}, {weights}; {}, {}; context {} of {}, KV cache {} {}",
            config.arch,
            files.options.device.backend,
            self.device_name,
            files.context_size(),
            config.context_limit().tokens(),
            DecimalBytes(engine.runner().kv_bytes() as u64),
            files.options.kv_type,
        )
    }
}

/// The type that holds most weights, and the size of the files.
fn weights_text(checkpoint: &Checkpoint) -> String {
    let Some(gguf) = checkpoint.gguf() else { return String::new() };
    let mut counts: HashMap<StoredType, usize> = HashMap::new();
    for tensor in gguf.tensors() {
        *counts.entry(tensor.ty).or_default() += tensor.n_elements();
    }
    let main = counts.into_iter().max_by_key(|&(ty, count)| (count, ty.id()));
    let main = main.map_or("no weights".into(), |(ty, _)| ty.name());
    format!("{main}, {}", DecimalBytes(gguf.file_bytes()))
}

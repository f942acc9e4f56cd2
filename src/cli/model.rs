//! Opening a model: its tokenizer and template, and, for commands that run it, its weights.
use super::args::{ContextArgs, DeviceArgs, KvCacheType};
use super::backend_error::with_flags;
use super::progress::{Bar, Spinner};
use anyhow::{Context, Result, bail};
use ember::backend::{self, DEFAULT_CONTEXT, LoadOptions};
use ember::chat::{
    ChatTemplate, ImageTokens, Message, Prompt, ReasoningTags, RenderInput, StreamDecoder, build_prompt,
};
use ember::engine::Engine;
use ember_loaders::checkpoint::{Checkpoint, ModelConfig};
use ember_loaders::gguf::{GgmlType, Gguf};
use ember_loaders::image::ImageGrid;
use ember_loaders::tokenizer::Tokenizer;
use indicatif::DecimalBytes;
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// The tokenizer of a GGUF file (also one without weights) or a Hugging Face folder.
///
/// # Errors
/// When the file cannot be read or its tokenizer is not supported.
pub fn open_tokenizer(path: &Path) -> Result<Tokenizer> {
    let tokenizer =
        if path.is_dir() { Tokenizer::from_folder(path) } else { Tokenizer::from_gguf(&Gguf::open(path)?) };
    tokenizer.with_context(|| format!("tokenizer of {}", path.display()))
}

/// The tokenizer of an open checkpoint.
///
/// # Errors
/// When it is not supported.
pub fn checkpoint_tokenizer(checkpoint: &Checkpoint) -> Result<Tokenizer> {
    match checkpoint.gguf() {
        Some(gguf) => Tokenizer::from_gguf(gguf),
        None => Tokenizer::from_folder(checkpoint.path()),
    }
    .with_context(|| format!("tokenizer of {}", checkpoint.path().display()))
}

/// What turns a conversation into tokens.
pub struct TextModel {
    pub tokenizer: Tokenizer,
    pub template: ChatTemplate,
    tags: Option<ReasoningTags>,
}

/// A conversation to render.
pub struct Conversation<'a> {
    pub messages: &'a [Message],
    pub tools: Option<Vec<serde_json::Value>>,
    /// The thinking switch; `None` is the template's default.
    pub think: Option<bool>,
    /// Whether to open the assistant's turn.
    pub generation_prompt: bool,
}

impl TextModel {
    /// Compiles the tokenizer's chat template, or ChatML when there is none.
    ///
    /// # Errors
    /// When the template does not compile.
    pub fn new(tokenizer: Tokenizer) -> Result<Self> {
        let (bos, eos) = (tokenizer.bos_text(), tokenizer.eos_text());
        let (bos, eos) = (bos.unwrap_or_default(), eos.unwrap_or_default());
        let template = ChatTemplate::from_model(tokenizer.chat_template(None), bos, eos)?;
        let tags = ReasoningTags::of_vocabulary(|tag| tokenizer.token_id(tag).is_some());
        Ok(Self { tokenizer, template, tags })
    }

    /// Refuses a position of the thinking switch that the template would ignore.
    ///
    /// # Errors
    /// When there is no switch to set.
    pub fn check_think(&self, think: Option<bool>) -> Result<()> {
        match think {
            Some(think) if !self.template.has_thinking_switch() => {
                let wish = if think { "think" } else { "not think" };
                bail!(
                    "this model cannot be told to {wish}: its chat template has no switch (enable_thinking)"
                )
            }
            _ => Ok(()),
        }
    }

    /// What splits the answer to `prompt` into reasoning and text, and ends it at a stop string.
    pub fn splitter(&self, prompt: &Prompt, stops: &[String]) -> StreamDecoder {
        let opened = self.tags.as_ref().is_some_and(|tags| tags.open_in(&prompt.text));
        StreamDecoder::new(self.tags.clone(), opened, stops.to_vec())
    }

    /// Whether the answer to `prompt` may begin with reasoning: the template knows the tags, and the prompt has not
    /// closed them already, as it does when thinking is switched off.
    pub fn thinks(&self, prompt: &Prompt) -> bool {
        self.tags.as_ref().is_some_and(|tags| {
            let known = [&tags.open, &tags.close].iter().any(|tag| self.template.source().contains(*tag));
            known && !prompt.text.trim_end().ends_with(&tags.close)
        })
    }

    /// Refuses images that the chat template has no place for.
    ///
    /// # Errors
    /// When it refuses them, or leaves them out.
    pub fn check_takes_images(&self, tokens: &ImageTokens) -> Result<()> {
        let messages = [Message::with_images("user", [String::new()], "")];
        let conversation =
            Conversation { messages: &messages, tools: None, think: None, generation_prompt: true };
        let smallest = ImageGrid { rows: 1, cols: 1 };
        self.prompt(&conversation)?.place_images(tokens, &[smallest])?;
        Ok(())
    }

    /// Renders and tokenizes a conversation.
    ///
    /// # Errors
    /// When the template refuses it, or has no switch for `think`.
    pub fn prompt(&self, conversation: &Conversation<'_>) -> Result<Prompt> {
        self.check_think(conversation.think)?;
        let input = RenderInput {
            messages: self.template.prepare(conversation.messages)?,
            tools: conversation.tools.clone(),
            add_generation_prompt: conversation.generation_prompt,
            enable_thinking: conversation.think,
            ..RenderInput::default()
        };
        Ok(build_prompt(&self.tokenizer, &self.template, &input)?)
    }
}

/// Tokens of context that a model gets.
///
/// # Errors
/// When more is asked for than the model allows.
pub fn context_size(config: &ModelConfig, asked: Option<usize>) -> Result<usize> {
    match asked {
        Some(size) if size > config.context_length => {
            bail!("--ctx-size {size} is beyond the {} tokens that the model allows", config.context_length)
        }
        Some(size) => Ok(size),
        None => Ok(config.context_length.min(DEFAULT_CONTEXT)),
    }
}

/// Refuses a prompt that does not fit, before any weight is read.
///
/// # Errors
/// Says how long the prompt is and what can be done.
pub fn check_prompt_fits(prompt_tokens: usize, context: usize, config: &ModelConfig) -> Result<()> {
    if prompt_tokens <= context {
        return Ok(());
    }
    let advice = if prompt_tokens <= config.context_length {
        format!("raise --ctx-size (up to {})", config.context_length)
    } else {
        format!("shorten it (the model allows {})", config.context_length)
    };
    bail!("the prompt has {prompt_tokens} tokens and the context holds {context}: {advice}")
}

/// A model ready to run.
pub struct LoadedModel {
    pub engine: Engine,
    /// One line for people: what runs, and how.
    pub description: String,
    pub load_time: Duration,
}

/// Places a model on its backend and says on stderr what was loaded.
///
/// # Errors
/// When the model cannot be placed.
pub fn load(checkpoint: &Checkpoint, device: &DeviceArgs, context: &ContextArgs) -> Result<LoadedModel> {
    load_with(checkpoint, device, context.ctx_size, context.kv_cache_dtype)
}

/// [`load`] with the context given in numbers.
///
/// # Errors
/// As [`load`].
pub fn load_with(
    checkpoint: &Checkpoint,
    device: &DeviceArgs,
    ctx_size: Option<usize>,
    kv_type: KvCacheType,
) -> Result<LoadedModel> {
    let started = Instant::now();
    let config = checkpoint.config();
    let options = LoadOptions {
        backend: device.backend,
        device: device.device,
        context_size: Some(context_size(config, ctx_size)?),
        kv_type: kv_type.into(),
        threads: device.threads,
    };
    let placed = {
        let mut bar = Bar::bytes("loading", checkpoint.matrix_bytes());
        let mut done = 0;
        backend::load(checkpoint, &options, &mut |bytes| {
            done += bytes as usize;
            bar.set(done);
        })
        .map_err(with_flags)?
    };
    let mut engine = Engine::new(placed.runner);
    let description = describe(checkpoint, device, &placed.device, kv_type, &engine);
    if placed.compiles_kernels {
        let _spinner = Spinner::start("compiling kernels".to_owned());
        engine.warm_up()?;
    }
    let load_time = started.elapsed();
    eprintln!("{description}");
    if let Some(label) = &config.relabelled_from {
        eprintln!("labelled {label}, served as {}", config.arch);
    }
    Ok(LoadedModel { engine, description, load_time })
}

fn describe(
    checkpoint: &Checkpoint,
    device: &DeviceArgs,
    device_name: &str,
    kv_type: KvCacheType,
    engine: &Engine,
) -> String {
    let config = checkpoint.config();
    let name = config.name.as_ref().map(|name| format!(" {name:?}")).unwrap_or_default();
    let weights = weights_text(checkpoint);
    format!(
        "{}{name}, {weights}; {}, {device_name}; context {} of {}, KV cache {} {}",
        config.arch,
        device.backend,
        engine.context_size(),
        config.context_length,
        DecimalBytes(engine.runner().kv_bytes() as u64),
        kv_type.name(),
    )
}

/// The type that holds most weights, and the size of the files.
fn weights_text(checkpoint: &Checkpoint) -> String {
    let Some(gguf) = checkpoint.gguf() else { return String::new() };
    let mut counts: HashMap<GgmlType, usize> = HashMap::new();
    for tensor in gguf.tensors() {
        *counts.entry(tensor.ty).or_default() += tensor.n_elements();
    }
    let main = counts.into_iter().max_by_key(|&(ty, count)| (count, ty.id()));
    let main = main.map_or("no weights", |(ty, _)| ty.name());
    format!("{main}, {}", DecimalBytes(gguf.file_bytes()))
}

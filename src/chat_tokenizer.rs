//! The text side of a model: tokenizer, chat template and reasoning tags, which turn conversations into prompts.
use crate::chat::{
    AnswerSplitter, ChatTemplate, ImageTokens, Message, Prompt, ReasoningTags, RenderInput, TemplateError,
    build_prompt,
};
use crate::error::Error;
use crate::sampling::Thinking;
use ember_loaders::checkpoint::Checkpoint;
use ember_loaders::gguf::Gguf;
use ember_loaders::image::ImageGrid;
use ember_loaders::tokenizer::{SpecialTokens, Tokenizer};
use std::path::Path;
use std::sync::Arc;

/// A conversation to render.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    /// The messages, system message first.
    pub messages: Vec<Message>,
    /// Tool definitions in OpenAI's form.
    pub tools: Option<Vec<serde_json::Value>>,
    /// Position of the thinking switch; `None` is the template's default.
    pub think: Option<bool>,
    /// The grids of the images that the messages hold, in order.
    pub images: Vec<ImageGrid>,
    /// Leaves out the opening of the assistant's turn at the end.
    pub no_generation_prompt: bool,
}

/// A tokenizer with the chat template of its model.
#[derive(Debug)]
pub struct ChatTokenizer {
    tokenizer: Tokenizer,
    /// Compiled when the model is opened; a template that does not compile is an error once it is needed.
    template: Result<ChatTemplate, Arc<TemplateError>>,
    tags: Option<ReasoningTags>,
    image_tokens: Option<ImageTokens>,
}

impl ChatTokenizer {
    /// The text side of a GGUF file (also one without weights) or a Hugging Face folder.
    ///
    /// # Errors
    /// [`Error::Gguf`] for a malformed file, [`Error::Tokenizer`] for a tokenizer that is not supported.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let tokenizer = match path.is_dir() {
            true => Tokenizer::from_folder(path),
            false => Tokenizer::from_gguf(&Gguf::open(path)?),
        };
        tokenizer
            .map(Self::new)
            .map_err(|source| Error::Tokenizer { path: path.to_owned(), source: source.into() })
    }

    /// The text side of an open checkpoint.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] for a tokenizer that is not supported.
    pub fn of_checkpoint(checkpoint: &Checkpoint) -> Result<Self, Error> {
        let tokenizer = match checkpoint.gguf() {
            Some(gguf) => Tokenizer::from_gguf(gguf),
            None => Tokenizer::from_folder(checkpoint.path()),
        };
        let path = || checkpoint.path().to_owned();
        tokenizer.map(Self::new).map_err(|source| Error::Tokenizer { path: path(), source: source.into() })
    }

    /// A tokenizer with its chat template, or ChatML when it has none.
    pub fn new(tokenizer: Tokenizer) -> Self {
        let (bos, eos) = (tokenizer.bos_text(), tokenizer.eos_text());
        let (bos, eos) = (bos.unwrap_or_default(), eos.unwrap_or_default());
        let template = ChatTemplate::from_model(tokenizer.chat_template(None), bos, eos).map_err(Arc::new);
        let tags = ReasoningTags::of_vocabulary(|tag| tokenizer.token_id(tag).is_some());
        let image_tokens = ImageTokens::of_vocabulary(|text| tokenizer.token_id(text)).ok();
        Self { tokenizer, template, tags, image_tokens }
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The chat template.
    ///
    /// # Errors
    /// [`Error::Template`] when it does not compile.
    pub fn template(&self) -> Result<&ChatTemplate, Error> {
        self.template.as_ref().map_err(|error| error.clone().into())
    }

    /// The tokens that stand for images.
    ///
    /// # Errors
    /// [`Error::ImagePrompt`] for a text-only vocabulary.
    pub fn image_tokens(&self) -> Result<ImageTokens, Error> {
        Ok(ImageTokens::of_vocabulary(|text| self.tokenizer.token_id(text))?)
    }

    /// Refuses a position of the thinking switch that the template would ignore.
    ///
    /// # Errors
    /// [`Error::NoThinkingSwitch`].
    pub fn check_think(&self, think: Option<bool>) -> Result<(), Error> {
        match think {
            Some(think) if !self.template()?.has_thinking_switch() => Err(Error::NoThinkingSwitch { think }),
            _ => Ok(()),
        }
    }

    /// Refuses images that the chat template has no place for.
    ///
    /// # Errors
    /// [`Error::Prompt`] when the template refuses them, [`Error::ImagePrompt`] when it leaves them out.
    pub fn check_takes_images(&self) -> Result<(), Error> {
        self.image_tokens()?;
        let images = vec![ImageGrid { rows: 1, cols: 1 }];
        let messages = vec![Message::with_images("user", [String::new()], "")];
        self.prompt(&Conversation { messages, images, ..Conversation::default() }).map(drop)
    }

    /// Renders and tokenizes a conversation, with the tokens of its images.
    ///
    /// # Errors
    /// [`Error::NoThinkingSwitch`]; [`Error::Message`] and [`Error::Prompt`] when the template refuses the conversation;
    /// [`Error::ImagePrompt`] when it leaves images out.
    pub fn prompt(&self, conversation: &Conversation) -> Result<Prompt, Error> {
        let mut prompt = self.render(conversation)?;
        self.expand_images(&mut prompt, &conversation.images)?;
        Ok(prompt)
    }

    /// [`prompt`](Self::prompt) with one `[IMG]` for each image, whatever its size.
    ///
    /// # Errors
    /// As [`prompt`](Self::prompt), but for the images.
    pub fn render(&self, conversation: &Conversation) -> Result<Prompt, Error> {
        self.check_think(conversation.think)?;
        let template = self.template()?;
        let input = RenderInput {
            messages: template.prepare(&conversation.messages)?,
            tools: conversation.tools.clone(),
            add_generation_prompt: !conversation.no_generation_prompt,
            enable_thinking: conversation.think,
            ..RenderInput::default()
        };
        Ok(build_prompt(&self.tokenizer, template, &input)?)
    }

    /// A prompt of a text as it is, without the chat template. Control tokens in it are recognised, the
    /// beginning-of-sequence token is added if the model wants it, and each `[IMG]` becomes the tokens of an image.
    ///
    /// # Errors
    /// [`Error::Text`] for a text that cannot be encoded, [`Error::ImagePrompt`] unless there is an `[IMG]` for each image.
    pub fn raw_prompt(&self, text: String, images: &[ImageGrid]) -> Result<Prompt, Error> {
        let ids = self.tokenizer.with_bos(self.tokenizer.encode(&text, SpecialTokens::Parse)?);
        let mut prompt = Prompt::raw(text, ids);
        self.expand_images(&mut prompt, images)?;
        Ok(prompt)
    }

    fn expand_images(&self, prompt: &mut Prompt, images: &[ImageGrid]) -> Result<(), Error> {
        match &self.image_tokens {
            Some(tokens) => Ok(prompt.expand_images(tokens, images)?),
            None if images.is_empty() => Ok(()),
            None => self.image_tokens().map(drop),
        }
    }

    /// The splitter of the answer to `prompt`: parts reasoning from text and ends at a stop string.
    pub fn splitter(&self, prompt: &Prompt, stops: &[String]) -> AnswerSplitter {
        let tags = self.tags.clone().filter(|_| !prompt.is_raw);
        let opened = tags.as_ref().is_some_and(|tags| tags.open_in(&prompt.text));
        AnswerSplitter::new(tags, opened, stops.to_vec())
    }

    /// The part of reasoning in the answer to `prompt`: it may come when the template knows the tags, and the prompt has
    /// not closed them already, as it does when thinking is switched off.
    pub fn thinking(&self, prompt: &Prompt) -> Thinking {
        let (Some(tags), Ok(template), false) = (&self.tags, &self.template, prompt.is_raw) else {
            return Thinking::Unknown;
        };
        let known = [&tags.open, &tags.close].iter().any(|tag| template.source().contains(*tag));
        match (known, prompt.text.trim_end().ends_with(&tags.close)) {
            (false, _) => Thinking::Unknown,
            (true, false) => Thinking::On,
            (true, true) => Thinking::Off,
        }
    }
}

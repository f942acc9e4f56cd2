//! The text side of a model: tokenizer, chat template and reasoning tags, which turn conversations into prompts.
use crate::chat::{
    AnswerSplitter, ChatTemplate, ImagePromptError, ImageTokens, Message, Prompt, ReasoningTags, RenderInput,
    TemplateError, build_prompt, builtin_template,
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

/// The name of the template that Hugging Face takes when there are tools.
const TOOL_USE: &str = "tool_use";

/// A template as it was compiled when the model was opened; one that does not compile is an error once it is needed.
type Compiled = Result<ChatTemplate, Arc<TemplateError>>;

/// A tokenizer with the chat template of its model.
#[derive(Debug)]
pub struct ChatTokenizer {
    tokenizer: Tokenizer,
    template: Compiled,
    /// The template for conversations with tools, where that is another one.
    tool_template: Option<Compiled>,
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

    /// A tokenizer with its chat template. Without one, the vocabulary tells the format: ChatML or Mistral's.
    pub fn new(tokenizer: Tokenizer) -> Self {
        let missing =
            || TemplateError::Missing { names: tokenizer.chat_template_names().map(str::to_owned).collect() };
        let has_token = |text: &str| tokenizer.token_id(text).is_some();
        // A model that has templates for special uses only does not mean the format of its family.
        let builtin =
            || builtin_template(has_token).filter(|_| tokenizer.chat_template_names().next().is_none());
        let template = match tokenizer.chat_template(None).or_else(builtin) {
            Some(source) => compile(&tokenizer, source),
            None => Err(missing().into()),
        };
        let tool_template = tokenizer.chat_template(Some(TOOL_USE)).map(|source| compile(&tokenizer, source));
        Self::with_templates(tokenizer, template, tool_template)
    }

    /// The tokenizer with another template in place of its own ones.
    ///
    /// # Errors
    /// [`Error::Template`] when it does not compile.
    pub fn with_chat_template(self, source: &str) -> Result<Self, Error> {
        let template = compile(&self.tokenizer, source)?;
        Ok(Self::with_templates(self.tokenizer, Ok(template), None))
    }

    fn with_templates(tokenizer: Tokenizer, template: Compiled, tool_template: Option<Compiled>) -> Self {
        let sources = [Some(&template), tool_template.as_ref()].into_iter().flatten().flatten();
        let written: String = sources.map(ChatTemplate::source).collect();
        let tags = ReasoningTags::of_model(|tag| tokenizer.token_id(tag), &written);
        let image_tokens = ImageTokens::of_vocabulary(|text| tokenizer.token_id(text)).ok();
        Self { tokenizer, template, tool_template, tags, image_tokens }
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The chat template, for conversations without tools.
    ///
    /// # Errors
    /// [`Error::Template`] when there is none, or it does not compile.
    pub fn template(&self) -> Result<&ChatTemplate, Error> {
        self.template.as_ref().map_err(|error| error.clone().into())
    }

    /// The chat template of a conversation: many models have one for tools beside their usual one.
    ///
    /// # Errors
    /// As [`template`](Self::template).
    pub fn template_for(&self, conversation: &Conversation) -> Result<&ChatTemplate, Error> {
        match self.tool_template.as_ref().filter(|_| conversation.tools.is_some()) {
            Some(template) => template.as_ref().map_err(|error| error.clone().into()),
            None => self.template(),
        }
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
            Some(_) => check_switch(self.template()?, think),
            None => Ok(()),
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
    /// [`Error::NoThinkingSwitch`]; [`Error::Message`] and [`Error::Prompt`] when the template refuses the conversation or
    /// leaves out a part of it; [`Error::ImagePrompt`] when it leaves images out.
    pub fn prompt(&self, conversation: &Conversation) -> Result<Prompt, Error> {
        let mut prompt = self.render(conversation)?;
        self.expand_images(&mut prompt, &conversation.images)?;
        Ok(prompt)
    }

    /// [`prompt`](Self::prompt) with one `[IMG]` for each image, whatever its size.
    ///
    /// # Errors
    /// As [`prompt`](Self::prompt).
    pub fn render(&self, conversation: &Conversation) -> Result<Prompt, Error> {
        let template = self.template_for(conversation)?;
        check_switch(template, conversation.think)?;
        let input = RenderInput {
            messages: template.prepare(&conversation.messages)?,
            tools: conversation.tools.clone(),
            add_generation_prompt: !conversation.no_generation_prompt,
            enable_thinking: conversation.think,
            ..RenderInput::default()
        };
        let prompt = build_prompt(&self.tokenizer, template, &input)?;
        self.check_images(&prompt, &conversation.messages)?;
        Ok(prompt)
    }

    /// Refuses a prompt that has not one `[IMG]` for each image of the messages.
    fn check_images(&self, prompt: &Prompt, messages: &[Message]) -> Result<(), Error> {
        let images = messages.iter().map(Message::image_count).sum();
        if images == 0 {
            return Ok(());
        }
        let cell = self.image_tokens()?.cell;
        let places = prompt.ids.iter().filter(|&&id| id == cell).count();
        if places == images { Ok(()) } else { Err(ImagePromptError::Count { places, images }.into()) }
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
        let Some(tags) = self.tags.as_ref().filter(|_| !prompt.is_raw) else { return Thinking::Unknown };
        let mut templates =
            [Some(&self.template), self.tool_template.as_ref()].into_iter().flatten().flatten();
        let is_known = |template: &ChatTemplate| {
            [&tags.open, &tags.close].iter().any(|tag| template.source().contains(&tag.text))
        };
        match (templates.any(is_known), prompt.text.trim_end().ends_with(&tags.close.text)) {
            (false, _) => Thinking::Unknown,
            (true, false) => Thinking::On,
            (true, true) => Thinking::Off,
        }
    }
}

fn compile(tokenizer: &Tokenizer, source: &str) -> Compiled {
    let (bos, eos) = (tokenizer.bos_text(), tokenizer.eos_text());
    ChatTemplate::tried(source, bos.unwrap_or_default(), eos.unwrap_or_default()).map_err(Arc::new)
}

fn check_switch(template: &ChatTemplate, think: Option<bool>) -> Result<(), Error> {
    match think {
        Some(think) if !template.has_thinking_switch() => Err(Error::NoThinkingSwitch { think }),
        _ => Ok(()),
    }
}

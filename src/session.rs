//! A conversation with a model, whose tokens stay cached from turn to turn.
use crate::answer::{Answer, AnswerResult, Kept, Parts, Terms};
use crate::chat::{ImagePromptError, Message, Prompt};
use crate::chat_tokenizer::Conversation;
use crate::engine::{GenerateLimits, Generation, Sequence, Tokens};
use crate::error::Error;
use crate::model::Model;
use crate::sampling::{ResolvedSampling, Thinking};
use crate::settings::{AnswerOptions, AnswerSettings};
use crate::vision::ImageFile;
use serde_json::Value;

/// A message of the conversation and its images.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    message: Message,
    images: Vec<ImageFile>,
}

impl Said {
    pub(crate) fn answer(result: &AnswerResult) -> Self {
        let mut message = Message::text("assistant", result.text.as_str());
        message.reasoning_content = (!result.reasoning.is_empty()).then(|| result.reasoning.clone());
        Self { message, images: Vec::new() }
    }
}

/// A conversation with a [`Model`].
///
/// The common beginning of two prompts in a row is computed once.
pub struct Session<'m> {
    model: &'m mut Model,
    /// The tokens that are in the KV cache.
    sequence: Sequence,
    settings: AnswerSettings,
    /// The system message.
    pub system: Option<String>,
    /// Tool definitions in OpenAI's form.
    pub tools: Option<Vec<Value>>,
    think: Option<bool>,
    /// Without the system message.
    messages: Vec<Said>,
}

impl<'m> Session<'m> {
    pub(crate) fn new(model: &'m mut Model, settings: AnswerSettings) -> Self {
        Self {
            model,
            sequence: Sequence::default(),
            settings,
            system: None,
            tools: None,
            think: None,
            messages: Vec::new(),
        }
    }

    /// The model.
    pub fn model(&mut self) -> &mut Model {
        self.model
    }

    /// The settings in force.
    pub fn settings(&self) -> &AnswerSettings {
        &self.settings
    }

    /// The sampling settings of the next answer, as far as they do not depend on its message.
    pub fn sampling(&self) -> ResolvedSampling {
        let chat = self.model.files.chat().expect("it was opened before the session began");
        let messages = vec![Message::text("user", "")];
        let prompt = chat.render(&Conversation { messages, think: self.think, ..Conversation::default() });
        self.settings.sampling(prompt.map_or(Thinking::Unknown, |prompt| chat.thinking(&prompt)))
    }

    /// Changes the settings, from the next answer on.
    ///
    /// # Errors
    /// [`Error::Setting`] for a setting outside its range; the settings then stay.
    pub fn set_options(&mut self, options: AnswerOptions) -> Result<(), Error> {
        self.settings = options.resolve(self.model.files.checkpoint())?;
        Ok(())
    }

    /// Position of the thinking switch; `None` is the template's default.
    pub fn think(&self) -> Option<bool> {
        self.think
    }

    /// Sets the thinking switch; `None` leaves it to the template.
    ///
    /// # Errors
    /// [`Error::NoThinkingSwitch`].
    pub fn set_think(&mut self, think: Option<bool>) -> Result<(), Error> {
        self.model.files.chat()?.check_think(think)?;
        self.think = think;
        Ok(())
    }

    /// The conversation, system message first.
    pub fn messages(&self) -> Vec<Message> {
        let system = self.system.as_ref().map(|text| Message::text("system", text.as_str()));
        system.into_iter().chain(self.messages.iter().map(|said| said.message.clone())).collect()
    }

    /// Forgets the conversation; the system message stays.
    pub fn reset(&mut self) {
        self.messages.clear();
    }

    /// Number of tokens that are in the KV cache.
    pub fn cached_tokens(&self) -> usize {
        self.sequence.len()
    }

    /// Sends a user's text with images before it.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn say(&mut self, text: impl Into<String>, images: &[ImageFile]) -> Result<Answer<'_>, Error> {
        self.send(ImageFile::message("user", images, text), images)
    }

    /// Sends a message, such as a tool's result; `images` are those that it holds, in order.
    ///
    /// # Errors
    /// [`Error::Message`], [`Error::Prompt`] and [`Error::ImagePrompt`] when the template refuses it,
    /// [`Error::PromptTooLong`], [`Error::Cancelled`], and any error of the engine. The conversation is then as it was.
    pub fn send(&mut self, message: Message, images: &[ImageFile]) -> Result<Answer<'_>, Error> {
        let keep = self.messages.len();
        self.messages.push(Said { message, images: images.to_vec() });
        self.answer(keep, None)
    }

    /// Answers the last message again.
    ///
    /// # Errors
    /// [`Error::NoAnswerYet`], and as [`send`](Self::send); the old answer then stays.
    pub fn regenerate(&mut self) -> Result<Answer<'_>, Error> {
        match self.messages.pop_if(|said| said.message.role == "assistant") {
            Some(old) => self.answer(self.messages.len(), Some(old)),
            None => Err(Error::NoAnswerYet),
        }
    }

    /// Answers the conversation as it stands; of its messages `keep` stay when there is no answer.
    fn answer(&mut self, keep: usize, replaced: Option<Said>) -> Result<Answer<'_>, Error> {
        let conversation = Conversation {
            messages: self.messages(),
            tools: self.tools.clone(),
            think: self.think,
            images: self.messages.iter().flat_map(|said| &said.images).map(ImageFile::grid).collect(),
            ..Conversation::default()
        };
        let images: Vec<ImageFile> = self.messages.iter().flat_map(|said| said.images.clone()).collect();
        // From here on an error puts the conversation back.
        let kept = Kept { messages: &mut self.messages, keep, replaced };
        let prompt = self.model.files.chat()?.prompt(&conversation)?;
        continue_prompt(self.model, &mut self.sequence, &mut self.settings, &prompt, &images, Some(kept))
    }

    /// Continues a prompt that is not part of the conversation; `images` are those that it holds, in order.
    ///
    /// # Errors
    /// [`Error::PromptTooLong`], [`Error::ImagePrompt`] unless the prompt holds as many images, [`Error::Cancelled`], and
    /// any error of the engine.
    pub fn complete(&mut self, prompt: &Prompt, images: &[ImageFile]) -> Result<Answer<'_>, Error> {
        continue_prompt(self.model, &mut self.sequence, &mut self.settings, prompt, images, None)
    }
}

fn continue_prompt<'s>(
    model: &'s mut Model,
    sequence: &'s mut Sequence,
    settings: &'s mut AnswerSettings,
    prompt: &Prompt,
    images: &[ImageFile],
    kept: Option<Kept<'s>>,
) -> Result<Answer<'s>, Error> {
    let Model { files, engine, .. } = model;
    files.check_prompt_fits(prompt.ids.len())?;
    let (places, given) = (prompt.image_starts.len(), images.len());
    if places != given {
        return Err(ImagePromptError::Count { places, images: given }.into());
    }
    let images = files.encode(images)?;
    let text = files.chat()?;
    let AnswerOptions { max_tokens, no_loop_check, .. } = settings.options;
    let limits = GenerateLimits {
        context: Some(files.context_size()),
        max_tokens,
        end_tokens: text.tokenizer().eog().to_vec(),
        no_loop_check,
    };
    let spans = images.at(&prompt.image_starts);
    let tokens = Tokens { ids: &prompt.ids, images: &spans };
    let generation = Generation::start(engine, sequence, tokens, limits)?;
    let thinking = text.thinking(prompt);
    let splitter = text.splitter(prompt, &settings.options.stop);
    let sampling = settings.sampling(thinking);
    let parts = Parts {
        engine,
        sequence,
        sampler: settings.sampler(thinking),
        tokenizer: text.tokenizer(),
        progress: files.progress(),
    };
    let warnings = prompt.warnings.clone();
    Ok(Answer::new(parts, generation, splitter, warnings, images, Terms { max_tokens, sampling }, kept))
}

//! The state of a conversation and what the commands do to it.
use super::attachments::Attachments;
use super::command::{ChatCommand, HELP, ImageCommand, Think};
use crate::cli::generation_args::{GenerationArgs, Settings};
use crate::cli::model::{Conversation, LoadedModel, TextModel};
use crate::cli::output::AnswerWriter;
use crate::cli::turn::{self, Ending, Turn, TurnRequest};
use crate::cli::vision_model::{self, ImageFile};
use crate::cli::{chain_text, model, output, statistics};
use anyhow::{Context, Result, ensure};
use ember::chat::Message;
use ember::engine::{Sequence, Tokens};
use ember_loaders::checkpoint::Checkpoint;
use ember_loaders::gguf::OutputFile;
use std::io::Write;
use std::path::Path;

/// A conversation with a loaded model.
pub struct Session<'a> {
    checkpoint: &'a Checkpoint,
    text_model: TextModel,
    loaded: LoadedModel,
    attachments: Attachments,
    /// The tokens of the conversation that are still in the KV cache.
    sequence: Sequence,
    generation: GenerationArgs,
    settings: Settings,
    /// The system message.
    pub system: Option<String>,
    /// The thinking switch; `None` is the template's default.
    pub think: Option<bool>,
    /// Without the system message.
    messages: Vec<Said>,
}

/// A message of the conversation.
#[derive(Clone)]
struct Said {
    message: Message,
    images: Vec<ImageFile>,
}

/// What follows a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterCommand {
    /// The next line.
    Stay,
    /// The end of the program.
    Leave,
}

impl<'a> Session<'a> {
    /// An empty conversation.
    pub fn new(
        checkpoint: &'a Checkpoint,
        text_model: TextModel,
        loaded: LoadedModel,
        attachments: Attachments,
        generation: GenerationArgs,
        settings: Settings,
    ) -> Self {
        Self {
            checkpoint,
            text_model,
            loaded,
            attachments,
            sequence: Sequence::default(),
            generation,
            settings,
            system: None,
            think: None,
            messages: Vec::new(),
        }
    }

    /// Sends a message, with the images that are attached, and shows the answer.
    ///
    /// # Errors
    /// When it cannot be rendered, does not fit, or the model fails; the conversation is then as it was.
    pub fn say(&mut self, message: String) -> Result<()> {
        let images = self.attachments.take();
        let message = vision_model::message("user", &images, message);
        self.messages.push(Said { message, images });
        let answered = self.answer();
        if !matches!(answered, Ok(true)) {
            let images = self.messages.pop().map(|said| said.images);
            self.attachments.put_back(images.unwrap_or_default());
        }
        answered.map(drop)
    }

    /// Carries out a command.
    ///
    /// # Errors
    /// Why it could not be carried out.
    pub fn obey(&mut self, command: ChatCommand) -> Result<AfterCommand> {
        match command {
            ChatCommand::Exit => return Ok(AfterCommand::Leave),
            ChatCommand::Help => eprintln!("{HELP}"),
            ChatCommand::Reset => {
                self.messages.clear();
                self.attachments.take();
                eprintln!("the conversation is empty again");
            }
            ChatCommand::System(None) => self.show_system(),
            ChatCommand::System(Some(text)) => {
                self.system = (text != "none").then_some(text);
                self.show_system();
            }
            ChatCommand::Think(None) => self.show_think(),
            ChatCommand::Think(Some(think)) => self.set_think(think)?,
            ChatCommand::Image(command) => self.obey_image(command)?,
            ChatCommand::Save(path) => self.save(&path)?,
            ChatCommand::Set(None) => self.show_settings(),
            ChatCommand::Set(Some((name, value))) => self.set(&name, &value)?,
            ChatCommand::Info => self.show_info(),
            ChatCommand::Regen => self.regenerate()?,
        }
        Ok(AfterCommand::Stay)
    }

    /// Answers the last message; `false` when that was interrupted before anything was said.
    fn answer(&mut self) -> Result<bool> {
        let messages = self.all_messages();
        let images: Vec<ImageFile> = self.messages.iter().flat_map(|said| said.images.clone()).collect();
        let mut prompt = self.text_model.prompt(&Conversation {
            messages: &messages,
            tools: None,
            think: self.think,
            generation_prompt: true,
        })?;
        self.attachments.place(&mut prompt, &images)?;
        let context = self.loaded.engine.context_size();
        model::check_prompt_fits(prompt.ids.len(), context, self.checkpoint.config())
            .context("the conversation is too long (/reset starts a new one)")?;
        let max_tokens = self.generation.max_tokens(self.text_model.thinks(&prompt));
        let splitter = self.text_model.splitter(&prompt, &self.generation.stop);
        let Some(encoded) = self.attachments.encode(&images)? else { return Ok(false) };
        let spans = encoded.at(&prompt.image_starts);
        let tokens = Tokens { ids: &prompt.ids, images: &spans };
        let turn = turn::run(
            &mut self.loaded.engine,
            &mut self.sequence,
            &self.text_model.tokenizer,
            &mut self.settings.sampler,
            TurnRequest { prompt: tokens, max_tokens, splitter },
            Some(&mut AnswerWriter::new()),
        )?;
        eprintln!("{}", output::dim(&statistics::line(&turn, max_tokens)));
        Ok(self.keep(turn))
    }

    fn keep(&mut self, turn: Turn) -> bool {
        if turn.ending == Ending::Interrupted && turn.text.is_empty() && turn.reasoning.is_empty() {
            return false;
        }
        let mut message = Message::text("assistant", turn.text);
        message.reasoning_content = (!turn.reasoning.is_empty()).then_some(turn.reasoning);
        self.messages.push(Said { message, images: Vec::new() });
        true
    }

    fn regenerate(&mut self) -> Result<()> {
        let is_answer = |said: &&Said| said.message.role == "assistant";
        let old = self.messages.last().filter(is_answer).cloned().context("there is no answer yet")?;
        self.messages.pop();
        let answered = self.answer();
        if !matches!(answered, Ok(true)) {
            self.messages.push(old);
        }
        answered.map(drop)
    }

    fn all_messages(&self) -> Vec<Message> {
        let system = self.system.as_ref().map(|text| Message::text("system", text.as_str()));
        system.into_iter().chain(self.messages.iter().map(|said| said.message.clone())).collect()
    }

    fn save(&self, path: &Path) -> Result<()> {
        let messages = self.all_messages();
        ensure!(!messages.is_empty(), "there is nothing to save yet");
        let cannot_write = || format!("cannot write {}", path.display());
        let mut file = OutputFile::create(path).with_context(cannot_write)?;
        serde_json::to_writer_pretty(&mut file, &messages).with_context(cannot_write)?;
        writeln!(file).and_then(|()| file.commit()).with_context(cannot_write)?;
        eprintln!("{} messages saved to {}", messages.len(), path.display());
        Ok(())
    }

    fn obey_image(&mut self, command: ImageCommand) -> Result<()> {
        match command {
            ImageCommand::Attach(path) => {
                return self.attachments.attach(&path, self.checkpoint, &self.text_model);
            }
            ImageCommand::Detach => drop(self.attachments.take()),
            ImageCommand::List => {}
        }
        self.attachments.show();
        Ok(())
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let changed = self.generation.with(name, value)?;
        self.settings = changed.resolve(self.checkpoint)?;
        self.generation = changed;
        self.show_settings();
        Ok(())
    }

    fn set_think(&mut self, think: Think) -> Result<()> {
        let switch = match think {
            Think::On => Some(true),
            Think::Off => Some(false),
            Think::TemplateDefault => None,
        };
        self.text_model.check_think(switch)?;
        self.think = switch;
        self.show_think();
        Ok(())
    }

    fn show_system(&self) {
        match &self.system {
            Some(text) => eprintln!("system: {text}"),
            None => eprintln!("there is no system message"),
        }
    }

    fn show_think(&self) {
        match (self.text_model.template.has_thinking_switch(), self.think) {
            (false, _) => eprintln!("the chat template of this model has no thinking switch"),
            (true, None) => eprintln!("thinking: as the template decides"),
            (true, Some(on)) => eprintln!("thinking: {}", if on { "on" } else { "off" }),
        }
    }

    fn show_settings(&self) {
        eprintln!("sampling: {}", self.settings.description);
        let (plain, thinking) = (self.generation.max_tokens(false), self.generation.max_tokens(true));
        let thinking = if thinking == plain { String::new() } else { format!(" ({thinking} with thinking)") };
        eprintln!("max-tokens: {plain}{thinking}");
        eprintln!("stop: {:?}", self.generation.stop);
    }

    fn show_info(&mut self) {
        eprintln!("{}", self.loaded.description);
        match self.attachments.open(self.checkpoint, &self.text_model) {
            Ok(model) => eprintln!("{}", model.description()),
            Err(error) => eprintln!("no images: {}", chain_text(&error)),
        }
        let (used, size) = (self.sequence.len(), self.loaded.engine.context_size());
        eprintln!("context: {used} of {size} tokens in use, {} messages", self.messages.len());
        self.show_system();
        self.show_think();
        self.show_settings();
    }
}

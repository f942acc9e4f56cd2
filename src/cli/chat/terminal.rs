//! A conversation at the terminal: the session, the images that wait for the next message, and the commands.
use super::command::{ChatCommand, HELP, ImageCommand, Think};
use crate::cli::generation_args::GenerationArgs;
use crate::cli::out_file::{Existing, OutFile};
use crate::cli::output::AnswerWriter;
use crate::cli::{output, statistics, turn, with_advice};
use anyhow::{Context, Result, ensure};
use ember::{Answer, AnswerOptions, Error, ImageFile, Session};
use ember_loaders::image::ImageGrid;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A session with what the terminal adds to it.
pub struct Terminal<'m> {
    session: Session<'m>,
    generation: GenerationArgs,
    /// The images of the next message.
    waiting: Vec<ImageFile>,
    /// The files that were read beside the model's own; none of them is written to.
    inputs: Vec<PathBuf>,
}

/// The step that follows a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterCommand {
    /// The next line.
    Stay,
    /// The end of the program.
    Leave,
}

impl<'m> Terminal<'m> {
    /// A session whose settings come from `generation`, and images for its first message.
    pub fn new(session: Session<'m>, generation: GenerationArgs, waiting: Vec<ImageFile>) -> Self {
        let inputs = waiting.iter().map(|file| file.path.clone()).collect();
        let terminal = Self { session, generation, waiting, inputs };
        if !terminal.waiting.is_empty() {
            terminal.show_images();
        }
        terminal
    }

    /// Sends a message, with the images that wait, and shows the answer.
    ///
    /// # Errors
    /// If it cannot be rendered, does not fit, or the model fails; the conversation is then as it was.
    pub fn say(&mut self, message: String) -> Result<()> {
        let images = std::mem::take(&mut self.waiting);
        let answered = show(|| self.session.say(message, &images));
        if !matches!(answered, Ok(true)) {
            self.waiting = images;
        }
        answered.map(drop)
    }

    /// Carries out a command.
    ///
    /// # Errors
    /// The reason it could not be carried out.
    pub fn obey(&mut self, command: ChatCommand) -> Result<AfterCommand> {
        match command {
            ChatCommand::Exit => return Ok(AfterCommand::Leave),
            ChatCommand::Help => eprintln!("{HELP}"),
            ChatCommand::Reset => {
                self.session.reset();
                self.waiting.clear();
                eprintln!("the conversation is empty again");
            }
            ChatCommand::System(None) => self.show_system(),
            ChatCommand::System(Some(text)) => {
                self.session.system = (text != "none").then_some(text);
                self.show_system();
            }
            ChatCommand::Think(None) => self.show_think()?,
            ChatCommand::Think(Some(think)) => self.set_think(think)?,
            ChatCommand::Image(command) => self.obey_image(command)?,
            ChatCommand::Save(path, existing) => self.save(&path, existing)?,
            ChatCommand::Set(None) => self.show_settings(),
            ChatCommand::Set(Some((name, value))) => self.change(self.generation.with(&name, &value)?)?,
            ChatCommand::Unset(name) => self.change(self.generation.without(&name)?)?,
            ChatCommand::Info => self.show_info()?,
            ChatCommand::Regen => drop(show(|| self.session.regenerate())?),
        }
        Ok(AfterCommand::Stay)
    }

    fn save(&mut self, path: &Path, existing: Existing) -> Result<()> {
        let messages = self.session.messages();
        ensure!(!messages.is_empty(), "there is nothing to save yet");
        let mut inputs = self.session.model().files().paths()?;
        inputs.extend_from_slice(&self.inputs);
        let out = OutFile::new(path, existing, &inputs)?;
        let mut file = out.create()?;
        let cannot_write = || out.cannot_write();
        serde_json::to_writer_pretty(&mut file, &messages).with_context(cannot_write)?;
        writeln!(file).and_then(|()| file.commit()).with_context(cannot_write)?;
        eprintln!("{} messages saved to {}", messages.len(), path.display());
        Ok(())
    }

    fn obey_image(&mut self, command: ImageCommand) -> Result<()> {
        match command {
            ImageCommand::Attach(path) => {
                let model = self.session.model();
                model.files().chat()?.check_takes_images()?;
                let was_open = model.files().has_vision();
                let vision = model.vision()?;
                let file = vision.read(&path)?;
                if !was_open {
                    eprintln!("{}", vision.description());
                }
                self.inputs.push(file.path.clone());
                self.waiting.push(file);
            }
            ImageCommand::Detach => self.waiting.clear(),
            ImageCommand::List => {}
        }
        self.show_images();
        Ok(())
    }

    fn change(&mut self, changed: GenerationArgs) -> Result<()> {
        self.session.set_options(changed.options())?;
        self.generation = changed;
        self.show_settings();
        Ok(())
    }

    fn set_think(&mut self, think: Think) -> Result<()> {
        self.session.set_think(match think {
            Think::On => Some(true),
            Think::Off => Some(false),
            Think::TemplateDefault => None,
        })?;
        self.show_think()
    }

    fn show_images(&self) {
        if self.waiting.is_empty() {
            eprintln!("no image is attached");
        }
        for file in &self.waiting {
            let ImageGrid { rows, cols } = file.grid();
            let tokens = file.grid().tokens();
            eprintln!("attached: {}, {rows} x {cols} cells, {tokens} tokens", file.path.display());
        }
    }

    fn show_system(&self) {
        match &self.session.system {
            Some(text) => eprintln!("system: {text}"),
            None => eprintln!("there is no system message"),
        }
    }

    fn show_think(&mut self) -> Result<()> {
        let think = self.session.think();
        match (self.session.model().files().chat()?.template()?.has_thinking_switch(), think) {
            (false, _) => eprintln!("the chat template of this model has no thinking switch"),
            (true, None) => eprintln!("thinking: as the template decides"),
            (true, Some(on)) => eprintln!("thinking: {}", if on { "on" } else { "off" }),
        }
        Ok(())
    }

    fn show_settings(&self) {
        eprintln!("sampling: {}", self.session.sampling().describe(statistics::source_name));
        let AnswerOptions { stop, max_tokens, .. } = &self.session.settings().options;
        match max_tokens {
            Some(max_tokens) => eprintln!("max-tokens: {max_tokens}"),
            None => eprintln!("max-tokens: what is left of the context"),
        }
        eprintln!("stop: {stop:?}");
    }

    fn show_info(&mut self) -> Result<()> {
        let used = self.session.cached_tokens();
        let messages = self.session.messages().len() - usize::from(self.session.system.is_some());
        let model = self.session.model();
        eprintln!("{}", model.description());
        let takes_images = model.files().chat()?.check_takes_images();
        match takes_images.and_then(|()| model.vision()) {
            Ok(vision) => eprintln!("{}", vision.description()),
            Err(error) => eprintln!("no images: {}", with_advice(&error.into())),
        }
        let size = model.files().context_size();
        eprintln!("context: {used} of {size} tokens in use, {messages} messages");
        self.show_system();
        self.show_think()?;
        self.show_settings();
        Ok(())
    }
}

/// Shows an answer and its statistics; `false` when it was interrupted before anything was said.
fn show<'a>(start: impl FnOnce() -> Result<Answer<'a>, Error>) -> Result<bool> {
    let shown = turn::show(start, Some(&mut AnswerWriter::new()));
    let too_long =
        |error: &anyhow::Error| matches!(error.downcast_ref::<Error>(), Some(Error::PromptTooLong { .. }));
    let shown = match shown {
        Err(error) if too_long(&error) => {
            return Err(error.context("the conversation is too long (/reset starts a new one)"));
        }
        shown => shown?,
    };
    let Some(result) = shown else { return Ok(false) };
    output::dim_line(&statistics::line(&result));
    if let Some(warning) = statistics::warning(&result) {
        eprintln!("{warning}");
    }
    Ok(!result.is_nothing())
}

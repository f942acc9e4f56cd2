//! `ember chat`: a conversation in the terminal.
mod command;
mod input;
mod terminal;

use super::args::{CheckArgs, ContextArgs, DeviceArgs, ModelArg, TemplateArg, ThinkArgs, model_options};
use super::generation_args::GenerationArgs;
use super::image_args::ImageArgs;
use super::{Outcome, model, output};
use anyhow::Result;
use command::Input;
use ember::{ModelFiles, ModelOptions};
use input::{Entry, LineReader};
use std::io::{IsTerminal, stdin};
use terminal::{AfterCommand, Terminal};

/// Talk to a model
#[derive(clap::Args)]
#[command(
    after_help = "The answers go to stdout; reasoning, statistics and the replies to commands go to stderr. /help lists
the commands. Input may also be piped, one message per line. The images of --image go with the first message.

Examples:
  ember chat -m model.gguf
  ember chat -m model.gguf --image photo.jpg
  ember chat -m model.gguf --system \"You are a pirate.\" --temp 0.8 --ctx-size 16384
  printf 'Hi!\\n/set temp 1\\n/regen\\n' | ember chat -m model.gguf"
)]
pub struct Args {
    #[command(flatten)]
    model: ModelArg,
    /// System message before the conversation
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    #[command(flatten)]
    template: TemplateArg,
    #[command(flatten)]
    think: ThinkArgs,
    #[command(flatten)]
    images: ImageArgs,
    #[command(flatten)]
    generation: GenerationArgs,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    context: ContextArgs,
    #[command(flatten)]
    check: CheckArgs,
}

/// Talks until the user leaves.
pub fn run(args: Args) -> Result<Outcome> {
    let is_projector_named = args.images.projector.mmproj.is_some();
    let options = ModelOptions {
        check_finite: args.check.check_finite,
        chat_template: args.template.read()?,
        ..model_options(args.device, &args.context, args.images.projector)
    };
    let mut files = ModelFiles::open(&args.model.model, options)?;
    // Mistakes come to light before anything is loaded.
    files.chat()?.template()?;
    files.chat()?.check_think(args.think.switch())?;
    args.generation.options().resolve(files.checkpoint())?;
    if is_projector_named || !args.images.images.is_empty() {
        files.chat()?.check_takes_images()?;
        files.vision()?;
    }
    let images = model::read_images(&mut files, &args.images.images)?;
    let mut model = model::load(files)?;
    let mut session = model.session(args.generation.options())?;
    session.system = args.system;
    session.set_think(args.think.switch())?;
    let mut terminal = Terminal::new(session, args.generation, images);
    let mut lines = LineReader::new()?;
    if stdin().is_terminal() {
        eprintln!("/help lists the commands, Ctrl-D leaves");
    }
    converse(&mut terminal, &mut lines)?;
    Ok(Outcome::Done)
}

fn converse(terminal: &mut Terminal<'_>, lines: &mut LineReader) -> Result<()> {
    loop {
        let text = match lines.read()? {
            Entry::Text(text) => text,
            Entry::Cancelled => {
                eprintln!("Ctrl-D or /exit leaves");
                continue;
            }
            Entry::End => return Ok(()),
        };
        if text.trim().is_empty() {
            continue;
        }
        let done = match command::parse(&text) {
            Input::Message(message) => terminal.say(message),
            Input::Mistake(mistake) => Err(anyhow::Error::msg(mistake)),
            Input::Command(command) => match terminal.obey(command) {
                Ok(AfterCommand::Leave) => return Ok(()),
                Ok(AfterCommand::Stay) => Ok(()),
                Err(error) => Err(error),
            },
        };
        match done {
            // Nobody reads the answers any more.
            Err(error) if output::is_broken_pipe(&error) => return Err(error),
            Err(error) => eprintln!("error: {}", super::with_advice(&error)),
            Ok(()) => {}
        }
    }
}

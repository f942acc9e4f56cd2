//! `ember chat`: a conversation in the terminal.
mod attachments;
mod command;
mod input;
mod session;

use super::args::{ContextArgs, DeviceArgs, ModelArg, ThinkArgs};
use super::generation_args::GenerationArgs;
use super::model::{self, TextModel};
use super::projector::ImageArgs;
use super::{Outcome, output};
use anyhow::Result;
use attachments::Attachments;
use command::Input;
use ember_loaders::checkpoint::Checkpoint;
use input::{Entry, LineReader};
use session::{AfterCommand, Session};
use std::io::{IsTerminal, stdin};

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
    think: ThinkArgs,
    #[command(flatten)]
    images: ImageArgs,
    #[command(flatten)]
    generation: GenerationArgs,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    context: ContextArgs,
}

/// Talks until the user leaves.
pub fn run(args: Args) -> Result<Outcome> {
    let checkpoint = Checkpoint::open(&args.model.model)?;
    let text_model = TextModel::new(model::checkpoint_tokenizer(&checkpoint)?)?;
    text_model.check_think(args.think.switch())?;
    let settings = args.generation.resolve(&checkpoint)?;
    model::context_size(checkpoint.config(), args.context.ctx_size)?;
    let ImageArgs { images, projector } = args.images;
    let is_projector_named = projector.mmproj.is_some();
    let mut attachments = Attachments::new(projector, args.device);
    if is_projector_named {
        attachments.open(&checkpoint, &text_model)?;
    }
    for path in &images {
        attachments.attach(path, &checkpoint, &text_model)?;
    }
    let loaded = model::load(&checkpoint, &args.device, &args.context)?;
    let mut session = Session::new(&checkpoint, text_model, loaded, attachments, args.generation, settings);
    session.system = args.system;
    session.think = args.think.switch();
    let mut lines = LineReader::new()?;
    if stdin().is_terminal() {
        eprintln!("/help lists the commands, Ctrl-D leaves");
    }
    converse(&mut session, &mut lines)?;
    Ok(Outcome::Done)
}

fn converse(session: &mut Session<'_>, lines: &mut LineReader) -> Result<()> {
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
            Input::Message(message) => session.say(message),
            Input::Mistake(mistake) => Err(anyhow::Error::msg(mistake)),
            Input::Command(command) => match session.obey(command) {
                Ok(AfterCommand::Leave) => return Ok(()),
                Ok(AfterCommand::Stay) => Ok(()),
                Err(error) => Err(error),
            },
        };
        match done {
            // Nobody reads the answers any more.
            Err(error) if output::is_broken_pipe(&error) => return Err(error),
            Err(error) => eprintln!("error: {}", super::chain_text(&error)),
            Ok(()) => {}
        }
    }
}

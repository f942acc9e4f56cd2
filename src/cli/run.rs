//! `ember run`: one prompt, one answer.
use super::args::{CheckArgs, ContextArgs, DeviceArgs, ModelArg, TemplateArg, ThinkArgs, model_options};
use super::generation_args::GenerationArgs;
use super::image_args::ImageArgs;
use super::output::{self, AnswerWriter};
use super::render::PromptJson;
use super::statistics::{self, AnswerJson};
use super::text_input::{
    is_stdin, read_piped_stdin, read_stdin_beside_prompt, read_text, without_line_break,
};
use super::visible::shown;
use super::{Outcome, model, turn, usage_error};
use anyhow::{Result, ensure};
use ember::chat::Prompt;
use ember::{AnswerOptions, Conversation, Ending, ImageFile, Message, Model, ModelFiles, ModelOptions};
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

/// Answer one prompt
#[derive(clap::Args)]
#[command(
    after_help = "The answer goes to stdout as it is generated; reasoning and statistics go to stderr. Ctrl-C stops
the answer (exit status 130).

What is piped into stdin is part of the prompt: after a blank line when there is a prompt already, of which stderr tells
the size. A pipe that stays silent for 3 seconds is then left alone; `-f -` waits for as long as it takes. --no-stdin
never reads stdin: with it (or </dev/null), a loop over a list does not lose the rest of its list to the first call.

Examples:
  ember run -m model.gguf \"Why is the sky blue?\"
  ember run -m model.gguf --system \"Answer in French.\" --temp 0.7 --seed 1 -f question.txt
  ember run -m model.gguf --image photo.jpg \"What is this?\"
  git diff | ember run -m model.gguf \"Review this change\" --json | jq -r .text
  while read -r line; do ember run -m model.gguf --no-stdin \"$line\"; done < questions.txt
  ember run -m model.gguf --raw \"Once upon a time\""
)]
pub struct Args {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    prompt: PromptArgs,
    /// System message before the prompt
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    system: Option<String>,
    /// Continue the prompt as it is, without the chat template; control tokens in it are recognised, and an [IMG] is the
    /// place of an --image
    #[arg(long, conflicts_with_all = ["think", "no_think", "chat_template"])]
    raw: bool,
    #[command(flatten)]
    template: TemplateArg,
    #[command(flatten)]
    think: ThinkArgs,
    /// Print one JSON object instead of streaming: text, reasoning, finish_reason (stop, length, repetition or
    /// interrupted), limit (the one that cut it), token counts, sampling settings and their sources, timings
    #[arg(long)]
    json: bool,
    /// Print the rendered prompt and its token ids, and run nothing
    #[arg(long)]
    dump_prompt: bool,
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

#[derive(clap::Args)]
struct PromptArgs {
    #[command(flatten)]
    given: GivenPrompt,
    /// Leave stdin alone, whatever is piped into it
    #[arg(long)]
    no_stdin: bool,
}

#[derive(clap::Args)]
#[group(multiple = false)]
struct GivenPrompt {
    /// The prompt; text that is piped into stdin follows it [default: that text; `-` too means stdin]
    #[arg(value_name = "PROMPT")]
    positional: Option<String>,
    /// The prompt, as a flag
    #[arg(short, long = "prompt", value_name = "TEXT")]
    prompt: Option<String>,
    /// Read the prompt from a file, without its last line break; `-` is stdin
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl PromptArgs {
    /// The prompt, with what is piped in; `default` when there is neither.
    fn read(self, default: Option<&str>) -> Result<String> {
        let Self { given, no_stdin } = self;
        let file =
            given.file.or_else(|| given.positional.as_ref().filter(|text| *text == "-").map(PathBuf::from));
        if let Some(stdin) = file.as_deref().filter(|file| is_stdin(file)) {
            return match no_stdin {
                true => Err(usage_error("run", "`-` reads stdin, and --no-stdin does not")),
                false => Ok(without_line_break(read_text(stdin)?)),
            };
        }
        let given = match file {
            Some(file) => Some(without_line_break(read_text(&file)?)),
            None => given.positional.or(given.prompt),
        };
        let piped = match (no_stdin, given.is_some() || default.is_some()) {
            (true, _) => None,
            (false, true) => read_stdin_beside_prompt()?,
            (false, false) => read_piped_stdin()?.filter(|text| !text.trim().is_empty()),
        };
        match (given, piped) {
            (Some(given), Some(piped)) => {
                eprintln!("stdin: {} bytes added to the prompt", piped.len());
                Ok(format!("{given}\n\n{}", without_line_break(piped)))
            }
            (Some(text), None) => Ok(text),
            (None, Some(text)) => Ok(without_line_break(text)),
            (None, None) => default.map(str::to_owned).ok_or_else(|| {
                usage_error("run", "there is no prompt: give one, name a file (-f), or pipe one into stdin")
            }),
        }
    }
}

/// The question about images that come without a prompt.
fn default_prompt(images: usize) -> Option<&'static str> {
    match images {
        0 => None,
        1 => Some("Describe this image."),
        _ => Some("Describe these images."),
    }
}

/// Answers the prompt.
pub fn run(args: Args) -> Result<Outcome> {
    // Without the template nothing says where the images are.
    let default = default_prompt(args.images.images.len()).filter(|_| !args.raw);
    let text = args.prompt.read(default)?;
    let options = args.generation.options();
    let model_options = ModelOptions {
        check_finite: args.check.check_finite,
        chat_template: args.template.read()?,
        ..model_options(args.device, &args.context, args.images.projector)
    };
    let mut files = ModelFiles::open(&args.model.model, model_options)?;
    if !args.raw {
        files.chat()?.template()?;
    }
    // A mistake in the settings comes to light before anything is loaded.
    options.clone().resolve(files.checkpoint())?;
    let images = model::read_images(&mut files, &args.images.images)?;
    let grids: Vec<_> = images.iter().map(ImageFile::grid).collect();
    let prompt = if args.raw {
        files.chat()?.raw_prompt(text, &grids)?
    } else {
        let system = args.system.map(|system| Message::text("system", system));
        let messages = system.into_iter().chain([ImageFile::message("user", &images, text)]).collect();
        let think = args.think.switch();
        files.chat()?.prompt(&Conversation { messages, think, images: grids, ..Conversation::default() })?
    };
    if args.dump_prompt {
        output::warn_of_omissions(&prompt.warnings);
        return dump(&prompt, args.json);
    }
    ensure!(!prompt.ids.is_empty(), "the prompt is empty");
    files.check_prompt_fits(prompt.ids.len())?;
    let mut model = model::load(files)?;
    answer(&mut model, options, &prompt, &images, args.json)
}

fn answer(
    model: &mut Model,
    options: AnswerOptions,
    prompt: &Prompt,
    images: &[ImageFile],
    json: bool,
) -> Result<Outcome> {
    let load_time = model.load_time();
    let mut session = model.raw_session(options)?;
    let mut writer = AnswerWriter::new();
    let shown = turn::show(|| session.complete(prompt, images), (!json).then_some(&mut writer))?;
    let Some(result) = shown else { return Ok(Outcome::Interrupted) };
    if json {
        output::json_line(&mut io::stdout().lock(), &AnswerJson::new(&result, load_time))?;
    }
    eprintln!("{}", statistics::text(&result));
    Ok(if result.ending == Ending::Cancelled { Outcome::Interrupted } else { Outcome::Done })
}

fn dump(prompt: &Prompt, json: bool) -> Result<Outcome> {
    let mut out = io::stdout().lock();
    if json {
        output::json_line(&mut out, &PromptJson::from(prompt))?;
    } else {
        let ids: Vec<String> = prompt.ids.iter().map(u32::to_string).collect();
        writeln!(out, "{}\n{}", shown(out.is_terminal(), &prompt.text), ids.join(" "))?;
    }
    out.flush()?;
    Ok(Outcome::Done)
}

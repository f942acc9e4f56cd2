//! `ember run`: one prompt, one answer.
use super::args::{ContextArgs, DeviceArgs, ModelArg, ThinkArgs, read_piped_stdin, read_text};
use super::generation_args::{GenerationArgs, Settings};
use super::model::{self, Conversation, LoadedModel, TextModel};
use super::output::{self, AnswerWriter};
use super::render::PromptJson;
use super::statistics::{self, TurnJson};
use super::turn::{self, Ending, TurnRequest};
use super::{Outcome, usage_error};
use anyhow::{Result, ensure};
use ember::chat::{Message, Prompt, StreamDecoder};
use ember::engine::Sequence;
use ember_loaders::checkpoint::Checkpoint;
use ember_loaders::tokenizer::{SpecialTokens, Tokenizer};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Answer one prompt
#[derive(clap::Args)]
#[command(
    after_help = "The answer goes to stdout as it is generated; reasoning and statistics go to stderr. Ctrl-C stops
the answer (exit status 130).

Examples:
  ember run -m model.gguf \"Why is the sky blue?\"
  ember run -m model.gguf --system \"Answer in French.\" --temp 0.7 --seed 1 -f question.txt
  git diff | ember run -m model.gguf --max-tokens 300 --json | jq -r .text
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
    /// Continue the prompt as it is, without the chat template; control tokens in it are recognised
    #[arg(long, conflicts_with_all = ["think", "no_think"])]
    raw: bool,
    #[command(flatten)]
    think: ThinkArgs,
    #[command(flatten)]
    generation: GenerationArgs,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    context: ContextArgs,
    /// Print one JSON object instead of streaming: text, reasoning, finish_reason, token counts, timings
    #[arg(long)]
    json: bool,
    /// Print the rendered prompt and its token ids, and run nothing
    #[arg(long)]
    dump_prompt: bool,
}

#[derive(clap::Args)]
#[group(multiple = false)]
struct PromptArgs {
    /// The prompt [default: stdin, when something is piped into it; `-` too means stdin]
    #[arg(value_name = "PROMPT")]
    positional: Option<String>,
    /// The prompt, as a flag
    #[arg(short, long = "prompt", value_name = "TEXT")]
    prompt: Option<String>,
    /// Read the prompt from a file, without its last line break
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl PromptArgs {
    fn read(self) -> Result<String> {
        let whole = match (self.positional, self.prompt, self.file) {
            (Some(dash), ..) if dash == "-" => read_text(Path::new("-"))?,
            (Some(text), ..) | (_, Some(text), _) => return Ok(text),
            (.., Some(file)) => read_text(&file)?,
            (None, None, None) => {
                let missing = "there is no prompt: give one, name a file (-f), or pipe one into stdin";
                read_piped_stdin()?.ok_or_else(|| usage_error("run", missing))?
            }
        };
        let text = whole.strip_suffix('\n').unwrap_or(&whole);
        Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
    }
}

/// Answers the prompt.
pub fn run(args: Args) -> Result<Outcome> {
    let text = args.prompt.read()?;
    let checkpoint = Checkpoint::open(&args.model.model)?;
    let settings = args.generation.resolve(&checkpoint)?;
    let tokenizer = model::checkpoint_tokenizer(&checkpoint)?;
    let stops = &args.generation.stop;
    let task = if args.raw {
        Task::raw(text, tokenizer, stops)?
    } else {
        Task::chat(text, args.system, args.think.switch(), TextModel::new(tokenizer)?, stops)?
    };
    if args.dump_prompt {
        return dump(&task.prompt, args.json);
    }
    let n = task.prompt.ids.len();
    ensure!(n > 0, "the prompt is empty");
    let config = checkpoint.config();
    model::check_prompt_fits(n, model::context_size(config, args.context.ctx_size)?, config)?;
    let loaded = model::load(&checkpoint, &args.device, &args.context)?;
    let max_tokens = args.generation.max_tokens(task.thinks);
    answer(task, loaded, settings, max_tokens, args.json)
}

/// A prompt and what its answer is read with.
struct Task {
    prompt: Prompt,
    tokenizer: Tokenizer,
    splitter: StreamDecoder,
    thinks: bool,
}

impl Task {
    /// The text as it is.
    fn raw(text: String, tokenizer: Tokenizer, stops: &[String]) -> Result<Self> {
        let ids = tokenizer.with_bos(tokenizer.encode(&text, SpecialTokens::Parse)?);
        let splitter = StreamDecoder::new(None, false, stops.to_vec());
        Ok(Self { prompt: Prompt { text, ids }, tokenizer, splitter, thinks: false })
    }

    /// The text as a user's message.
    fn chat(
        text: String,
        system: Option<String>,
        think: Option<bool>,
        model: TextModel,
        stops: &[String],
    ) -> Result<Self> {
        let system = system.map(|system| Message::text("system", system));
        let messages: Vec<Message> = system.into_iter().chain([Message::text("user", text)]).collect();
        let conversation = Conversation { messages: &messages, tools: None, think, generation_prompt: true };
        let prompt = model.prompt(&conversation)?;
        let (splitter, thinks) = (model.splitter(&prompt, stops), model.thinks(&prompt));
        Ok(Self { prompt, tokenizer: model.tokenizer, splitter, thinks })
    }
}

fn answer(
    task: Task,
    mut loaded: LoadedModel,
    mut settings: Settings,
    max_tokens: usize,
    json: bool,
) -> Result<Outcome> {
    let mut writer = AnswerWriter::new();
    let turn = turn::run(
        &mut loaded.engine,
        &mut Sequence::default(),
        &task.tokenizer,
        &mut settings.sampler,
        TurnRequest { prompt: &task.prompt.ids, max_tokens, splitter: task.splitter },
        (!json).then_some(&mut writer),
    )?;
    if json {
        let object = TurnJson::new(&turn, settings.in_force(), loaded.load_time);
        output::json_line(&mut io::stdout().lock(), &object)?;
    }
    eprintln!("{}", statistics::text(&turn, &settings.description, max_tokens));
    Ok(if turn.ending == Ending::Interrupted { Outcome::Interrupted } else { Outcome::Done })
}

fn dump(prompt: &Prompt, json: bool) -> Result<Outcome> {
    let mut out = io::stdout().lock();
    if json {
        output::json_line(&mut out, &PromptJson::from(prompt))?;
    } else {
        let ids: Vec<String> = prompt.ids.iter().map(u32::to_string).collect();
        writeln!(out, "{}\n{}", prompt.text, ids.join(" "))?;
    }
    out.flush()?;
    Ok(Outcome::Done)
}

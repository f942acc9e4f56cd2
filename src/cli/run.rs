//! `ember run`: one prompt, one answer.
use super::args::{ContextArgs, DeviceArgs, ModelArg, ThinkArgs, read_piped_stdin, read_text};
use super::generation_args::{GenerationArgs, Settings};
use super::model::{self, Conversation, LoadedModel, TextModel};
use super::output::{self, AnswerWriter};
use super::projector::ImageArgs;
use super::render::PromptJson;
use super::statistics::{self, TurnJson};
use super::turn::{self, Ending, TurnRequest};
use super::vision_model::{EncodedImages, ImageFile, VisionModel, message};
use super::{Outcome, usage_error};
use anyhow::{Result, ensure};
use ember::chat::{ImageTokens, Message, Prompt, StreamDecoder};
use ember::engine::{Sequence, Tokens};
use ember_loaders::checkpoint::Checkpoint;
use ember_loaders::image::ImageGrid;
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
  ember run -m model.gguf --image photo.jpg \"What is this?\"
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
    /// Continue the prompt as it is, without the chat template; control tokens in it are recognised, and an [IMG] is the
    /// place of an --image
    #[arg(long, conflicts_with_all = ["think", "no_think"])]
    raw: bool,
    #[command(flatten)]
    think: ThinkArgs,
    /// Print one JSON object instead of streaming: text, reasoning, finish_reason, token counts, timings
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
    /// The prompt; `default` when there is none.
    fn read(self, default: Option<&str>) -> Result<String> {
        let whole = match (self.positional, self.prompt, self.file) {
            (Some(dash), ..) if dash == "-" => read_text(Path::new("-"))?,
            (Some(text), ..) | (_, Some(text), _) => return Ok(text),
            (.., Some(file)) => read_text(&file)?,
            (None, None, None) => {
                let missing = "there is no prompt: give one, name a file (-f), or pipe one into stdin";
                let piped = read_piped_stdin()?;
                // With nothing on it, stdin need not be meant: a program that starts another one often leaves it so.
                match default.filter(|_| piped.as_ref().is_none_or(|text| text.trim().is_empty())) {
                    Some(default) => default.to_owned(),
                    None => piped.ok_or_else(|| usage_error("run", missing))?,
                }
            }
        };
        let text = whole.strip_suffix('\n').unwrap_or(&whole);
        Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
    }
}

/// What is asked about images that come without a prompt.
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
    let checkpoint = Checkpoint::open(&args.model.model)?;
    let settings = args.generation.resolve(&checkpoint)?;
    let tokenizer = model::checkpoint_tokenizer(&checkpoint)?;
    let mut images = Images::read(&args.images, &checkpoint, &tokenizer, &args.device)?;
    let stops = &args.generation.stop;
    let mut task = if args.raw {
        Task::raw(text, tokenizer, stops)?
    } else {
        let message = message("user", &images.files, text);
        Task::chat(message, args.system, args.think.switch(), TextModel::new(tokenizer)?, stops)?
    };
    images.place(&mut task.prompt)?;
    if args.dump_prompt {
        return dump(&task.prompt, args.json);
    }
    let n = task.prompt.ids.len();
    ensure!(n > 0, "the prompt is empty");
    let config = checkpoint.config();
    model::check_prompt_fits(n, model::context_size(config, args.context.ctx_size)?, config)?;
    let loaded = model::load(&checkpoint, &args.device, &args.context)?;
    let max_tokens = args.generation.max_tokens(task.thinks);
    match images.encode()? {
        Some(encoded) => answer(task, encoded, loaded, settings, max_tokens, args.json),
        None => Ok(Outcome::Interrupted),
    }
}

/// The images of the prompt.
struct Images {
    files: Vec<ImageFile>,
    /// What encodes them; `None` when there are none.
    model: Option<VisionModel>,
    /// `None` when the model takes none.
    tokens: Option<ImageTokens>,
}

impl Images {
    fn read(
        args: &ImageArgs,
        checkpoint: &Checkpoint,
        tokenizer: &Tokenizer,
        device: &DeviceArgs,
    ) -> Result<Self> {
        if args.images.is_empty() {
            let tokens = ImageTokens::of_vocabulary(|text| tokenizer.token_id(text)).ok();
            return Ok(Self { files: Vec::new(), model: None, tokens });
        }
        let (model, tokens) = VisionModel::open_for(checkpoint, tokenizer, &args.projector, device)?;
        eprintln!("{}", model.description());
        let files = args.images.iter().map(|path| model.read(path)).collect::<Result<_>>()?;
        Ok(Self { files, model: Some(model), tokens: Some(tokens) })
    }

    fn place(&self, prompt: &mut Prompt) -> Result<()> {
        let grids: Vec<ImageGrid> = self.files.iter().map(ImageFile::grid).collect();
        match &self.tokens {
            Some(tokens) => Ok(prompt.place_images(tokens, &grids)?),
            None => Ok(()),
        }
    }

    /// Nothing when Ctrl-C was pressed.
    fn encode(&mut self) -> Result<Option<EncodedImages>> {
        let Some(model) = &mut self.model else { return Ok(Some(EncodedImages::default())) };
        let encoded = model.encode(&self.files)?;
        if let Some(encoded) = &encoded {
            encoded.report();
        }
        Ok(encoded)
    }
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
        Ok(Self { prompt: Prompt::new(text, ids), tokenizer, splitter, thinks: false })
    }

    /// A user's message.
    fn chat(
        message: Message,
        system: Option<String>,
        think: Option<bool>,
        model: TextModel,
        stops: &[String],
    ) -> Result<Self> {
        let system = system.map(|system| Message::text("system", system));
        let messages: Vec<Message> = system.into_iter().chain([message]).collect();
        let conversation = Conversation { messages: &messages, tools: None, think, generation_prompt: true };
        let prompt = model.prompt(&conversation)?;
        let (splitter, thinks) = (model.splitter(&prompt, stops), model.thinks(&prompt));
        Ok(Self { prompt, tokenizer: model.tokenizer, splitter, thinks })
    }
}

fn answer(
    task: Task,
    images: EncodedImages,
    mut loaded: LoadedModel,
    mut settings: Settings,
    max_tokens: usize,
    json: bool,
) -> Result<Outcome> {
    let mut writer = AnswerWriter::new();
    let spans = images.at(&task.prompt.image_starts);
    let prompt = Tokens { ids: &task.prompt.ids, images: &spans };
    let turn = turn::run(
        &mut loaded.engine,
        &mut Sequence::default(),
        &task.tokenizer,
        &mut settings.sampler,
        TurnRequest { prompt, max_tokens, splitter: task.splitter },
        (!json).then_some(&mut writer),
    )?;
    if json {
        let object = TurnJson::new(&turn, settings.in_force(), loaded.load_time, &images);
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

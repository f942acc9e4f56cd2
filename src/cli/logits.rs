//! `ember logits`: the model's raw output for every position, as a safetensors file.
use super::args::{CheckArgs, ContextArgs, DeviceArgs, ModelArg, kv_type, model_options};
use super::detokenize::parse_ids;
use super::image_args::ImageArgs;
use super::interrupt::Listener;
use super::out_file::{ForceArg, OutFile};
use super::progress::Bar;
use super::safetensors::{Dtype, write_f32, write_header, write_i64};
use super::{Outcome, model, usage_error};
use anyhow::{Context, Result, bail};
use ember::chat::Prompt;
use ember::device::KvType;
use ember::engine::{Engine, Sequence, Tokens, Wanted};
use ember::{Error, ImageFile, ModelFiles, ModelOptions};
use ember_loaders::image::ImageGrid;
use std::path::PathBuf;

/// Rows per step: few enough that the logits of a large vocabulary stay small in memory.
const ROWS: usize = 32;

/// Write the logits of every position of a text to a safetensors file
#[derive(clap::Args)]
#[command(
    after_help = "The file holds `tokens` (i64, [n]) and `logits` (f32, [n, vocabulary]); row i is what the model predicts after
tokens 0..=i. It appears under its name only when it is complete.

The i-th --image stands at the i-th [IMG] of --prompt. --tokens must hold the tokens of its grid already: for each row
[IMG] for every cell, then [IMG_BREAK], after the last row [IMG_END].

Examples:
  ember logits -m model.gguf --prompt \"The capital of France is\" --out paris.safetensors
  ember logits -m model.gguf --tokens 1,15043,3186 --out hello.safetensors
  ember logits -m model.gguf --image cat.png --prompt \"[INST][IMG]A cat?[/INST]\" --out cat.safetensors"
)]
pub struct Args {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    input: InputArgs,
    /// File to write
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    force: ForceArg,
    #[command(flatten)]
    images: ImageArgs,
    #[command(flatten)]
    device: DeviceArgs,
    /// Element type of the KV cache
    #[arg(long, value_parser = kv_type(), value_name = "TYPE", default_value_t = KvType::F32, help_heading = "Device")]
    kv_cache_dtype: KvType,
    #[command(flatten)]
    check: CheckArgs,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct InputArgs {
    /// Token ids, separated by commas or spaces; taken as they are
    #[arg(long, value_name = "IDS")]
    tokens: Option<String>,
    /// Text; control tokens in it are recognised, and the beginning-of-sequence token is added if the model wants it
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
}

/// Runs the model and writes the file.
pub fn run(args: Args) -> Result<Outcome> {
    let context = ContextArgs { ctx_size: None, kv_cache_dtype: args.kv_cache_dtype };
    let options = ModelOptions {
        check_finite: args.check.check_finite,
        ..model_options(args.device, &context, args.images.projector)
    };
    let mut files = ModelFiles::open(&args.model.model, options)?;
    let images = &args.images.images;
    if !images.is_empty() {
        // Its files are inputs too.
        files.vision()?;
    }
    let inputs = [files.paths()?, images.clone()].concat();
    let out = OutFile::new(&args.out, args.force.into(), &inputs)?;
    let images = model::read_images(&mut files, images)?;
    let prompt = args.input.read(&files, &images)?;
    files.set_context_size(prompt.ids.len())?;
    let vocab_size = files.config().vocab_size;
    if let Some(id) = prompt.ids.iter().find(|&&id| id as usize >= vocab_size) {
        bail!("token id {id} is outside the vocabulary of {vocab_size} tokens");
    }
    let mut model = model::load(files)?;
    let listener = Listener::new();
    let encoded = match model.encode(&images) {
        Err(Error::Cancelled) => return Ok(Outcome::Interrupted),
        encoded => encoded?,
    };
    model::report_images(&encoded);
    let spans = encoded.at(&prompt.image_starts);
    let tokens = Tokens { ids: &prompt.ids, images: &spans };
    write_file(&out, model.engine(), tokens, vocab_size, &listener)
}

impl InputArgs {
    /// The tokens to run, with the images at their places.
    fn read(&self, files: &ModelFiles, images: &[ImageFile]) -> Result<Prompt> {
        let grids: Vec<ImageGrid> = images.iter().map(ImageFile::grid).collect();
        let prompt = match (&self.tokens, &self.prompt) {
            (Some(ids), _) => {
                let ids =
                    parse_ids(ids).map_err(|error| usage_error("logits", format!("--tokens: {error}")))?;
                let mut prompt = Prompt::raw(String::new(), ids);
                if !images.is_empty() {
                    let tokens = files.chat()?.image_tokens()?;
                    prompt.image_starts = tokens.find(&prompt.ids, &grids).context("--tokens")?;
                }
                prompt
            }
            (None, text) => {
                let text = text.clone().unwrap_or_default();
                files.chat()?.raw_prompt(text, &grids).context("--prompt")?
            }
        };
        if prompt.ids.is_empty() {
            return Err(usage_error("logits", "there is no token to run"));
        }
        Ok(prompt)
    }
}

fn write_file(
    out: &OutFile<'_>,
    engine: &mut Engine,
    tokens: Tokens<'_>,
    vocab_size: usize,
    listener: &Listener,
) -> Result<Outcome> {
    let n = tokens.ids.len();
    let cannot_write = || out.cannot_write();
    let mut file = out.create()?;
    let header = [("tokens", Dtype::I64, &[n][..]), ("logits", Dtype::F32, &[n, vocab_size])];
    write_header(&mut file, &header).with_context(cannot_write)?;
    write_i64(&mut file, tokens.ids.iter().map(|&id| i64::from(id))).with_context(cannot_write)?;
    let outcome = write_rows(engine, tokens, listener, |row_values| {
        write_f32(&mut file, row_values).with_context(cannot_write)
    })?;
    if outcome == Outcome::Done {
        file.commit().with_context(cannot_write)?;
        eprintln!("{}: {n} x {vocab_size} logits", out.path().display());
    }
    Ok(outcome)
}

fn write_rows(
    engine: &mut Engine,
    tokens: Tokens<'_>,
    listener: &Listener,
    mut write: impl FnMut(&[f32]) -> Result<()>,
) -> Result<Outcome> {
    let mut bar = Bar::new("computing logits", tokens.ids.len());
    let mut sequence = Sequence::default();
    for ids in tokens.ids.chunks(ROWS) {
        if listener.requested() {
            return Ok(Outcome::Interrupted);
        }
        let chunk = Tokens { ids, ..tokens };
        write(&engine.extend(&mut sequence, chunk, Wanted::All, &mut |_| true)?.logits)?;
        bar.set(sequence.len());
    }
    Ok(Outcome::Done)
}

//! `ember logits`: the model's raw output for every position, as a safetensors file.
use super::args::{DeviceArgs, KvCacheType, ModelArg};
use super::detokenize::parse_ids;
use super::interrupt::Listener;
use super::progress::Bar;
use super::{Outcome, model, usage_error};
use anyhow::{Context, Result, bail};
use ember::engine::{Engine, Sequence, Wanted};
use ember_loaders::checkpoint::Checkpoint;
use ember_loaders::gguf::OutputFile;
use ember_loaders::tokenizer::SpecialTokens;
use serde_json::json;
use std::io::{self, Write};
use std::path::PathBuf;

/// Rows per step: few enough that the logits of a large vocabulary stay small in memory.
const ROWS: usize = 32;

/// Write the logits of every position of a text to a safetensors file
#[derive(clap::Args)]
#[command(
    after_help = "The file holds `tokens` (i64, [n]) and `logits` (f32, [n, vocabulary]); row i is what the model predicts after
tokens 0..=i. It appears under its name only when it is complete.

Examples:
  ember logits -m model.gguf --prompt \"The capital of France is\" --out paris.safetensors
  ember logits -m model.gguf --tokens 1,15043,3186 --out hello.safetensors"
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
    device: DeviceArgs,
    /// Element type of the KV cache
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = KvCacheType::F32, help_heading = "Device")]
    kv_cache_dtype: KvCacheType,
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
    let checkpoint = Checkpoint::open(&args.model.model)?;
    let config = checkpoint.config();
    let tokens = input_tokens(&args.input, &checkpoint)?;
    model::check_prompt_fits(tokens.len(), config.context_length, config)?;
    if let Some(id) = tokens.iter().find(|&&id| id as usize >= config.vocab_size) {
        bail!("token id {id} is outside the vocabulary of {} tokens", config.vocab_size);
    }
    let vocab_size = config.vocab_size;
    let mut loaded = model::load_with(&checkpoint, &args.device, Some(tokens.len()), args.kv_cache_dtype)?;
    let listener = Listener::new();
    let cannot_write = || format!("cannot write {}", args.out.display());
    let mut file = OutputFile::create(&args.out).with_context(cannot_write)?;
    write_header(&mut file, &tokens, vocab_size).with_context(cannot_write)?;
    let outcome = write_rows(&mut loaded.engine, &tokens, &listener, |row_values| {
        write_f32(&mut file, row_values).with_context(cannot_write)
    })?;
    if outcome == Outcome::Done {
        file.commit().with_context(cannot_write)?;
        eprintln!("{}: {} x {vocab_size} logits", args.out.display(), tokens.len());
    }
    Ok(outcome)
}

fn input_tokens(input: &InputArgs, checkpoint: &Checkpoint) -> Result<Vec<u32>> {
    let tokens = match (&input.tokens, &input.prompt) {
        (Some(ids), _) => {
            parse_ids(ids).map_err(|error| usage_error("logits", format!("--tokens: {error}")))?
        }
        (None, text) => {
            let tokenizer = model::checkpoint_tokenizer(checkpoint)?;
            let text = text.as_deref().unwrap_or_default();
            tokenizer.with_bos(tokenizer.encode(text, SpecialTokens::Parse)?)
        }
    };
    if tokens.is_empty() {
        return Err(usage_error("logits", "there is no token to run"));
    }
    Ok(tokens)
}

fn write_rows(
    engine: &mut Engine,
    tokens: &[u32],
    listener: &Listener,
    mut write: impl FnMut(&[f32]) -> Result<()>,
) -> Result<Outcome> {
    let mut bar = Bar::new("computing logits", tokens.len());
    let mut sequence = Sequence::default();
    for chunk in tokens.chunks(ROWS) {
        if listener.requested() {
            return Ok(Outcome::Interrupted);
        }
        write(&engine.extend(&mut sequence, chunk, Wanted::All, &mut |_| true)?.logits)?;
        bar.set(sequence.len());
    }
    Ok(Outcome::Done)
}

/// The header of the safetensors format and the first of its two tensors.
fn write_header(out: &mut impl Write, tokens: &[u32], vocab_size: usize) -> io::Result<()> {
    let n = tokens.len();
    let (tokens_end, logits_bytes) = (n * size_of::<i64>(), n * vocab_size * size_of::<f32>());
    let header = json!({
        "tokens": {"dtype": "I64", "shape": [n], "data_offsets": [0, tokens_end]},
        "logits": {"dtype": "F32", "shape": [n, vocab_size], "data_offsets": [tokens_end, tokens_end + logits_bytes]},
    });
    let mut header = header.to_string();
    // Readers map the file: the data must start at a multiple of 8.
    header.extend(std::iter::repeat_n(' ', header.len().next_multiple_of(8) - header.len()));
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    tokens.iter().try_for_each(|&token| out.write_all(&i64::from(token).to_le_bytes()))
}

fn write_f32(out: &mut impl Write, values: &[f32]) -> io::Result<()> {
    values.iter().try_for_each(|value| out.write_all(&value.to_le_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_says_where_the_tensors_are() {
        let mut file = Vec::new();
        write_header(&mut file, &[7, 9], 3).unwrap();
        let header_len = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
        assert_eq!(header_len % 8, 0);
        let header: serde_json::Value = serde_json::from_slice(&file[8..8 + header_len]).unwrap();
        assert_eq!(header["tokens"]["data_offsets"], json!([0, 16]));
        assert_eq!(header["logits"], json!({"dtype": "F32", "shape": [2, 3], "data_offsets": [16, 40]}));
        assert_eq!(file[8 + header_len..], [7_i64.to_le_bytes(), 9_i64.to_le_bytes()].concat());
    }
}

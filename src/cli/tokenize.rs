//! `ember tokenize`: text to token ids.
use super::args::ModelArg;
use super::text_input::{read_piped_stdin, read_text};
use super::{Outcome, output, usage_error};
use anyhow::Result;
use ember::ChatTokenizer;
use ember_loaders::tokenizer::{SpecialTokens, Tokenizer};
use serde::Serialize;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Show how a model's tokenizer splits a text
#[derive(clap::Args)]
#[command(
    after_help = "Prints one token per line: its id, a tab, and its text in quotes (b\"...\" when its bytes are no
whole characters). The text is taken as it is, with the line break that `echo` appends.

Examples:
  ember tokenize -m model.gguf \"Hello world\"
  ember tokenize -m model.gguf --special \"<|im_start|>user\" --no-bos
  ember tokenize -m model.gguf --json < book.txt | jq '.tokens | length'"
)]
pub struct Args {
    #[command(flatten)]
    model: ModelArg,
    /// Text to split [default: stdin; `-` too means stdin]
    #[arg(value_name = "TEXT")]
    text: Option<String>,
    /// Read the texts of control tokens (<|im_end|>, [INST]) as those tokens
    #[arg(long)]
    special: bool,
    /// Leave out the beginning-of-sequence token that the model wants
    #[arg(long)]
    no_bos: bool,
    /// Print one JSON object: {"tokens": [ids], "pieces": [texts]}
    #[arg(long)]
    json: bool,
}

/// Prints the tokens of the text.
pub fn run(args: Args) -> Result<Outcome> {
    let text = match args.text {
        Some(dash) if dash == "-" => read_text(Path::new("-"))?,
        Some(text) => text,
        None => read_piped_stdin()?
            .ok_or_else(|| usage_error("tokenize", "give a text, or pipe one into stdin"))?,
    };
    let text_side = ChatTokenizer::open(&args.model.model)?;
    let tokenizer = text_side.tokenizer();
    let special = if args.special { SpecialTokens::Parse } else { SpecialTokens::Ignore };
    let mut ids = tokenizer.encode(&text, special)?;
    if !args.no_bos {
        ids = tokenizer.with_bos(ids);
    }
    let mut out = BufWriter::new(io::stdout().lock());
    if args.json {
        output::json_line(&mut out, &Tokens::new(&ids, tokenizer))?;
    } else {
        for &id in &ids {
            writeln!(out, "{id}\t{}", quoted(tokenizer.token_bytes(id).unwrap_or_default()))?;
        }
    }
    out.flush()?;
    Ok(Outcome::Done)
}

/// Token ids with their texts.
#[derive(Serialize)]
struct Tokens<'a> {
    tokens: &'a [u32],
    /// A token that is part of a character only has U+FFFD here.
    pieces: Vec<String>,
}

impl<'a> Tokens<'a> {
    fn new(ids: &'a [u32], tokenizer: &Tokenizer) -> Self {
        let bytes = |&id: &u32| tokenizer.token_bytes(id).unwrap_or_default();
        Self {
            tokens: ids,
            pieces: ids.iter().map(|id| String::from_utf8_lossy(bytes(id)).into_owned()).collect(),
        }
    }
}

fn quoted(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => format!("{text:?}"),
        Err(_) => format!("b\"{}\"", bytes.escape_ascii()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_quoted_and_bytes_marked() {
        assert_eq!(quoted(b" a\n"), r#"" a\n""#);
        assert_eq!(quoted("é".as_bytes()), "\"é\"");
        assert_eq!(quoted(b"\xe2\x82"), r#"b"\xe2\x82""#);
    }
}

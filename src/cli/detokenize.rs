//! `ember detokenize`: token ids to text.
use super::args::ModelArg;
use super::text_input::read_piped_stdin;
use super::visible::shown;
use super::{Outcome, usage_error};
use anyhow::{Context, Result, bail};
use ember::ChatTokenizer;
use std::io::{self, IsTerminal, Write};

/// Turn token ids back into text
#[derive(clap::Args)]
#[command(
    after_help = "The text is printed as it is; only on a terminal are control characters escaped, and a line break follows.

Examples:
  ember detokenize -m model.gguf 9906 1917
  ember tokenize -m model.gguf \"Hello\" | cut -f1 | ember detokenize -m model.gguf"
)]
pub struct Args {
    #[command(flatten)]
    model: ModelArg,
    /// Token ids, separated by spaces or commas [default: stdin]
    #[arg(value_name = "ID")]
    ids: Vec<String>,
}

/// Prints the text of the ids.
pub fn run(args: Args) -> Result<Outcome> {
    let ids = match args.ids.as_slice() {
        [] => read_piped_stdin()?
            .ok_or_else(|| usage_error("detokenize", "give token ids, or pipe them into stdin"))?,
        ids => ids.join(" "),
    };
    let ids = parse_ids(&ids).map_err(|error| usage_error("detokenize", error))?;
    let text_side = ChatTokenizer::open(&args.model.model)?;
    let tokenizer = text_side.tokenizer();
    if let Some(id) = ids.iter().find(|&&id| id as usize >= tokenizer.vocab_size()) {
        bail!("token id {id} is outside the vocabulary of {} tokens", tokenizer.vocab_size());
    }
    let mut out = io::stdout().lock();
    let is_terminal = out.is_terminal();
    out.write_all(shown(is_terminal, &tokenizer.decode(&ids, false)).as_bytes())?;
    if is_terminal {
        writeln!(out)?;
    }
    out.flush()?;
    Ok(Outcome::Done)
}

/// Ids separated by spaces, line breaks or commas.
///
/// # Errors
/// Names the part that is no id.
pub fn parse_ids(text: &str) -> Result<Vec<u32>> {
    text.split(|c: char| c == ',' || c.is_whitespace())
        .filter(|part| !part.is_empty())
        .map(|part| part.parse().ok().with_context(|| format!("`{part}` is not a token id")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_with_any_separator() {
        assert_eq!(parse_ids("1, 2,3\n4\t5 ").unwrap(), [1, 2, 3, 4, 5]);
        assert!(parse_ids("").unwrap().is_empty());
        assert_eq!(parse_ids("1 -2").unwrap_err().to_string(), "`-2` is not a token id");
        assert_eq!(parse_ids("4294967296").unwrap_err().to_string(), "`4294967296` is not a token id");
    }
}

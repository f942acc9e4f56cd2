//! `tekken.json`, Mistral's own vocabulary file: byte strings by rank, and the expression that splits text.

use std::path::Path;

use ahash::AHashMap;
use serde::Deserialize;

use super::pre_tokenizer::{PreTokenizer, TEKKEN};
use super::vocab::MergePair;
use super::{TokenKind, TokenizerError, Vocab, byte_level};

/// Control tokens of the files before version v11, which do not list them.
const EARLY_CONTROL: [&str; 20] = [
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
];
const BOS: &str = "<s>";
const EOS: &str = "</s>";

/// The file, as far as it matters here.
#[derive(Deserialize)]
struct File {
    config: Config,
    vocab: Vec<Token>,
    special_tokens: Option<Vec<Special>>,
}

#[derive(Deserialize)]
struct Config {
    pattern: String,
    default_vocab_size: usize,
    default_num_special_tokens: usize,
    version: String,
}

#[derive(Deserialize)]
struct Token {
    rank: usize,
    /// In base64.
    token_bytes: String,
}

#[derive(Deserialize)]
struct Special {
    rank: usize,
    token_str: String,
}

/// The vocabulary in the text of the file at `path`: control tokens first, then the others in order of their ranks.
pub(super) fn read_vocab(path: &Path, text: &str) -> Result<Vocab<'static>, TokenizerError> {
    let json = |source| TokenizerError::Json { path: path.to_owned(), source };
    let unsupported = |what| TokenizerError::Unsupported { path: path.to_owned(), what };
    let file: File = serde_json::from_str(text).map_err(json)?;
    let control = control_tokens(&file).map_err(unsupported)?;
    let ranked = ranked(&file).map_err(unsupported)?;
    let find = |text| (0..).zip(&control).find(|(_, token)| *token == text).map(|(id, _)| id);
    let (bos, eos) = (find(BOS), find(EOS));
    let mut kinds = vec![TokenKind::Control; control.len()];
    kinds.resize(control.len() + ranked.len(), TokenKind::Normal);
    let mut tokens = control;
    tokens.extend(ranked.iter().map(|token| letters(token)));
    Ok(Vocab {
        pre_tokenizer: pre_tokenizer(&file.config.pattern)?,
        sentencepiece: None,
        merges: merges(&ranked),
        tokens: tokens.into(),
        kinds,
        bos,
        eos,
        end_of_generation: Vec::new(),
        add_bos: true,
        chat_templates: Default::default(),
    })
}

/// The file's own expression; a piece that is a token is one, whatever its merges.
fn pre_tokenizer(pattern: &str) -> Result<PreTokenizer, TokenizerError> {
    if pattern == TEKKEN {
        return PreTokenizer::from_name("tekken");
    }
    let mut pre_tokenizer = PreTokenizer::from_expressions(&[pattern], false)?;
    pre_tokenizer.ignore_merges = true;
    Ok(pre_tokenizer)
}

/// The control tokens by id: as many as the file says, those without a name filled up.
fn control_tokens(file: &File) -> Result<Vec<String>, String> {
    let size = file.config.default_num_special_tokens;
    // A number far beyond the file's own tokens would only take memory.
    if size > file.vocab.len() + EARLY_CONTROL.len() {
        return Err(format!("{size} special tokens are more than the vocabulary's {}", file.vocab.len()));
    }
    let mut tokens: Vec<String> = (0..size).map(|id| format!("<SPECIAL_{id}>")).collect();
    let mut place = |rank: usize, text: &str| match tokens.get_mut(rank) {
        Some(token) => {
            *token = text.to_owned();
            Ok(())
        }
        None => Err(format!("special token \"{text}\" has rank {rank}, but there are only {size}")),
    };
    match &file.special_tokens {
        Some(special) => special.iter().try_for_each(|token| place(token.rank, &token.token_str))?,
        None if ["v1", "v2", "v3", "v7"].contains(&file.config.version.as_str()) => {
            EARLY_CONTROL.iter().enumerate().try_for_each(|(rank, text)| place(rank, text))?;
        }
        None => {
            let version = &file.config.version;
            return Err(format!(
                "special_tokens is missing, which only files up to version v7 do without (this is {version})"
            ));
        }
    }
    Ok(tokens)
}

/// The bytes of the other tokens by rank, as many as the vocabulary's size leaves room for.
fn ranked(file: &File) -> Result<Vec<Vec<u8>>, String> {
    let Config { default_vocab_size, default_num_special_tokens, .. } = file.config;
    let size =
        default_vocab_size.checked_sub(default_num_special_tokens).filter(|&size| size <= file.vocab.len());
    let size = size.ok_or_else(|| {
        format!(
            "a vocabulary of {default_vocab_size} tokens with {default_num_special_tokens} special ones does not fit \
             the {} that are listed",
            file.vocab.len()
        )
    })?;
    let mut tokens = vec![Vec::new(); size];
    for Token { rank, token_bytes } in &file.vocab {
        let Some(token) = tokens.get_mut(*rank) else { continue };
        *token = base64(token_bytes)
            .filter(|bytes| !bytes.is_empty())
            .ok_or_else(|| format!("token_bytes of the token of rank {rank} is not base64 of any bytes"))?;
    }
    match tokens.iter().position(Vec::is_empty) {
        Some(rank) => Err(format!("there is no token of rank {rank}")),
        None => Ok(tokens),
    }
}

/// Every way to make a token of two others, in order of the tokens' ranks: what joining the pair that makes the token of
/// the lowest rank comes to.
fn merges(tokens: &[Vec<u8>]) -> Vec<MergePair<'static>> {
    let ranks: AHashMap<&[u8], usize> = tokens.iter().map(Vec::as_slice).zip(0..).collect();
    let mut merges = Vec::new();
    for token in tokens {
        let parts = (1..token.len()).map(|at| token.split_at(at));
        let known = |(left, right)| Some((*ranks.get(left)?, *ranks.get(right)?));
        let mut ways: Vec<(usize, usize)> = parts.filter_map(known).collect();
        ways.sort_unstable();
        merges.extend(
            ways.into_iter()
                .map(|(left, right)| (letters(&tokens[left]).into(), letters(&tokens[right]).into())),
        );
    }
    merges
}

fn letters(token: &[u8]) -> String {
    token.iter().map(|&byte| byte_level::byte_to_char(byte)).collect()
}

/// The bytes of a text in base64, padded; `None` for anything else.
fn base64(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let digits = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text);
    let (mut bytes, mut bits, mut n_bits) = (Vec::with_capacity(digits.len()), 0_u32, 0);
    for byte in digits.bytes() {
        bits = bits << 6 | u32::from(digit(byte)?);
        n_bits += 6;
        if n_bits >= 8 {
            n_bits -= 8;
            bytes.push((bits >> n_bits) as u8);
            bits &= (1 << n_bits) - 1;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_every_length() {
        for (text, bytes) in [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYg==", "foob")]
        {
            assert_eq!(base64(text).as_deref(), Some(bytes.as_bytes()));
        }
        assert_eq!(base64("/+8="), Some(vec![0xFF, 0xEF]));
        for text in ["Zg", "Zg=", "Z===", "Zm9*", "Zm 9"] {
            assert_eq!(base64(text), None, "{text}");
        }
    }
}

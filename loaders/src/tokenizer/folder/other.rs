//! The vocabulary of a folder whose tokenizer.json is missing, or leaves to SentencePiece what this one then reads.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::{TokenText, TokenizerConfig, chat_templates, present, read, read_optional};
use crate::checkpoint::GenerationConfig;
use crate::tokenizer::{TokenKind, TokenizerError, Vocab, sentencepiece_model, tekken};

const TEKKEN: &str = "tekken.json";
pub(super) const SENTENCEPIECE: &str = "tokenizer.model";
const CONFIG: &str = "tokenizer_config.json";

/// The tokens that tokenizer_config.json lists besides.
#[derive(Default, Deserialize)]
struct ListedTokens {
    #[serde(default)]
    added_tokens_decoder: BTreeMap<u32, ListedToken>,
}

#[derive(Deserialize)]
struct ListedToken {
    content: String,
    #[serde(default)]
    special: bool,
}

/// Reads the vocabulary of `folder` from tekken.json or tokenizer.model, and what the files beside it say.
pub(super) fn read_vocab(folder: &Path) -> Result<Vocab<'static>, TokenizerError> {
    let tekken = folder.join(TEKKEN);
    if let Some(text) = present(read(&tekken))? {
        return with_config(folder, tekken::read_vocab(&tekken, &text)?);
    }
    let model = folder.join(SENTENCEPIECE);
    let bytes = fs::read(&model).map_err(|source| TokenizerError::Io { path: model.clone(), source });
    match present(bytes)? {
        Some(bytes) => with_config(folder, sentencepiece_model::read_vocab(&model, &bytes)?),
        None => Err(TokenizerError::NoVocabulary { folder: folder.to_owned() }),
    }
}

/// Adds further tokens, chat templates and ends of generation; BOS and EOS may be others than the vocabulary's own.
fn with_config(folder: &Path, mut vocab: Vocab<'static>) -> Result<Vocab<'static>, TokenizerError> {
    let config: TokenizerConfig = read_optional(&folder.join(CONFIG))?;
    let listed: ListedTokens = read_optional(&folder.join(CONFIG))?;
    let older: BTreeMap<String, u32> = read_optional(&folder.join("added_tokens.json"))?;
    let generation = GenerationConfig::read(folder).map_err(Box::new)?;
    let unsupported = |what| TokenizerError::Unsupported { path: folder.join(CONFIG), what };

    let mut added = listed.added_tokens_decoder;
    for (content, id) in older {
        added.entry(id).or_insert(ListedToken { content, special: false });
    }
    for (id, token) in added {
        add(&mut vocab, id, token).map_err(unsupported)?;
    }
    let find = |name: &str, token: Option<TokenText>| match token.map(TokenText::into_text) {
        None => Ok(None),
        Some(text) => match (0..).zip(vocab.tokens.iter()).find(|(_, token)| **token == text) {
            Some((id, _)) => Ok(Some(id)),
            None => Err(unsupported(format!("{name} \"{text}\" is not in the vocabulary"))),
        },
    };
    (vocab.bos, vocab.eos) = (
        find("bos_token", config.bos_token)?.or(vocab.bos),
        find("eos_token", config.eos_token)?.or(vocab.eos),
    );
    vocab.add_bos = config.add_bos_token.unwrap_or(vocab.add_bos);
    vocab.end_of_generation = generation.eos_token_ids;
    vocab.chat_templates = chat_templates(folder, config.chat_template)?;
    Ok(vocab)
}

/// Adds a token at the end of the vocabulary, or checks that the one with its id has its text.
fn add(vocab: &mut Vocab<'_>, id: u32, token: ListedToken) -> Result<(), String> {
    let size = vocab.tokens.len();
    let ListedToken { content, special } = token;
    match vocab.tokens.get(id as usize) {
        Some(text) if *text == content => Ok(()),
        Some(text) => Err(format!("token {id} is \"{content}\", but the vocabulary has \"{text}\" there")),
        None if id as usize == size => {
            vocab.tokens.to_mut().push(content);
            vocab.kinds.push(if special { TokenKind::Control } else { TokenKind::UserDefined });
            Ok(())
        }
        None => Err(format!("token \"{content}\" has id {id}, but the vocabulary ends with id {}", size - 1)),
    }
}

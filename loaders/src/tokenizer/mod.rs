//! Text to token ids and back: byte-level BPE built from a GGUF file or a Hugging Face folder.
//!
//! Text goes this way: added tokens are cut out by their text, the rest is normalised (Qwen: NFC), split into pieces by
//! the family's expression, written in the byte-level alphabet, and merged by the `tokenizers` crate's BPE model. The
//! model never holds a control token, so no user text can become one.

mod added;
mod bpe;
mod byte_level;
mod error;
mod folder;
mod pre_tokenizer;
mod stream;
mod vocab;

use std::collections::BTreeMap;
use std::path::Path;

use ahash::AHashMap;
use tokenizers::Model;
use tokenizers::models::bpe::BPE;

use crate::gguf::{Gguf, Metadata};
use added::{AddedTokens, Part};
pub use error::TokenizerError;
pub use pre_tokenizer::PreTokenizer;
pub use stream::StreamDecoder;
pub use vocab::{TokenKind, Vocab};

/// The treatment of texts that spell control tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialTokens {
    /// They do: for templates and raw prompts.
    Parse,
    /// They are ordinary text: for what users write.
    Ignore,
}

/// A part of a rendered prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// The text of one control or user-defined token.
    Control(&'a str),
    /// Text in which no control token is looked for.
    Text(&'a str),
}

/// A byte-level BPE tokenizer.
pub struct Tokenizer {
    pre_tokenizer: PreTokenizer,
    /// The normal and user-defined tokens, with the merges.
    bpe: BPE,
    /// Every control and user-defined token.
    added: AddedTokens,
    /// The user-defined ones alone.
    user_defined: AddedTokens,
    added_ids: AHashMap<String, u32>,
    tokens: Vec<String>,
    kinds: Vec<TokenKind>,
    bytes: TokenBytes,
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: bool,
    eog: Vec<u32>,
    chat_templates: BTreeMap<String, String>,
}

impl Tokenizer {
    /// The tokenizer of a GGUF file.
    ///
    /// # Errors
    /// An unknown model or pre-tokenizer, and a vocabulary that does not hold together; the error names what.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, TokenizerError> {
        Self::from_metadata(gguf.metadata())
    }

    /// The tokenizer that GGUF metadata describes.
    ///
    /// # Errors
    /// As [`Tokenizer::from_gguf`].
    pub fn from_metadata(metadata: &Metadata) -> Result<Self, TokenizerError> {
        Self::from_vocab(Vocab::from_metadata(metadata)?)
    }

    /// The tokenizer of a Hugging Face folder: tokenizer.json, and what tokenizer_config.json,
    /// generation_config.json and chat_template.jinja say beside it.
    ///
    /// # Errors
    /// Files that cannot be read, anything but byte-level BPE, and as [`Tokenizer::from_gguf`].
    pub fn from_folder(folder: &Path) -> Result<Self, TokenizerError> {
        Self::from_vocab(folder::read_vocab(folder)?)
    }

    /// The tokenizer of a vocabulary.
    ///
    /// # Errors
    /// A vocabulary that does not hold together; the error names what.
    pub fn from_vocab(mut vocab: Vocab) -> Result<Self, TokenizerError> {
        vocab.check()?;
        let ids = vocab.ids()?;
        let bytes = TokenBytes::new(&vocab)?;
        let bpe = bpe::build(&vocab, &ids)?;
        let of_kind = |wanted: &[TokenKind]| -> Vec<(&str, u32)> {
            let tokens = vocab.tokens.iter().map(String::as_str).zip(0..).zip(&vocab.kinds);
            tokens.filter(|(_, kind)| wanted.contains(kind)).map(|(token, _)| token).collect()
        };
        let added = of_kind(&[TokenKind::Control, TokenKind::UserDefined]);
        let added_ids: AHashMap<String, u32> =
            added.iter().map(|&(text, id)| (text.to_owned(), id)).collect();
        Ok(Self {
            bpe,
            bytes,
            added: AddedTokens::new(&added)?,
            user_defined: AddedTokens::new(&of_kind(&[TokenKind::UserDefined]))?,
            eog: vocab.end_of_generation_ids(|text| added_ids.get(text).copied()),
            added_ids,
            pre_tokenizer: vocab.pre_tokenizer,
            tokens: vocab.tokens,
            kinds: vocab.kinds,
            bos: vocab.bos,
            eos: vocab.eos,
            add_bos: vocab.add_bos,
            chat_templates: vocab.chat_templates,
        })
    }

    /// The ids of `text`, without BOS. User-defined tokens always parse, control tokens as `special` says.
    ///
    /// # Errors
    /// [`TokenizerError::UnencodableByte`] when the vocabulary lacks a byte of the text.
    pub fn encode(&self, text: &str, special: SpecialTokens) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = Vec::with_capacity(text.len() / 3);
        self.encode_into(text, special, &mut ids)?;
        Ok(ids)
    }

    /// The ids of a prompt whose control tokens are marked: no text in it can become one. Each [`Piece::Text`] is encoded
    /// by itself, so text that belongs together has to be one piece.
    ///
    /// # Errors
    /// [`TokenizerError::NotAToken`] for a [`Piece::Control`] of unknown text, and as [`Tokenizer::encode`].
    pub fn encode_pieces(&self, pieces: &[Piece<'_>]) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = Vec::new();
        for piece in pieces {
            match *piece {
                Piece::Text(text) => self.encode_into(text, SpecialTokens::Ignore, &mut ids)?,
                Piece::Control(text) => {
                    let id = self.added_ids.get(text);
                    ids.push(*id.ok_or_else(|| TokenizerError::NotAToken(text.to_owned()))?);
                }
            }
        }
        Ok(ids)
    }

    fn encode_into(
        &self,
        text: &str,
        special: SpecialTokens,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let added = match special {
            SpecialTokens::Parse => &self.added,
            SpecialTokens::Ignore => &self.user_defined,
        };
        let mut letters = String::new();
        for part in added.split(text) {
            match part {
                Part::Token(id) => ids.push(id),
                Part::Text(text) => self.pre_tokenizer.split(text, &mut |piece| {
                    letters.clear();
                    letters.extend(piece.bytes().map(byte_level::byte_to_char));
                    let tokens = self
                        .bpe
                        .tokenize(&letters)
                        .map_err(|error| TokenizerError::Bpe(error.to_string()))?;
                    // The model leaves out what it has no token for.
                    if tokens.iter().map(|token| token.value.len()).sum::<usize>() != letters.len() {
                        return Err(self.unencodable(piece));
                    }
                    ids.extend(tokens.iter().map(|token| token.id));
                    Ok(())
                })?,
            }
        }
        Ok(())
    }

    fn unencodable(&self, piece: &str) -> TokenizerError {
        let missing = piece.bytes().find(|&byte| !bpe::has_byte(&self.bpe, byte));
        TokenizerError::UnencodableByte {
            byte: missing.expect("only a byte without a token is left out"),
            piece: piece.to_owned(),
        }
    }

    /// The beginning-of-sequence token, when a prompt has to start with it.
    pub fn add_bos(&self) -> Option<u32> {
        self.bos.filter(|_| self.add_bos)
    }

    /// Puts BOS first when the model wants it and it is not there yet (templates often write it themselves).
    pub fn with_bos(&self, mut ids: Vec<u32>) -> Vec<u32> {
        if let Some(bos) = self.add_bos().filter(|bos| ids.first() != Some(bos)) {
            ids.insert(0, bos);
        }
        ids
    }

    /// The text of `ids`. Bytes that are no UTF-8 become U+FFFD, ids outside the vocabulary nothing; with
    /// `skip_special`, control tokens nothing either.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let bytes: Vec<u8> =
            ids.iter().flat_map(|&id| self.printed_bytes(id, skip_special)).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The bytes that a token stands for, a control token's its text; `None` outside the vocabulary.
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        self.bytes.get(id)
    }

    fn printed_bytes(&self, id: u32, skip_special: bool) -> &[u8] {
        if skip_special && self.is_control(id) { &[] } else { self.token_bytes(id).unwrap_or_default() }
    }

    /// True if a generation ends with this token.
    pub fn is_eog(&self, id: u32) -> bool {
        self.eog.binary_search(&id).is_ok()
    }

    /// Every token that ends a generation, ascending: EOS, end of turn, end of message, and those known by their text.
    pub fn eog(&self) -> &[u32] {
        &self.eog
    }

    /// The id of the token with this text, as the file writes it (normal tokens in the byte-level alphabet).
    pub fn token_id(&self, text: &str) -> Option<u32> {
        self.added_ids.get(text).copied().or_else(|| self.bpe.token_to_id(text))
    }

    /// The token's text as the file writes it; see [`Tokenizer::token_bytes`] for what it prints.
    pub fn id_to_token(&self, id: u32) -> Option<&str> {
        self.tokens.get(id as usize).map(String::as_str)
    }

    /// The use of the token; `None` outside the vocabulary.
    pub fn kind(&self, id: u32) -> Option<TokenKind> {
        self.kinds.get(id as usize).copied()
    }

    /// True if this is a control token.
    pub fn is_control(&self, id: u32) -> bool {
        self.kind(id) == Some(TokenKind::Control)
    }

    /// Every control token with its id, in order of the ids.
    pub fn control_tokens(&self) -> impl Iterator<Item = (&str, u32)> {
        let tokens = self.tokens.iter().map(String::as_str).zip(0..);
        tokens.filter(|&(_, id)| self.is_control(id))
    }

    /// The number of tokens, padding included.
    pub fn vocab_size(&self) -> usize {
        self.tokens.len()
    }

    /// The beginning-of-sequence token, whether or not prompts start with it.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The end-of-sequence token.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// The text of BOS, as templates print it.
    pub fn bos_text(&self) -> Option<&str> {
        self.bos.and_then(|id| self.id_to_token(id))
    }

    /// The text of EOS, as templates print it.
    pub fn eos_text(&self) -> Option<&str> {
        self.eos.and_then(|id| self.id_to_token(id))
    }

    /// The model's chat template: the default one, or the one with this name (`tool_use`).
    pub fn chat_template(&self, name: Option<&str>) -> Option<&str> {
        self.chat_templates.get(name.unwrap_or(vocab::DEFAULT_TEMPLATE)).map(String::as_str)
    }

    /// The names of the chat templates besides the default one.
    pub fn chat_template_names(&self) -> impl Iterator<Item = &str> {
        self.chat_templates.keys().map(String::as_str).filter(|name| *name != vocab::DEFAULT_TEMPLATE)
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("vocab_size", &self.vocab_size()).finish_non_exhaustive()
    }
}

/// The bytes of all tokens, end to end.
struct TokenBytes {
    bytes: Vec<u8>,
    /// End of each token's bytes.
    ends: Vec<usize>,
}

impl TokenBytes {
    fn new(vocab: &Vocab) -> Result<Self, TokenizerError> {
        let mut all = Self { bytes: Vec::new(), ends: Vec::with_capacity(vocab.tokens.len()) };
        for id in 0..vocab.tokens.len() {
            all.bytes.extend(vocab.bytes(id)?);
            all.ends.push(all.bytes.len());
        }
        Ok(all)
    }

    fn get(&self, id: u32) -> Option<&[u8]> {
        let id = id as usize;
        let start = if id == 0 { 0 } else { *self.ends.get(id - 1)? };
        Some(&self.bytes[start..*self.ends.get(id)?])
    }
}

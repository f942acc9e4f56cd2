//! Text to token ids and back: byte-level BPE and SentencePiece BPE, built from a GGUF file or a Hugging Face folder.
//!
//! Byte-level, text goes this way: added tokens are cut out by their text, the rest is normalised (Qwen: NFC), split into
//! pieces by the family's expression, and its bytes are merged into tokens. No merge makes a control token, so no user text
//! can become one.

mod added;
mod bpe;
mod byte_level;
mod error;
mod folder;
mod pre_tokenizer;
mod sentencepiece;
mod sentencepiece_model;
mod stream;
mod tekken;
mod tokens;
mod vocab;

use std::collections::BTreeMap;
use std::path::Path;

use crate::gguf::{Gguf, Metadata};
use added::{AddedTokens, Part};
use bpe::{Merges, Merging};
pub use error::TokenizerError;
pub use pre_tokenizer::PreTokenizer;
pub use sentencepiece::SentencePieceRule;
use sentencepiece::{Place, SentencePiece};
pub use stream::StreamDecoder;
use tokens::{TokenBytes, Tokens};
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

/// The rules by which ordinary text becomes tokens.
enum Model {
    ByteLevel(Box<Merges>),
    SentencePiece(Box<SentencePiece>),
}

/// A BPE tokenizer, byte-level or SentencePiece's.
pub struct Tokenizer {
    pre_tokenizer: PreTokenizer,
    model: Model,
    tokens: Tokens,
    /// Every token that is matched as a whole text: control and user-defined ones. SentencePiece finds its user-defined
    /// ones itself.
    added: AddedTokens,
    /// Those of them that are no control tokens.
    user_defined: AddedTokens,
    /// The bytes that each token stands for.
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

    /// The tokenizer of a folder, from tokenizer.json, tekken.json or tokenizer.model, and what tokenizer_config.json,
    /// generation_config.json and chat_template.jinja say beside it.
    ///
    /// # Errors
    /// Files that cannot be read, a tokenizer model that is not supported, and as [`Tokenizer::from_gguf`].
    pub fn from_folder(folder: &Path) -> Result<Self, TokenizerError> {
        Self::from_vocab(folder::read_vocab(folder)?)
    }

    /// The tokenizer of a vocabulary.
    ///
    /// # Errors
    /// A vocabulary that does not hold together; the error names what.
    pub fn from_vocab(mut vocab: Vocab<'_>) -> Result<Self, TokenizerError> {
        vocab.check()?;
        let mut tokens = Tokens::new(&vocab.tokens, std::mem::take(&mut vocab.kinds))?;
        vocab::correct_kinds(&mut tokens, &vocab.merges);
        // Before the merges: of several faults the simplest is named.
        let bytes = match vocab.sentencepiece {
            None => TokenBytes::byte_level(&tokens)?,
            Some(_) => TokenBytes::of(&tokens, sentencepiece::token_bytes),
        };
        let of_kinds = |kinds: &[TokenKind]| tokens.of_kinds(kinds).collect::<Vec<_>>();
        let user_defined = of_kinds(&[TokenKind::UserDefined]);
        let (model, added, user_defined) = match vocab.sentencepiece {
            None => {
                let added = of_kinds(&[TokenKind::Control, TokenKind::UserDefined]);
                (Model::ByteLevel(Box::new(Merges::new(&vocab.merges, &tokens)?)), added, user_defined)
            }
            Some(rule) => {
                let model = SentencePiece::new(rule, &user_defined, &tokens, &vocab.merges)?;
                (Model::SentencePiece(Box::new(model)), of_kinds(&[TokenKind::Control]), Vec::new())
            }
        };
        Ok(Self {
            added: AddedTokens::new(&added)?,
            user_defined: AddedTokens::new(&user_defined)?,
            eog: vocab.end_of_generation_ids(&tokens),
            bytes,
            model,
            tokens,
            pre_tokenizer: vocab.pre_tokenizer,
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
        self.encode_into(text, special, Place::Start, &mut ids)?;
        Ok(ids)
    }

    /// The ids of a prompt whose control tokens are marked: no text in it can become one. Each [`Piece::Text`] is encoded
    /// by itself, so text that belongs together has to be one piece.
    ///
    /// # Errors
    /// [`TokenizerError::NotAToken`] for a [`Piece::Control`] of unknown text, and as [`Tokenizer::encode`].
    pub fn encode_pieces(&self, pieces: &[Piece<'_>]) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = Vec::new();
        let mut place = Place::Start;
        for piece in pieces {
            match *piece {
                Piece::Text(text) => {
                    self.encode_into(text, SpecialTokens::Ignore, place, &mut ids)?;
                    place = Place::AfterText;
                }
                Piece::Control(text) => {
                    let id = self.tokens.id(text).filter(|&id| self.tokens.is_added(id));
                    ids.push(id.ok_or_else(|| TokenizerError::NotAToken(text.to_owned()))?);
                    place = Place::AfterControl;
                }
            }
        }
        Ok(ids)
    }

    fn encode_into(
        &self,
        text: &str,
        special: SpecialTokens,
        mut place: Place,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let added = match special {
            SpecialTokens::Parse => &self.added,
            SpecialTokens::Ignore => &self.user_defined,
        };
        let mut merging = Merging::default();
        for part in added.split(text) {
            match part {
                Part::Token(id) => {
                    ids.push(id);
                    place = Place::AfterControl;
                }
                Part::Text(text) => match &self.model {
                    Model::ByteLevel(merges) => self.encode_byte_level(merges, text, &mut merging, ids)?,
                    Model::SentencePiece(model) => model.encode(text, place, ids)?,
                },
            }
        }
        Ok(())
    }

    /// Appends the ids of a text without added tokens; `merging` is memory to work in.
    fn encode_byte_level(
        &self,
        merges: &Merges,
        text: &str,
        merging: &mut Merging,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        self.pre_tokenizer.split(text, &mut |piece| match self.whole(piece) {
            Some(id) => {
                ids.push(id);
                Ok(())
            }
            None => merges.encode(piece, merging, ids),
        })
    }

    /// The token that a piece is as a whole, in families that look for it before they merge.
    fn whole(&self, piece: &str) -> Option<u32> {
        if !self.pre_tokenizer.ignore_merges {
            return None;
        }
        let letters: String = piece.bytes().map(byte_level::byte_to_char).collect();
        self.tokens.text_id(&letters)
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
    /// `skip_special`, control tokens nothing either. The space that SentencePiece puts before a text is taken off.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let mut at_start = true;
        let mut bytes = Vec::new();
        for &id in ids {
            bytes.extend_from_slice(self.text_bytes(id, skip_special, &mut at_start));
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The bytes that a token adds to a text. `at_start` is true until a token adds text of its own; the space that
    /// encoding put before that one is left out.
    fn text_bytes(&self, id: u32, skip_special: bool, at_start: &mut bool) -> &[u8] {
        let bytes = self.printed_bytes(id, skip_special);
        let Model::SentencePiece(model) = &self.model else { return bytes };
        if !*at_start {
            return bytes;
        }
        *at_start = bytes.is_empty() || self.is_control(id);
        let prefixed = !*at_start && self.id_to_token(id).is_some_and(|text| model.begins_with_prefix(text));
        &bytes[usize::from(prefixed)..]
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
        self.tokens.id(text).filter(|&id| self.kind(id) != Some(TokenKind::Unused))
    }

    /// The token's text as the file writes it; see [`Tokenizer::token_bytes`] for what it prints.
    pub fn id_to_token(&self, id: u32) -> Option<&str> {
        self.tokens.text(id)
    }

    /// The use of the token; `None` outside the vocabulary.
    pub fn kind(&self, id: u32) -> Option<TokenKind> {
        self.tokens.kind(id)
    }

    /// True if this is a control token.
    pub fn is_control(&self, id: u32) -> bool {
        self.kind(id) == Some(TokenKind::Control)
    }

    /// Every control token with its id, in order of the ids.
    pub fn control_tokens(&self) -> impl Iterator<Item = (&str, u32)> {
        self.tokens.of_kinds(&[TokenKind::Control])
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

//! SentencePiece BPE, the tokenizer of Llama 2 and Mistral 7B: pieces with scores, over text whose spaces are `▁`.
//!
//! Of all neighbours that make a piece together, those whose piece has the highest score join first. As merge rules in
//! that order they run on the `tokenizers` crate's BPE model. Characters without a piece become byte tokens.

use std::borrow::Cow;

use ahash::AHashMap;
use tokenizers::Model;
use tokenizers::models::bpe::BPE;

use super::added::{AddedTokens, Part};
use super::pre_tokenizer::PreTokenizer;
use super::tokens::Tokens;
use super::vocab::{MergePair, chat_templates, special_id};
use super::{TokenKind, TokenizerError, Vocab};
use crate::gguf::Metadata;

/// The character that stands for a space in pieces.
const SPACE: char = '▁';

/// The properties of a SentencePiece vocabulary that its pieces do not show.
#[derive(Clone, Copy, Debug)]
pub struct SentencePieceRule {
    /// True if a text is encoded as if a space stood before it.
    pub space_prefix: bool,
}

/// The surroundings of a text, on which it depends whether a space is put before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// At the beginning of everything, as SentencePiece itself sees every text.
    Start,
    /// Behind a control token. A space of the text's own takes the place of the one that is put there: templates write
    /// `[INST] hi`, where Mistral's tokenizer encodes `hi` by itself.
    AfterControl,
    /// Behind other text.
    AfterText,
}

/// The part of a tokenizer that differs from byte-level BPE.
pub(super) struct SentencePiece {
    rule: SentencePieceRule,
    /// User-defined pieces, which are found before anything is merged.
    user_defined: AddedTokens,
    /// The normal pieces and bytes, with the merges.
    bpe: BPE,
}

impl SentencePiece {
    pub(super) fn new(
        rule: SentencePieceRule,
        user_defined: &[(&str, u32)],
        tokens: &Tokens,
        merges: &[MergePair<'_>],
    ) -> Result<Self, TokenizerError> {
        let escaped: Vec<(String, u32)> = user_defined.iter().map(|&(text, id)| (escape(text), id)).collect();
        let escaped: Vec<(&str, u32)> = escaped.iter().map(|(text, id)| (text.as_str(), *id)).collect();
        Ok(Self { rule, user_defined: AddedTokens::new(&escaped)?, bpe: build(tokens, merges)? })
    }

    /// Appends the ids of a text that is not empty and has no control tokens.
    pub(super) fn encode(&self, text: &str, place: Place, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let (prefix, text) = match place {
            Place::Start => (self.rule.space_prefix, text),
            Place::AfterControl if self.rule.space_prefix => (true, text.strip_prefix(' ').unwrap_or(text)),
            Place::AfterControl | Place::AfterText => (false, text),
        };
        if text.is_empty() {
            return Ok(());
        }
        let mut escaped = escape(text);
        if prefix {
            escaped.insert(0, SPACE);
        }
        for part in self.user_defined.split(&escaped) {
            match part {
                Part::Token(id) => ids.push(id),
                Part::Text(text) => {
                    let tokens = self.bpe.tokenize(text);
                    let tokens = tokens.map_err(|error| TokenizerError::Bpe(error.to_string()))?;
                    ids.extend(tokens.iter().map(|token| token.id));
                }
            }
        }
        Ok(())
    }

    /// True if a text that begins with this token begins with the space that encoding put there.
    pub(super) fn begins_with_prefix(&self, token: &str) -> bool {
        self.rule.space_prefix && token.starts_with([SPACE, ' '])
    }
}

fn escape(text: &str) -> String {
    text.replace(' ', "▁")
}

/// The bytes that a token stands for.
pub(super) fn token_bytes(text: &str, kind: TokenKind) -> Vec<u8> {
    match kind {
        TokenKind::Unused => Vec::new(),
        TokenKind::Control => text.as_bytes().to_vec(),
        TokenKind::Byte => byte_of(text).into_iter().collect(),
        TokenKind::Normal | TokenKind::UserDefined => text.replace(SPACE, " ").into_bytes(),
    }
}

/// The byte that a byte token's text names: `<0x0A>`.
fn byte_of(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    u8::from_str_radix(digits, 16).ok().filter(|byte| byte_text(*byte) == text)
}

fn byte_text(byte: u8) -> String {
    format!("<{byte:#04X}>")
}

/// The model of the normal pieces and bytes of a vocabulary.
fn build(tokens: &Tokens, merges: &[MergePair<'_>]) -> Result<BPE, TokenizerError> {
    let is_byte = |byte: &u8| {
        let id = tokens.id(&byte_text(*byte));
        id.and_then(|id| tokens.kind(id)) == Some(TokenKind::Byte)
    };
    if let Some(byte) = (0..=u8::MAX).find(|byte| !is_byte(byte)) {
        return Err(TokenizerError::MissingBytePiece(byte));
    }
    let pieces = tokens.of_kinds(&[TokenKind::Normal, TokenKind::Byte]);
    let pieces: AHashMap<_, _> = pieces.map(|(text, id)| (text.to_owned(), id)).collect();
    let merges = merges.iter().map(|(left, right)| (left.to_string(), right.to_string())).collect();
    BPE::builder()
        .vocab_and_merges(pieces, merges)
        .byte_fallback(true)
        .build()
        .map_err(|error| TokenizerError::Bpe(error.to_string()))
}

/// The pieces of a vocabulary, wherever they were read.
pub(super) struct Pieces {
    pub(super) texts: Vec<String>,
    pub(super) scores: Vec<f32>,
    pub(super) kinds: Vec<TokenKind>,
    pub(super) rule: SentencePieceRule,
}

impl Pieces {
    /// A vocabulary that begins with BOS and has neither ends nor templates yet.
    pub(super) fn into_vocab(self) -> Result<Vocab<'static>, TokenizerError> {
        let merges = self.merges()?;
        Ok(Vocab {
            pre_tokenizer: PreTokenizer::whole_text(),
            sentencepiece: Some(self.rule),
            tokens: self.texts.into(),
            kinds: self.kinds,
            merges,
            bos: None,
            eos: None,
            end_of_generation: Vec::new(),
            add_bos: true,
            chat_templates: Default::default(),
        })
    }

    /// Every way to make a normal piece of two others, those of the highest score first.
    fn merges(&self) -> Result<Vec<MergePair<'static>>, TokenizerError> {
        let normal = || (0..self.texts.len()).filter(|&id| self.kinds[id] == TokenKind::Normal);
        let known: AHashMap<&str, usize> = normal().map(|id| (self.texts[id].as_str(), id)).collect();
        let mut scores = normal().map(|id| self.scores[id]);
        let first = scores.next();
        if known.len() > 1 && scores.all(|score| Some(score) == first) {
            return Err(TokenizerError::NoScores);
        }
        let mut merges = Vec::new();
        for id in normal() {
            let text = self.texts[id].as_str();
            for (at, _) in text.char_indices().skip(1) {
                let (left, right) = text.split_at(at);
                if known.contains_key(left) && known.contains_key(right) {
                    merges.push((id, left, right));
                }
            }
        }
        // Stable: the ways to make one piece stay in order of their left part's length.
        merges.sort_by(|&(a, ..), &(b, ..)| self.scores[b].total_cmp(&self.scores[a]).then(a.cmp(&b)));
        let owned = |text: &str| Cow::from(text.to_owned());
        Ok(merges.into_iter().map(|(_, left, right)| (owned(left), owned(right))).collect())
    }
}

/// Reads the `tokenizer.*` keys of a GGUF file whose `tokenizer.ggml.model` is `llama`.
pub(super) fn from_metadata(metadata: &Metadata) -> Result<Vocab<'static>, TokenizerError> {
    const REMOVES: &str = "tokenizer.ggml.remove_extra_whitespaces";
    let texts = metadata.str_array("tokenizer.ggml.tokens")?.to_vec();
    let scores = metadata.f32_array("tokenizer.ggml.scores")?.to_vec();
    let kinds = metadata.int_array("tokenizer.ggml.token_type")?;
    let tokens = texts.len();
    for (what, found) in [("tokenizer.ggml.scores", scores.len()), ("tokenizer.ggml.token_type", kinds.len())]
    {
        if found != tokens {
            return Err(TokenizerError::LengthMismatch { what, found, tokens });
        }
    }
    if metadata.opt_bool(REMOVES)? == Some(true) {
        return Err(TokenizerError::Normalization(format!("{REMOVES} is true")));
    }
    let kinds = kinds.into_iter().zip(&texts).enumerate();
    let kinds = kinds.map(|(id, (kind, text))| kind_of(id, text, kind)).collect::<Result<_, _>>()?;
    let space_prefix = metadata.opt_bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
    let mut vocab = Pieces { texts, scores, kinds, rule: SentencePieceRule { space_prefix } }.into_vocab()?;
    let special = |key| special_id(metadata, key, tokens);
    // The ids of `<s>` and `</s>` are SentencePiece's defaults.
    let default = |id: u32| (vocab.kinds.get(id as usize) == Some(&TokenKind::Control)).then_some(id);
    (vocab.bos, vocab.eos) = (
        special("tokenizer.ggml.bos_token_id")?.or(default(1)),
        special("tokenizer.ggml.eos_token_id")?.or(default(2)),
    );
    let ends = [special("tokenizer.ggml.eot_token_id")?, special("tokenizer.ggml.eom_token_id")?];
    vocab.end_of_generation = ends.into_iter().flatten().collect();
    vocab.add_bos = metadata.opt_bool("tokenizer.ggml.add_bos_token")?.unwrap_or(true);
    vocab.chat_templates = chat_templates(metadata)?;
    Ok(vocab)
}

/// The use of a piece by SentencePiece's number for it, which GGUF files have too.
pub(super) fn kind_of(id: usize, text: &str, kind: i64) -> Result<TokenKind, TokenizerError> {
    match kind {
        1 => Ok(TokenKind::Normal),
        // The piece for what cannot be encoded is structure as much as a control token is.
        2 | 3 => Ok(TokenKind::Control),
        4 => Ok(TokenKind::UserDefined),
        5 => Ok(TokenKind::Unused),
        6 if byte_of(text).is_some() => Ok(TokenKind::Byte),
        _ => Err(TokenizerError::TokenKind { id, text: text.to_owned(), kind }),
    }
}

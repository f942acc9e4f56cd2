//! The parts of a tokenizer, whichever file they were read from.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::TokenizerError;
use super::pre_tokenizer::{PreTokenizer, accepted_names};
use super::tokens::Tokens;
use crate::gguf::Metadata;

/// The name of the template that is used when none is asked for.
pub(super) const DEFAULT_TEMPLATE: &str = "default";

/// Texts that end a turn in some model family. They are control tokens even where fine-tunes store them with another
/// type: printed, or parsed out of a user's message, they would end the wrong turn.
const END_OF_GENERATION: &[&str] = &[
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|end|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "</s>",
    "<eos>",
    "<EOT>",
    "[EOT]",
    "[EOS]",
    "<｜end▁of▁sentence｜>",
];

/// Texts that begin or divide turns: control tokens for the same reason.
const TURN_MARKERS: &[&str] = &[
    "<|im_start|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|begin_of_text|>",
    "<s>",
    "[INST]",
    "[/INST]",
];

/// The use of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// Made by BPE.
    Normal,
    /// Structure: matched in templates, never in a user's text, not printed.
    Control,
    /// An added text, such as `<think>`: always matched as a whole, always printed.
    UserDefined,
    /// Padding of the vocabulary: never produced, never printed.
    Unused,
}

/// A pair of tokens that join.
pub(super) type MergePair<'a> = (Cow<'a, str>, Cow<'a, str>);

/// A byte-level BPE vocabulary; what it can, it borrows from the file.
#[derive(Clone, Debug)]
pub struct Vocab<'a> {
    /// The rule that splits text.
    pub pre_tokenizer: PreTokenizer,
    /// The text of each token; normal ones in the byte-level alphabet.
    pub tokens: Cow<'a, [String]>,
    /// The use of each token; as long as `tokens`.
    pub kinds: Vec<TokenKind>,
    /// Pairs of tokens that join, the earliest first.
    pub merges: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// Beginning of sequence.
    pub bos: Option<u32>,
    /// End of sequence.
    pub eos: Option<u32>,
    /// Further tokens that end a generation, besides those known by their text.
    pub end_of_generation: Vec<u32>,
    /// True if a prompt starts with `bos`.
    pub add_bos: bool,
    /// Chat templates by name.
    pub chat_templates: BTreeMap<String, String>,
}

impl<'a> Vocab<'a> {
    /// Reads the `tokenizer.*` keys of a GGUF file.
    ///
    /// # Errors
    /// A missing or ill-typed key, an unknown model or pre-tokenizer, arrays that do not fit together.
    pub fn from_metadata(metadata: &'a Metadata) -> Result<Self, TokenizerError> {
        let model = metadata.str("tokenizer.ggml.model")?;
        if model != "gpt2" {
            return Err(TokenizerError::UnknownModel(model.to_owned()));
        }
        let pre = metadata
            .opt_str("tokenizer.ggml.pre")?
            .ok_or_else(|| TokenizerError::MissingPreTokenizer { accepted: accepted_names() })?;
        let pre_tokenizer = PreTokenizer::from_name(pre)?;
        let tokens = metadata.str_array("tokenizer.ggml.tokens")?;
        let kinds = token_kinds(metadata, tokens)?;
        let merges = metadata.str_array("tokenizer.ggml.merges")?;
        let add_bos = metadata.opt_bool("tokenizer.ggml.add_bos_token")?.unwrap_or(pre_tokenizer.add_bos);
        let special = |key| special_id(metadata, key, tokens.len());
        Ok(Self {
            bos: special("tokenizer.ggml.bos_token_id")?,
            eos: special("tokenizer.ggml.eos_token_id")?,
            end_of_generation: [
                special("tokenizer.ggml.eot_token_id")?,
                special("tokenizer.ggml.eom_token_id")?,
            ]
            .into_iter()
            .flatten()
            .collect(),
            merges: merges
                .iter()
                .enumerate()
                .map(|(index, rule)| split_merge(index, rule))
                .collect::<Result<_, _>>()?,
            chat_templates: chat_templates(metadata)?,
            pre_tokenizer,
            tokens: tokens.into(),
            kinds,
            add_bos,
        })
    }

    /// Checks what building relies on.
    pub(super) fn check(&self) -> Result<(), TokenizerError> {
        if self.tokens.is_empty() {
            return Err(TokenizerError::NoTokens);
        }
        let (found, tokens) = (self.kinds.len(), self.tokens.len());
        if found != tokens {
            return Err(TokenizerError::LengthMismatch { what: "the list of token types", found, tokens });
        }
        let ids = [("the BOS token", self.bos), ("the EOS token", self.eos)];
        let ends = self.end_of_generation.iter().map(|&id| ("an end-of-generation token", Some(id)));
        for (key, id) in ids.into_iter().chain(ends) {
            if let Some(id) = id.filter(|&id| id as usize >= tokens) {
                return Err(TokenizerError::IdOutOfRange { key, id, tokens });
            }
        }
        Ok(())
    }

    /// The ids that end a generation, in ascending order.
    pub(super) fn end_of_generation_ids(&self, tokens: &Tokens) -> Vec<u32> {
        let known = END_OF_GENERATION.iter().filter_map(|text| tokens.id(text));
        let known = known.filter(|&id| tokens.is_added(id));
        let mut ids: Vec<u32> = known.chain(self.eos).chain(self.end_of_generation.iter().copied()).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}

/// Makes control tokens of those that are by their text, and padding of what fills the vocabulary.
pub(super) fn correct_kinds(tokens: &mut Tokens, merges: &[MergePair<'_>]) {
    for id in 0..tokens.len() as u32 {
        // Converters fill the vocabulary up to the embedding's rows with these.
        let is_padding = tokens
            .text(id)
            .is_none_or(|text| text.is_empty() || text.starts_with("[PAD") && *text == format!("[PAD{id}]"));
        if is_padding {
            tokens.set_kind(id, TokenKind::Unused);
        }
    }
    for &text in END_OF_GENERATION.iter().chain(TURN_MARKERS) {
        // A text that merges make is a word of the training data: `<s>` is HTML in Qwen's vocabulary.
        let is_word = || merges.iter().any(|(left, right)| is_joined(text, left, right));
        if let Some(id) = tokens.id(text)
            && (tokens.kind(id) != Some(TokenKind::Normal) || !is_word())
        {
            tokens.set_kind(id, TokenKind::Control);
        }
    }
}

fn is_joined(text: &str, left: &str, right: &str) -> bool {
    text.strip_prefix(left) == Some(right)
}

/// `tokenizer.ggml.token_type`; without it every token is a normal one.
fn token_kinds(metadata: &Metadata, tokens: &[String]) -> Result<Vec<TokenKind>, TokenizerError> {
    const KEY: &str = "tokenizer.ggml.token_type";
    let Some(kinds) = metadata.opt_int_array(KEY)? else { return Ok(vec![TokenKind::Normal; tokens.len()]) };
    if kinds.len() != tokens.len() {
        return Err(TokenizerError::LengthMismatch { what: KEY, found: kinds.len(), tokens: tokens.len() });
    }
    let kind = |(id, kind)| match kind {
        1 => Ok(TokenKind::Normal),
        // An unknown-token marker is structure as much as a control token is.
        2 | 3 => Ok(TokenKind::Control),
        4 => Ok(TokenKind::UserDefined),
        5 => Ok(TokenKind::Unused),
        _ => Err(TokenizerError::TokenKind { id, text: tokens[id].clone(), kind }),
    };
    kinds.into_iter().enumerate().map(kind).collect()
}

fn special_id(metadata: &Metadata, key: &'static str, tokens: usize) -> Result<Option<u32>, TokenizerError> {
    match metadata.opt_u32(key)? {
        Some(id) if id as usize >= tokens => Err(TokenizerError::IdOutOfRange { key, id, tokens }),
        id => Ok(id),
    }
}

/// A merge rule as GGUF stores it: two tokens with a space between.
pub(super) fn split_merge(index: usize, rule: &str) -> Result<MergePair<'_>, TokenizerError> {
    match rule.split_once(' ') {
        Some((left, right)) if !left.is_empty() && !right.is_empty() && !right.contains(' ') => {
            Ok((left.into(), right.into()))
        }
        _ => {
            let fault = "is not two texts with one space between";
            Err(TokenizerError::Merge { index, text: rule.to_owned(), fault })
        }
    }
}

/// `tokenizer.chat_template`, and the named ones that `tokenizer.chat_templates` lists.
fn chat_templates(metadata: &Metadata) -> Result<BTreeMap<String, String>, TokenizerError> {
    let mut templates = BTreeMap::new();
    if let Some(template) = metadata.opt_str("tokenizer.chat_template")? {
        templates.insert(DEFAULT_TEMPLATE.to_owned(), template.to_owned());
    }
    for name in metadata.opt_str_array("tokenizer.chat_templates")?.unwrap_or_default() {
        let template = metadata.str(&format!("tokenizer.chat_template.{name}"))?;
        templates.insert(name.clone(), template.to_owned());
    }
    Ok(templates)
}

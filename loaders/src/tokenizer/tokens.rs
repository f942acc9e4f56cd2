//! The tokens of a vocabulary, found by id and by text.

use std::ops::Range;

use ahash::RandomState;
use hashbrown::HashTable;

use super::{TokenKind, TokenizerError, byte_level};

/// The tokens of a vocabulary.
///
/// Their texts lie end to end, and the table of those is one of ids: a map with a string for each of 150,000 tokens takes
/// most of the time of starting a small model.
pub(super) struct Tokens {
    texts: String,
    ends: Ends,
    /// The id of every text that is not empty.
    ids: HashTable<u32>,
    hashes: RandomState,
    kinds: Vec<TokenKind>,
}

impl Tokens {
    /// Tokens by their texts, which are distinct where they are not empty; `kinds` has as many entries.
    pub(super) fn new(texts: &[String], kinds: Vec<TokenKind>) -> Result<Self, TokenizerError> {
        let mut tokens = Self {
            texts: String::with_capacity(texts.iter().map(String::len).sum()),
            ends: Ends::with_capacity(texts.len()),
            ids: HashTable::with_capacity(texts.len()),
            hashes: RandomState::new(),
            kinds,
        };
        for (id, text) in (0..).zip(texts) {
            if let Some(first) = tokens.id(text) {
                return Err(TokenizerError::DuplicateToken { text: text.clone(), first, second: id });
            }
            tokens.texts.push_str(text);
            tokens.ends.push(tokens.texts.len());
            if !text.is_empty() {
                let Self { texts, ends, ids, hashes, .. } = &mut tokens;
                let hash = |id: &u32| hashes.hash_one(ends.range(*id).map_or("", |range| &texts[range]));
                ids.insert_unique(hash(&id), id, hash);
            }
        }
        Ok(tokens)
    }

    pub(super) fn len(&self) -> usize {
        self.kinds.len()
    }

    /// The token's text as the file writes it.
    pub(super) fn text(&self, id: u32) -> Option<&str> {
        self.ends.range(id).map(|range| &self.texts[range])
    }

    pub(super) fn kind(&self, id: u32) -> Option<TokenKind> {
        self.kinds.get(id as usize).copied()
    }

    pub(super) fn set_kind(&mut self, id: u32, kind: TokenKind) {
        self.kinds[id as usize] = kind;
    }

    /// The id of the token with this text, of whatever kind.
    pub(super) fn id(&self, text: &str) -> Option<u32> {
        self.ids.find(self.hashes.hash_one(text), |&id| self.text(id) == Some(text)).copied()
    }

    /// True for tokens that ordinary text consists of: normal and user-defined ones.
    pub(super) fn is_text(&self, id: u32) -> bool {
        matches!(self.kind(id), Some(TokenKind::Normal | TokenKind::UserDefined))
    }

    /// [`id`](Self::id) among the tokens that ordinary text consists of.
    pub(super) fn text_id(&self, text: &str) -> Option<u32> {
        self.id(text).filter(|&id| self.is_text(id))
    }

    /// True for tokens that are matched as whole texts: control and user-defined ones.
    pub(super) fn is_added(&self, id: u32) -> bool {
        matches!(self.kind(id), Some(TokenKind::Control | TokenKind::UserDefined))
    }

    /// The tokens of some kinds, with their ids, in order of the ids.
    pub(super) fn of_kinds(&self, kinds: &[TokenKind]) -> impl Iterator<Item = (&str, u32)> {
        let ids = (0..).zip(&self.kinds).filter(|(_, kind)| kinds.contains(kind)).map(|(id, _)| id);
        ids.filter_map(|id| Some((self.text(id)?, id)))
    }
}

/// The bytes that each token stands for: a control token's its text, padding's none.
pub(super) struct TokenBytes {
    bytes: Vec<u8>,
    ends: Ends,
}

impl TokenBytes {
    /// The bytes of a vocabulary in the byte-level alphabet.
    pub(super) fn byte_level(tokens: &Tokens) -> Result<Self, TokenizerError> {
        let mut all = Self::with_capacity(tokens);
        for (id, kind) in (0..).zip(&tokens.kinds) {
            let text = tokens.text(id).unwrap_or_default();
            match kind {
                TokenKind::Unused | TokenKind::Byte => {}
                TokenKind::Control | TokenKind::UserDefined => all.bytes.extend(text.as_bytes()),
                TokenKind::Normal => {
                    for character in text.chars() {
                        let byte = byte_level::char_to_byte(character);
                        all.bytes.push(byte.ok_or_else(|| TokenizerError::NotByteLevel {
                            id,
                            text: text.to_owned(),
                            character,
                        })?);
                    }
                }
            }
            all.ends.push(all.bytes.len());
        }
        Ok(all)
    }

    /// The bytes that `bytes_of` gives for each text.
    pub(super) fn of(tokens: &Tokens, bytes_of: impl Fn(&str, TokenKind) -> Vec<u8>) -> Self {
        let mut all = Self::with_capacity(tokens);
        for (id, &kind) in (0..).zip(&tokens.kinds) {
            all.bytes.extend(bytes_of(tokens.text(id).unwrap_or_default(), kind));
            all.ends.push(all.bytes.len());
        }
        all
    }

    fn with_capacity(tokens: &Tokens) -> Self {
        Self { bytes: Vec::with_capacity(tokens.texts.len()), ends: Ends::with_capacity(tokens.len()) }
    }

    pub(super) fn get(&self, id: u32) -> Option<&[u8]> {
        self.ends.range(id).map(|range| &self.bytes[range])
    }
}

/// The ends of strings that lie end to end.
struct Ends(Vec<usize>);

impl Ends {
    fn with_capacity(strings: usize) -> Self {
        Self(Vec::with_capacity(strings))
    }

    fn push(&mut self, end: usize) {
        self.0.push(end);
    }

    /// The place of string `id`.
    fn range(&self, id: u32) -> Option<Range<usize>> {
        let end = *self.0.get(id as usize)?;
        Some(id.checked_sub(1).map_or(0, |before| self.0[before as usize])..end)
    }
}

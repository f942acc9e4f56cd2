//! Finding the tokens that are matched as whole texts: control and user-defined ones.

use aho_corasick::{AhoCorasick, MatchKind};

use super::TokenizerError;

/// A stretch of text as [`AddedTokens::split`] sees it.
pub(super) enum Part<'a> {
    /// One of the tokens.
    Token(u32),
    /// Ordinary text, never empty.
    Text(&'a str),
}

/// A set of tokens found by their text; the longest of those that start earliest wins.
pub(super) struct AddedTokens {
    matcher: AhoCorasick,
    ids: Vec<u32>,
}

impl AddedTokens {
    /// The set of `tokens`, none of them empty.
    pub(super) fn new(tokens: &[(&str, u32)]) -> Result<Self, TokenizerError> {
        let matcher = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(tokens.iter().map(|(text, _)| text))
            .map_err(|error| TokenizerError::Bpe(format!("special tokens: {error}")))?;
        Ok(Self { matcher, ids: tokens.iter().map(|&(_, id)| id).collect() })
    }

    /// Cuts `text` at the tokens.
    pub(super) fn split<'a>(&self, text: &'a str) -> impl Iterator<Item = Part<'a>> {
        let mut found = self.matcher.find_iter(text);
        let mut token = None;
        let mut end = 0;
        std::iter::from_fn(move || {
            if let Some(id) = token.take() {
                return Some(Part::Token(id));
            }
            let start = end;
            if let Some(found) = found.next() {
                end = found.end();
                let id = self.ids[found.pattern().as_usize()];
                if start == found.start() {
                    return Some(Part::Token(id));
                }
                token = Some(id);
                return Some(Part::Text(&text[start..found.start()]));
            }
            end = text.len();
            (start < end).then(|| Part::Text(&text[start..]))
        })
    }
}

//! Errors of grammars.

use std::fmt;
use thiserror::Error;

/// The reason a grammar is refused, or the answer under it ends.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum GrammarError {
    /// A grammar of one kind is malformed or not supported.
    #[error("{kind}: {problem}")]
    Refused {
        /// The kind of the grammar, with the place of the fault where it is known.
        kind: String,
        /// The fault.
        problem: String,
    },
    /// A grammar exceeds a limit.
    #[error("{kind}: {what} is {size}, the limit is {limit}")]
    TooLarge {
        /// The kind of the grammar.
        kind: String,
        /// The measure.
        what: &'static str,
        /// Its size, as far as it was counted.
        size: usize,
        /// The largest size that is accepted.
        limit: usize,
    },
    /// A strict schema uses keywords that the grammar would not enforce exactly.
    #[error("strict JSON schema: not enforced exactly: {}; leave them out, or ask without strict", listed(.0))]
    Loose(Vec<LooseKeyword>),
    /// The vocabulary cannot be used with grammars.
    #[error("the model's vocabulary cannot be used with grammars: {0}")]
    Vocabulary(String),
    /// No token of the vocabulary can follow.
    #[error("the grammar cannot be met: no token of the vocabulary can follow")]
    CannotBeMet,
    /// A token that the mask forbids.
    #[error("token {token} cannot follow under the grammar")]
    NotAllowed {
        /// The token.
        token: u32,
    },
    /// The grammar needs more work for one token, or more memory, than is allowed.
    #[error("the grammar is too complex: {0}")]
    TooComplex(String),
    /// The grammar engine failed.
    #[error("the grammar engine failed: {0}")]
    Failed(String),
}

/// A keyword of a schema that a grammar enforces loosely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LooseKeyword {
    /// Its name.
    pub keyword: &'static str,
    /// The schema that holds it, as a JSON pointer: `#/properties/date`.
    pub path: String,
}

impl fmt::Display for LooseKeyword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.keyword, self.path)
    }
}

/// Most keywords that a message lists.
const LISTED: usize = 8;

fn listed(keywords: &[LooseKeyword]) -> String {
    let shown: Vec<_> = keywords.iter().take(LISTED).map(ToString::to_string).collect();
    let more = if keywords.len() > LISTED {
        format!(" and {} more", keywords.len() - LISTED)
    } else {
        String::new()
    };
    shown.join(", ") + &more
}

/// Longest message taken over from the grammar engine, in bytes.
const MESSAGE: usize = 400;

/// The grammar engine's message without what it appends for its developers: state, grammar and backtrace.
pub(super) fn message(error: impl fmt::Display) -> String {
    let text = error.to_string();
    let text = ["\n<backtrace>", "\n<state>", "\n<non-verbose/>"]
        .iter()
        .fold(text.as_str(), |text, mark| text.split_once(mark).map_or(text, |(before, _)| before))
        .trim_end();
    match text.char_indices().find(|(at, _)| *at >= MESSAGE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

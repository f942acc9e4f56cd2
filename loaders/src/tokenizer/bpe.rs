//! Byte-pair encoding: the merges of a vocabulary, and merging by them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ahash::AHashMap;

use super::tokens::Tokens;
use super::vocab::MergePair;
use super::{TokenizerError, byte_level};

/// The merge rules of a vocabulary, over ids.
///
/// Control tokens and padding take part in none: no user text can become one.
pub(super) struct Merges {
    /// The token of each byte alone.
    bytes: [Option<u32>; 256],
    rules: AHashMap<(u32, u32), Rule>,
}

#[derive(Clone, Copy)]
struct Rule {
    /// The place in the list: rules of lower rank go first.
    rank: u32,
    /// The token that two become.
    token: u32,
}

impl Merges {
    /// The rules `merges`, pairs of texts, of a vocabulary.
    ///
    /// Those with a control token or padding in them are left out.
    pub(super) fn new(merges: &[MergePair<'_>], tokens: &Tokens) -> Result<Self, TokenizerError> {
        let mut rules = AHashMap::with_capacity(merges.len());
        let mut joined = String::new();
        // Vocabularies list what merges make in the merges' order: the next token is the first guess.
        let mut guess = 0;
        for (rank, (left, right)) in merges.iter().enumerate() {
            joined.clear();
            joined.extend([left.as_ref(), right.as_ref()]);
            let token = if tokens.text(guess) == Some(&joined) { Some(guess) } else { tokens.id(&joined) };
            let fault = match (tokens.id(left), tokens.id(right), token) {
                (Some(left), Some(right), Some(token)) => {
                    if [left, right, token].into_iter().all(|id| tokens.is_text(id)) {
                        rules.insert((left, right), Rule { rank: rank as u32, token });
                    }
                    guess = token + 1;
                    continue;
                }
                (None, _, _) => "begins with a text that is no token",
                (_, None, _) => "ends with a text that is no token",
                _ => "makes a text that is no token",
            };
            return Err(TokenizerError::Merge { index: rank, text: format!("{left} {right}"), fault });
        }
        let token = |byte| tokens.text_id(byte_level::byte_to_char(byte).encode_utf8(&mut [0; 2]));
        let bytes = std::array::from_fn(|byte| token(byte as u8));
        match (b' '..=b'~').chain([b'\n']).find(|&byte| bytes[usize::from(byte)].is_none()) {
            Some(byte) => Err(TokenizerError::MissingByte(byte)),
            None => Ok(Self { bytes, rules }),
        }
    }

    /// Appends the tokens of `piece` to `ids`.
    pub(super) fn encode(
        &self,
        piece: &str,
        merging: &mut Merging,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        merging.symbols.clear();
        for (at, byte) in piece.bytes().enumerate() {
            let token = self.bytes[usize::from(byte)]
                .ok_or_else(|| TokenizerError::UnencodableByte { byte, piece: piece.to_owned() })?;
            merging.symbols.push(Symbol { token, previous: at.wrapping_sub(1), next: at + 1 });
        }
        merging.run(&self.rules);
        ids.extend(merging.symbols.iter().map(|symbol| symbol.token).filter(|&token| token != MERGED));
        Ok(())
    }
}

/// The token of a symbol that the one before it has taken in. No vocabulary has so many tokens.
const MERGED: u32 = u32::MAX;

/// The memory that merging works in, kept from one piece to the next.
#[derive(Default)]
pub(super) struct Merging {
    symbols: Vec<Symbol>,
    candidates: BinaryHeap<Reverse<Candidate>>,
}

/// A token of the piece being merged. Its neighbours are places in the piece; outside of it there are none.
struct Symbol {
    token: u32,
    previous: usize,
    next: usize,
}

/// Two neighbours that a rule joins, if both are still there when its turn comes.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: u32,
    /// The place of the left one.
    at: usize,
    pair: (u32, u32),
    token: u32,
}

impl Merging {
    /// Joins neighbours, by the lowest rank first and from left to right, until no rule applies.
    fn run(&mut self, rules: &AHashMap<(u32, u32), Rule>) {
        for at in 0..self.symbols.len() {
            self.consider(at, rules);
        }
        while let Some(Reverse(Candidate { at, pair, token, .. })) = self.candidates.pop() {
            if self.pair(at) != Some(pair) {
                continue;
            }
            let taken = self.symbols[at].next;
            let next = self.symbols[taken].next;
            self.symbols[taken].token = MERGED;
            self.symbols[at].token = token;
            self.symbols[at].next = next;
            if let Some(symbol) = self.symbols.get_mut(next) {
                symbol.previous = at;
            }
            self.consider(self.symbols[at].previous, rules);
            self.consider(at, rules);
        }
    }

    /// The tokens of the symbol at `at` and of the one after it.
    fn pair(&self, at: usize) -> Option<(u32, u32)> {
        let left = self.symbols.get(at)?;
        Some((left.token, self.symbols.get(left.next)?.token))
    }

    fn consider(&mut self, at: usize, rules: &AHashMap<(u32, u32), Rule>) {
        if let Some(pair) = self.pair(at)
            && let Some(&Rule { rank, token }) = rules.get(&pair)
        {
            self.candidates.push(Reverse(Candidate { rank, at, pair, token }));
        }
    }
}

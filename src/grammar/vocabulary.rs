//! A model's vocabulary as grammars see it.

use super::error::{GrammarError, message};
use crate::sampling::TokenMask;
use ember_loaders::tokenizer::{TokenKind, Tokenizer};
use llguidance::api::ParserLimits;
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
use llguidance::{ParserFactory, panic_utils};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// Longest text of a token that grammars use, in bytes; the grammar engine's tree of tokens is no deeper.
const MAX_TOKEN_BYTES: usize = 1000;

/// The tokens of one model, prepared for grammars. Made once for each model; all its [`Grammar`](super::Grammar)s share it.
///
/// Text is matched by normal and user-defined tokens. A control token is never text: only a Lark grammar that names it
/// (`<|im_start|>`, `<[4]>`) lets it through. End tokens are allowed where the grammar may end, all of them.
pub struct GrammarVocabulary {
    pub(super) factory: ParserFactory,
    pub(super) end_tokens: Vec<u32>,
    /// Every token but the end tokens.
    pub(super) thought: TokenMask,
}

impl GrammarVocabulary {
    /// The vocabulary of a model.
    ///
    /// # Errors
    /// [`GrammarError::Vocabulary`] for one without an end token, or too large for the grammar engine.
    pub fn new(tokenizer: &Tokenizer) -> Result<Self, GrammarError> {
        let end_tokens = tokenizer.eog().to_vec();
        if end_tokens.is_empty() {
            return Err(GrammarError::Vocabulary("it has no end token".into()));
        }
        let vocab = tokenizer.vocab_size();
        let words: Vec<Vec<u8>> = (0..vocab as u32).map(|id| word(tokenizer, id)).collect();
        // The engine asserts that its tree of tokens can be numbered.
        let factory = panic_utils::catch_unwind(AssertUnwindSafe(|| {
            let trie = TokTrie::from(&TokRxInfo::new(vocab as u32, end_tokens[0]), &words);
            let tokens: TokEnv = Arc::new(ApproximateTokEnv::new(trie.with_eos_tokens(&end_tokens)));
            let slices = SlicedBiasComputer::general_slices();
            ParserFactory::new(&tokens, InferenceCapabilities::default(), &slices)
        }));
        let mut factory = factory.map_err(|error| GrammarError::Vocabulary(message(error)))?;
        factory.quiet();
        *factory.limits_mut() = limits();
        let thought = TokenMask::all_but(vocab, &end_tokens);
        Ok(Self { factory, end_tokens, thought })
    }

    /// The number of tokens.
    pub fn len(&self) -> usize {
        self.factory.tok_env().tok_trie().vocab_size()
    }

    /// True without any token.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn is_end(&self, token: u32) -> bool {
        self.end_tokens.contains(&token)
    }
}

impl std::fmt::Debug for GrammarVocabulary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrammarVocabulary").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// The token's bytes as the grammar engine takes them: behind its marker for what is no text, none for what is never allowed.
fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    const MARKER: u8 = TokTrie::SPECIAL_TOKEN_MARKER;
    let bytes = tokenizer.token_bytes(id).unwrap_or_default();
    let text = matches!(tokenizer.kind(id), Some(TokenKind::Normal | TokenKind::UserDefined));
    let usable = !bytes.is_empty() && bytes.len() <= MAX_TOKEN_BYTES;
    match (usable, text && !tokenizer.is_eog(id)) {
        (false, _) => Vec::new(),
        // The marker is no byte of UTF-8 text.
        (true, true) => {
            if bytes.contains(&MARKER) {
                Vec::new()
            } else {
                bytes.to_vec()
            }
        }
        (true, false) => [&[MARKER], bytes].concat(),
    }
}

/// The limits of one grammar. They count work and memory, never time, so that a grammar is refused on all machines or none.
fn limits() -> ParserLimits {
    ParserLimits {
        // Each state takes 1 to 2 kB, and every answer has its own.
        max_lexer_states: 65_536,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

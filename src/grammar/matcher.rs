//! Follows one answer under a grammar.

use super::error::{GrammarError, message};
use super::vocabulary::GrammarVocabulary;
use crate::sampling::TokenMask;
use llguidance::api::StopReason;
use llguidance::{TokenParser, panic_utils};
use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// The place in an answer where its grammar begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrammarStart {
    /// At once: thinking is off, or the model does not think.
    Now,
    /// Behind the thought that the prompt has opened.
    InThought {
        /// The token of the closing tag.
        close: u32,
    },
    /// Behind the thought that the answer may open; at once if it does not.
    BeforeThought {
        /// The token of the opening tag.
        open: u32,
        /// The token of the closing tag.
        close: u32,
    },
}

/// The state of one answer under a grammar.
///
/// A clone goes on independently. The state depends on the accepted tokens only: a matcher that accepts them again from the
/// beginning is equal to one that never stopped. Masks and clones may be made on any thread.
pub struct GrammarMatcher {
    vocabulary: Arc<GrammarVocabulary>,
    /// The engine's state; after the first error only that.
    parser: Result<TokenParser, GrammarError>,
    start: GrammarStart,
    ended: bool,
}

impl Clone for GrammarMatcher {
    fn clone(&self) -> Self {
        Self {
            vocabulary: self.vocabulary.clone(),
            // With caches of its own: what one answer costs or breaks never touches another.
            parser: self.parser.as_ref().map(TokenParser::deep_clone).map_err(Clone::clone),
            start: self.start,
            ended: self.ended,
        }
    }
}

impl GrammarMatcher {
    /// A matcher at the beginning of an answer, for a parser that has seen no token.
    pub(super) fn new(vocabulary: Arc<GrammarVocabulary>, mut parser: TokenParser) -> Self {
        parser.start_without_prompt();
        Self { vocabulary, parser: Ok(parser), start: GrammarStart::Now, ended: false }
    }

    /// A clone whose grammar begins elsewhere.
    pub(super) fn starting(&self, start: GrammarStart) -> Self {
        Self { start, ..self.clone() }
    }

    /// The tokens that may come next. Behind the end only end tokens; in a thought all but those, so that no answer ends
    /// before its grammar began.
    ///
    /// # Errors
    /// [`GrammarError::CannotBeMet`] when there are none, and other reasons to end this answer.
    pub fn mask(&mut self) -> Result<TokenMask, GrammarError> {
        match self.start {
            GrammarStart::InThought { .. } => {
                self.parser.as_ref().map(|_| self.vocabulary.thought.clone()).map_err(Clone::clone)
            }
            GrammarStart::BeforeThought { open, .. } => {
                let mut mask = self.grammar_mask()?;
                mask.allow(open);
                Ok(mask)
            }
            GrammarStart::Now => self.grammar_mask(),
        }
    }

    /// Goes on by the token that was chosen.
    ///
    /// # Errors
    /// [`GrammarError::NotAllowed`] for a token that the mask forbids, and other reasons to end this answer.
    pub fn accept(&mut self, token: u32) -> Result<(), GrammarError> {
        let allowed = match self.start {
            GrammarStart::InThought { close } => {
                if token == close {
                    self.start = GrammarStart::Now;
                }
                self.vocabulary.thought.allows(token)
            }
            GrammarStart::BeforeThought { open, close } if token == open => {
                self.start = GrammarStart::InThought { close };
                true
            }
            GrammarStart::BeforeThought { .. } | GrammarStart::Now => {
                self.start = GrammarStart::Now;
                self.accept_in_grammar(token)?
            }
        };
        if !allowed && self.parser.is_ok() {
            self.parser = Err(GrammarError::NotAllowed { token });
        }
        self.parser.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    /// Accepts tokens one after the other: those of an answer that is computed again.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub fn accept_all(&mut self, tokens: &[u32]) -> Result<(), GrammarError> {
        tokens.iter().try_for_each(|&token| self.accept(token))
    }

    /// True if the answer may end here.
    pub fn may_end(&mut self) -> bool {
        let in_grammar = !self.in_thought();
        self.is_finished()
            || in_grammar
                && self.with_parser(|parser| Ok::<_, GrammarError>(parser.is_accepting())) == Ok(true)
    }

    /// True if the grammar is met and nothing but an end token can follow: the answer is complete.
    pub fn is_finished(&self) -> bool {
        let stopped = |parser: &TokenParser| {
            matches!(parser.stop_reason(), StopReason::NoExtension | StopReason::EndOfSentence)
        };
        self.parser.as_ref().is_ok_and(|parser| self.ended || stopped(parser))
    }

    /// True while the answer is in its thought, where the grammar does not hold yet.
    pub fn in_thought(&self) -> bool {
        matches!(self.start, GrammarStart::InThought { .. })
    }

    fn grammar_mask(&mut self) -> Result<TokenMask, GrammarError> {
        let vocab = self.vocabulary.len();
        if self.is_finished() {
            return Ok(TokenMask::only(vocab, &self.vocabulary.end_tokens));
        }
        let mask = self.with_parser(TokenParser::compute_mask)?;
        Ok(TokenMask::from_words(mask.into(), vocab))
    }

    /// Goes on in the grammar unless it forbids the token.
    fn accept_in_grammar(&mut self, token: u32) -> Result<bool, GrammarError> {
        let end = self.vocabulary.is_end(token);
        let allowed = if self.is_finished() {
            // The engine takes no token behind the end, not even an end token.
            end
        } else {
            (token as usize) < self.vocabulary.len()
                && self.with_parser(|parser| parser.validate_token(token))?
        };
        if allowed && !self.is_finished() {
            self.with_parser(|parser| parser.consume_token(token).and_then(|_| parser.check_stop()))?;
        }
        self.ended |= allowed && end;
        Ok(allowed)
    }

    /// Runs `work` unless an earlier error ended the answer, and keeps the error that ends it.
    fn with_parser<T, E: Display>(
        &mut self,
        work: impl FnOnce(&mut TokenParser) -> Result<T, E>,
    ) -> Result<T, GrammarError> {
        let parser = self.parser.as_mut().map_err(|error| error.clone())?;
        // The engine's panic hook keeps quiet about the panics that it catches here.
        let result = match panic_utils::catch_unwind(AssertUnwindSafe(|| Ok(work(parser)))) {
            Ok(Ok(result)) => return Ok(result),
            Ok(Err(error)) => error_of(parser.stop_reason(), &error),
            Err(panic) => GrammarError::Failed(message(panic)),
        };
        self.parser = Err(result.clone());
        Err(result)
    }
}

/// The engine's error; it says why it stopped.
fn error_of(reason: StopReason, error: &impl Display) -> GrammarError {
    match reason {
        StopReason::NoExtensionBias => GrammarError::CannotBeMet,
        StopReason::LexerTooComplex | StopReason::ParserTooComplex => {
            GrammarError::TooComplex(message(error))
        }
        _ => GrammarError::Failed(message(error)),
    }
}

impl std::fmt::Debug for GrammarMatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrammarMatcher")
            .field("start", &self.start)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::{Grammar, GrammarSpec};
    use ember_loaders::gguf::Gguf;
    use ember_loaders::tokenizer::Tokenizer;

    /// A panic inside the engine ends this answer and no other, and prints nothing.
    #[test]
    fn a_panic_of_the_engine_is_the_answers_error() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/loaders/tests/fixtures/tokenizer/smollm.gguf");
        let tokenizer = Tokenizer::from_gguf(&Gguf::open(file).unwrap()).unwrap();
        let vocabulary = Arc::new(GrammarVocabulary::new(&tokenizer).unwrap());
        let grammar = Grammar::compile(&vocabulary, &GrammarSpec::JsonObject).unwrap();
        let mut broken = grammar.matcher(GrammarStart::Now);
        let mut sibling = broken.clone();
        let result = broken.with_parser(|parser| parser.parser.test_trigger_lexer_error());
        let failed = GrammarError::Failed("panic: synthetic error".into());
        assert_eq!(result, Err(failed.clone()));
        assert_eq!((broken.mask(), broken.accept(0)), (Err(failed.clone()), Err(failed.clone())));
        assert!(!broken.is_finished() && !broken.may_end());
        assert_eq!(broken.clone().mask(), Err(failed));
        assert!(sibling.mask().is_ok());
        assert_eq!(grammar.matcher(GrammarStart::Now).mask(), sibling.mask());
    }
}

//! Grammars that an answer has to follow: JSON, JSON schemas, regular expressions, Lark grammars, choices.
//!
//! A [`GrammarVocabulary`] is made once for each model, a [`Grammar`] compiled for each request when it is submitted, and a
//! [`GrammarMatcher`] follows each answer: its mask says which tokens may come next, and it is told the one that was chosen.
//! [`MaskWorkers`] make masks on threads of their own while the model computes the logits.
//!
//! ```no_run
//! # use ember::grammar::{Grammar, GrammarSpec, GrammarStart, GrammarVocabulary};
//! # fn next_token(_: &ember::sampling::TokenMask) -> u32 { 0 }
//! # fn example(tokenizer: &ember_loaders::tokenizer::Tokenizer) -> Result<(), ember::grammar::GrammarError> {
//! let vocabulary = GrammarVocabulary::new(tokenizer)?.into();
//! let grammar = Grammar::compile(&vocabulary, &GrammarSpec::Regex("[0-9]{4}".into()))?;
//! let mut matcher = grammar.matcher(GrammarStart::Now);
//! while !matcher.is_finished() {
//!     let token = next_token(&matcher.mask()?);
//!     matcher.accept(token)?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The grammar engine is the `llguidance` crate; `docs/grammars.md` says what it enforces.

mod compile;
mod error;
mod lark;
mod matcher;
mod schema;
mod vocabulary;
mod work;
mod worker;

pub use compile::{Grammar, GrammarSpec};
pub use error::{GrammarError, LooseKeyword};
pub use matcher::{GrammarMatcher, GrammarStart};
pub use vocabulary::GrammarVocabulary;
pub use worker::{MaskWorkers, PendingMask};

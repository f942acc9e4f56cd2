//! Compiles grammars.

use super::error::{GrammarError, message};
use super::matcher::{GrammarMatcher, GrammarStart};
use super::vocabulary::GrammarVocabulary;
use super::{lark, schema};
use llguidance::api::TopLevelGrammar;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};

/// Longest regular expression, in bytes.
const MAX_REGEX: usize = 8 << 10;
/// Longest sum of the choices' texts, in bytes.
const MAX_CHOICES: usize = 64 << 10;
/// Stack of the thread that compiles: the engine recurses over rules and properties, of which the limits allow thousands.
const STACK: usize = 256 << 20;

/// A grammar as a request states it.
#[derive(Debug, Clone, PartialEq)]
pub enum GrammarSpec {
    /// Any JSON object.
    JsonObject,
    /// JSON that is valid under a schema.
    JsonSchema {
        /// The schema.
        schema: Value,
        /// Refuses keywords that would be enforced loosely.
        strict: bool,
    },
    /// Text that a regular expression matches as a whole.
    Regex(String),
    /// Text of a grammar in llguidance's variant of Lark.
    Lark(String),
    /// One of these texts.
    Choices(Vec<String>),
}

impl GrammarSpec {
    /// The name of the kind, for messages.
    fn kind(&self) -> &'static str {
        match self {
            Self::JsonObject => "JSON object",
            Self::JsonSchema { .. } => schema::KIND,
            Self::Regex(_) => "regex",
            Self::Lark(_) => lark::KIND,
            Self::Choices(_) => "choices",
        }
    }

    /// The engine's error for this grammar; a panic is the engine's fault.
    fn refused(&self, error: impl std::fmt::Display) -> GrammarError {
        match message(format!("{error:#}")) {
            panic if panic.starts_with("panic: ") => GrammarError::Failed(panic),
            problem => GrammarError::Refused { kind: self.kind().into(), problem: reworded(problem) },
        }
    }

    /// The grammar in the engine's form, within the limits.
    fn prepare(&self) -> Result<TopLevelGrammar, GrammarError> {
        match self {
            Self::JsonObject => json_grammar(&json!({"type": "object"}), true),
            Self::JsonSchema { schema, strict } => json_grammar(schema, *strict),
            Self::Regex(regex) => regex_grammar(regex),
            Self::Lark(text) => Ok(TopLevelGrammar::from_lark(lark::prepare(text)?)),
            Self::Choices(choices) => choices_grammar(choices),
        }
    }
}

/// The engine's message where it speaks of settings that nobody can make here, or buries its reason in a drawing.
fn reworded(problem: String) -> String {
    const ONE_OF: &str = "`oneOf` is supported only where its schemas are plainly disjoint: \
                          by type, or by a required property with another constant";
    const REFERENCE: &str = "`$ref` is supported only for `#` and places in the schema itself, `#/…`";
    const STATES: &str = "its automaton is too large";
    let known = [
        ("oneOf constraints are not supported", ONE_OF),
        ("Only absolute $ref's", REFERENCE),
        ("lexer precomputation failed", STATES),
        ("initial lexer configuration", STATES),
    ];
    if let Some((_, text)) = known.iter().find(|(start, _)| problem.starts_with(start)) {
        return (*text).into();
    }
    match problem.split_once("regex parse error:").and_then(|(_, drawing)| drawing.split_once("\nerror: ")) {
        Some((_, reason)) => reason.lines().next().unwrap_or_default().into(),
        None => problem,
    }
}

fn json_grammar(schema: &Value, strict: bool) -> Result<TopLevelGrammar, GrammarError> {
    Ok(TopLevelGrammar::from_json_schema(schema::prepare(schema, strict)?))
}

fn regex_grammar(regex: &str) -> Result<TopLevelGrammar, GrammarError> {
    let refused = |problem: &str| GrammarError::Refused { kind: "regex".into(), problem: problem.into() };
    check_size("regex", "its length in bytes", regex.len(), MAX_REGEX)?;
    // The engine would drop an escape of nothing, and take an empty expression for a comment.
    let backslashes = regex.bytes().rev().take_while(|byte| *byte == b'\\').count();
    if regex.is_empty() {
        return Err(refused("it is empty"));
    }
    if backslashes % 2 == 1 {
        return Err(refused("it ends with a backslash that escapes nothing"));
    }
    Ok(TopLevelGrammar::from_regex(regex))
}

fn choices_grammar(choices: &[String]) -> Result<TopLevelGrammar, GrammarError> {
    let refused = |problem| GrammarError::Refused { kind: "choices".into(), problem };
    check_size("choices", "their length in bytes", choices.iter().map(String::len).sum(), MAX_CHOICES)?;
    if choices.is_empty() {
        return Err(refused("there are none".into()));
    }
    if let Some(empty) = choices.iter().position(String::is_empty) {
        return Err(refused(format!("number {} is empty", empty + 1)));
    }
    // Lark writes strings as JSON does, but for the one control character that JSON leaves alone.
    let quoted =
        choices.iter().map(|choice| Value::from(choice.as_str()).to_string().replace('\u{7f}', "\\u007f"));
    // As one terminal, the choices are one automaton.
    let choices = quoted.collect::<Vec<_>>().join(" | ");
    Ok(TopLevelGrammar::from_lark(format!("start: CHOICES\nCHOICES: {choices}")))
}

pub(super) fn check_size(
    kind: &str,
    what: &'static str,
    size: usize,
    limit: usize,
) -> Result<(), GrammarError> {
    if size > limit {
        return Err(GrammarError::TooLarge { kind: kind.into(), what, size, limit });
    }
    Ok(())
}

/// A compiled grammar; clones share it.
#[derive(Clone)]
pub struct Grammar(Arc<Mutex<GrammarMatcher>>);

impl Grammar {
    /// Compiles a grammar for a vocabulary. It may take some tens of milliseconds, for a very large schema a few seconds:
    /// not for the engine's thread.
    ///
    /// # Errors
    /// A malformed, unsupported or too large grammar, named with the part at fault; [`GrammarError::CannotBeMet`] when the
    /// vocabulary has no token that it could begin with.
    pub fn compile(vocabulary: &Arc<GrammarVocabulary>, spec: &GrammarSpec) -> Result<Self, GrammarError> {
        let compile = || {
            let parser = vocabulary.factory.create_parser(spec.prepare()?);
            let mut fresh =
                GrammarMatcher::new(vocabulary.clone(), parser.map_err(|error| spec.refused(error))?);
            fresh.mask()?;
            Ok(Self(Arc::new(Mutex::new(fresh))))
        };
        let thread = std::thread::Builder::new().name("grammar".into()).stack_size(STACK);
        std::thread::scope(|scope| {
            let compiled = thread.spawn_scoped(scope, compile).map_err(|error| {
                GrammarError::Failed(format!("no thread to compile the grammar on: {error}"))
            })?;
            compiled.join().unwrap_or_else(|_| Err(GrammarError::Failed("it panicked".into())))
        })
    }

    /// A matcher at the beginning of an answer.
    pub fn matcher(&self, start: GrammarStart) -> GrammarMatcher {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).starting(start)
    }
}

impl std::fmt::Debug for Grammar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grammar").finish_non_exhaustive()
    }
}

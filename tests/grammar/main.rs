//! Grammars: what each kind lets through, what is refused, and random schemas against an independent validator.

mod generator;
mod kinds;
mod refusals;
mod schemas;
mod state;
mod validator;

use ember::grammar::{Grammar, GrammarError, GrammarMatcher, GrammarSpec, GrammarStart, GrammarVocabulary};
use ember_loaders::gguf::Gguf;
use ember_loaders::tokenizer::{SpecialTokens, Tokenizer};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

/// 1226 tokens of Qwen: all bytes, some merged texts, control and user-defined tokens, two end tokens.
static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("loaders/tests/fixtures/tokenizer/qwen2.gguf");
    let file = std::env::var_os("EMBER_GRAMMAR_MODEL").map_or(fixture, PathBuf::from);
    Tokenizer::from_gguf(&Gguf::open(file).unwrap()).unwrap()
});

static VOCABULARY: LazyLock<Arc<GrammarVocabulary>> =
    LazyLock::new(|| Arc::new(GrammarVocabulary::new(&TOKENIZER).unwrap()));

fn compile(spec: &GrammarSpec) -> Result<Grammar, GrammarError> {
    Grammar::compile(&VOCABULARY, spec)
}

fn grammar(spec: GrammarSpec) -> Grammar {
    compile(&spec).unwrap_or_else(|error| panic!("{spec:?}: {error}"))
}

fn schema(schema: Value) -> GrammarSpec {
    GrammarSpec::JsonSchema { schema, strict: false }
}

fn regex(regex: &str) -> GrammarSpec {
    GrammarSpec::Regex(regex.into())
}

fn lark(text: &str) -> GrammarSpec {
    GrammarSpec::Lark(text.into())
}

fn choices(texts: &[&str]) -> GrammarSpec {
    GrammarSpec::Choices(texts.iter().map(|text| (*text).into()).collect())
}

/// The tokens of a text, in the model's usual pieces.
fn ids(text: &str) -> Vec<u32> {
    TOKENIZER.encode(text, SpecialTokens::Ignore).unwrap()
}

/// The tokens of a text, one for each byte.
fn byte_ids(text: &str) -> Vec<u32> {
    let token = |byte: u8| {
        let bytes = |id: &u32| TOKENIZER.token_bytes(*id) == Some(&[byte]);
        (0..TOKENIZER.vocab_size() as u32).find(bytes).unwrap()
    };
    text.bytes().map(token).collect()
}

fn id(token: &str) -> u32 {
    TOKENIZER.token_id(token).unwrap()
}

/// A grammar's answer to a text.
#[derive(Debug, PartialEq)]
enum Verdict {
    /// It may end here.
    Met,
    /// It goes on.
    Begun,
    /// The token that begins with this rest of the text is forbidden.
    Stops(String),
}

/// Follows `tokens`; a mask and what is accepted have to agree.
fn follow(matcher: &mut GrammarMatcher, tokens: &[u32]) -> Verdict {
    for (at, &token) in tokens.iter().enumerate() {
        let allowed = matcher.mask().unwrap().allows(token);
        assert_eq!(matcher.clone().accept(token).is_ok(), allowed, "token {token}");
        if !allowed {
            return Verdict::Stops(TOKENIZER.decode(&tokens[at..], false));
        }
        matcher.accept(token).unwrap();
    }
    let mask = matcher.mask().unwrap();
    let ends = TOKENIZER.eog().iter().filter(|end| mask.allows(**end)).count();
    assert_eq!(ends, if matcher.may_end() { TOKENIZER.eog().len() } else { 0 }, "all end tokens or none");
    if matcher.may_end() { Verdict::Met } else { Verdict::Begun }
}

/// The verdict on `text`, token by token and byte by byte.
fn verdict(grammar: &Grammar, text: &str) -> Verdict {
    let by_token = follow(&mut grammar.matcher(GrammarStart::Now), &ids(text));
    let by_byte = follow(&mut grammar.matcher(GrammarStart::Now), &byte_ids(text));
    match (&by_token, &by_byte) {
        (Verdict::Stops(_), Verdict::Stops(_)) => {}
        _ => assert_eq!(by_token, by_byte, "{text:?} in tokens and in bytes"),
    }
    by_byte
}

/// Checks which texts a grammar is met by, which begin one that meets it, and where the others stop.
fn check(grammar: &Grammar, met: &[&str], begun: &[&str], stops: &[(&str, &str)]) {
    for text in met {
        assert_eq!(verdict(grammar, text), Verdict::Met, "{text:?}");
    }
    for text in begun {
        assert_eq!(verdict(grammar, text), Verdict::Begun, "{text:?}");
    }
    for (text, rest) in stops {
        assert_eq!(verdict(grammar, text), Verdict::Stops((*rest).into()), "{text:?}");
    }
}

//! The small vocabularies of tests/fixtures/tokenizer and the ids that their references give.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::path::{Path, PathBuf};

use ember_loaders::gguf::{Gguf, Metadata};
use ember_loaders::tokenizer::{SpecialTokens, Tokenizer};
use serde::Deserialize;

#[derive(Deserialize)]
pub struct Case {
    pub text: String,
    /// Control tokens looked for.
    pub parsed: Vec<u32>,
    /// Control tokens taken as text.
    pub ignored: Vec<u32>,
}

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizer").join(name)
}

pub fn metadata(family: &str) -> Metadata {
    Gguf::open(fixture(&format!("{family}.gguf"))).unwrap().metadata().clone()
}

pub fn cases(family: &str) -> Vec<Case> {
    let text = std::fs::read_to_string(fixture(&format!("{family}.json"))).unwrap();
    let cases: Vec<Case> = serde_json::from_str(&text).unwrap();
    assert!(cases.len() >= 25);
    cases
}

/// The texts that `tokenizer` encodes otherwise than the reference did.
pub fn differences(tokenizer: &Tokenizer, cases: &[Case]) -> Vec<String> {
    let differs = |case: &&Case| {
        let encode = |special| tokenizer.encode(&case.text, special).unwrap();
        encode(SpecialTokens::Parse) != case.parsed || encode(SpecialTokens::Ignore) != case.ignored
    };
    cases.iter().filter(differs).map(|case| case.text.clone()).collect()
}

//! Vocabularies that do not hold together are refused, and the message says why.

use std::path::Path;

use ember_loaders::gguf::{Array, Gguf, Metadata, Value};
use ember_loaders::tokenizer::{SpecialTokens, TokenKind, Tokenizer, TokenizerError, Vocab};

const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const MERGES: &str = "tokenizer.ggml.merges";

fn fixture(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizer").join(name)
}

fn metadata() -> Metadata {
    Gguf::open(fixture("gpt-2.gguf")).unwrap().metadata().clone()
}

fn refusal(metadata: &Metadata) -> String {
    Tokenizer::from_metadata(metadata).expect_err("refused").to_string()
}

/// The refusal after setting one key.
fn refusal_with(key: &str, value: impl Into<Value>) -> String {
    let mut metadata = metadata();
    metadata.insert(key, value);
    refusal(&metadata)
}

fn without(key: &str) -> Metadata {
    let mut fewer = Metadata::new("test.gguf");
    for (name, value) in metadata().iter().filter(|(name, _)| *name != key) {
        fewer.insert(name, value.clone());
    }
    fewer
}

fn strings(key: &str) -> Vec<String> {
    metadata().str_array(key).unwrap().to_vec()
}

fn array(texts: Vec<String>) -> Value {
    Value::Array(Array::String(texts))
}

#[test]
fn unknown_models_and_rules_are_named() {
    let refused = refusal_with("tokenizer.ggml.model", "t5".to_owned());
    assert!(refused.contains("\"t5\"") && refused.contains("gpt2"), "{refused}");
    let refused = refusal_with("tokenizer.ggml.pre", "chameleon".to_owned());
    assert!(refused.contains("\"chameleon\""), "{refused}");
    for family in ["qwen2", "tekken", "llama-bpe", "smollm", "gpt-2"] {
        assert!(refused.contains(family), "{refused}");
    }
    let refused = refusal(&without("tokenizer.ggml.pre"));
    assert!(refused.contains("tokenizer.ggml.pre is missing") && refused.contains("tekken"), "{refused}");
    assert!(refusal_with("tokenizer.ggml.pre", "default".to_owned()).contains("\"default\""));
}

#[test]
fn missing_and_ill_typed_keys_are_named() {
    for key in ["tokenizer.ggml.model", TOKENS, MERGES] {
        assert!(refusal(&without(key)).contains(key));
        assert!(refusal_with(key, 7u32).contains(key));
    }
    for key in
        [TYPES, "tokenizer.ggml.eos_token_id", "tokenizer.ggml.add_bos_token", "tokenizer.chat_template"]
    {
        assert!(refusal_with(key, array(vec![])).contains(key), "{key}");
    }
}

#[test]
fn arrays_must_fit_together() {
    let refused = refusal_with(TYPES, Value::Array(Array::I32(vec![1; 10])));
    assert!(refused.contains(TYPES) && refused.contains("10 entries"), "{refused}");
    assert!(refusal_with(TOKENS, array(vec![])).contains("0 tokens"));
    let mut types = vec![1; strings(TOKENS).len()];
    types[3] = 6;
    assert!(refusal_with(TYPES, Value::Array(Array::I32(types))).contains("token 3"));
}

#[test]
fn tokens_must_be_distinct_and_byte_level() {
    let mut tokens = strings(TOKENS);
    tokens[301] = tokens[300].clone();
    let refused = refusal_with(TOKENS, array(tokens));
    assert!(refused.contains("300") && refused.contains("301"), "{refused}");

    let mut tokens = strings(TOKENS);
    let (last, text) = (tokens.len() - 2, "two words".to_owned());
    tokens[last] = text;
    let refused = refusal_with(TOKENS, array(tokens));
    assert!(refused.contains("two words") && refused.contains("' '"), "{refused}");
}

#[test]
fn every_byte_of_ordinary_text_needs_a_token() {
    let (mut tokens, merges) = (strings(TOKENS), strings(MERGES));
    let z = tokens.iter().position(|token| token == "~").unwrap();
    tokens[z] = "~~~~~~".to_owned();
    let mut metadata = metadata();
    metadata.insert(TOKENS, array(tokens));
    metadata.insert(MERGES, array(merges.into_iter().filter(|rule| !rule.contains('~')).collect()));
    assert!(refusal(&metadata).contains("0x7e"));
}

/// SmolLM's vocabulary lacks a few control bytes: a text with one is refused, others are not.
#[test]
fn a_byte_without_a_token_is_named() {
    let mut tokens = strings(TOKENS);
    let byte = tokens.iter().position(|token| token == "Ą").unwrap();
    tokens[byte] = String::new();
    let mut metadata = metadata();
    metadata.insert(TOKENS, array(tokens));
    let tokenizer = Tokenizer::from_metadata(&metadata).unwrap();
    assert!(tokenizer.encode("plain", SpecialTokens::Ignore).is_ok());
    let refused = tokenizer.encode("a \u{4}\u{4}b", SpecialTokens::Ignore).unwrap_err();
    assert!(matches!(refused, TokenizerError::UnencodableByte { byte: 4, .. }), "{refused}");
}

#[test]
fn merges_must_join_tokens_into_a_token() {
    let refused_with = |rule: &str| {
        let mut merges = strings(MERGES);
        merges[5] = rule.to_owned();
        refusal_with(MERGES, array(merges))
    };
    for (rule, fault) in [
        ("ab", "one space between"),
        (" ab", "one space between"),
        ("a ", "one space between"),
        ("a b c", "one space between"),
        ("", "one space between"),
        ("qqq a", "begins with"),
        ("a qqq", "ends with"),
        ("q ~", "makes a text"),
        ("<|endoftext|> a", "makes a text"),
    ] {
        let refused = refused_with(rule);
        assert!(refused.contains("merge 5") && refused.contains(fault), "{rule:?}: {refused}");
    }
    // Two of the longest tokens: the joined text is longer than any token.
    let longest = strings(TOKENS).into_iter().filter(|token| !token.starts_with('<')).max_by_key(String::len);
    let longest = longest.unwrap();
    assert!(refused_with(&format!("{longest} {longest}")).contains("makes a text"));
}

#[test]
fn no_merges_at_all_leave_single_bytes() {
    let mut metadata = metadata();
    metadata.insert(MERGES, array(vec![]));
    let tokenizer = Tokenizer::from_metadata(&metadata).unwrap();
    assert_eq!(tokenizer.encode("Hello", SpecialTokens::Ignore).unwrap().len(), 5);
}

#[test]
fn ids_outside_the_vocabulary_are_named() {
    for key in ["bos", "eos", "eot", "eom"].map(|name| format!("tokenizer.ggml.{name}_token_id")) {
        let refused = refusal_with(&key, 70_000u32);
        assert!(refused.contains(&key) && refused.contains("70000"), "{refused}");
    }
}

#[test]
fn a_vocabulary_made_by_hand_is_checked_too() {
    let metadata = metadata();
    let good = Vocab::from_metadata(&metadata).unwrap();
    let refusal = |vocab| Tokenizer::from_vocab(vocab).expect_err("refused").to_string();
    assert!(refusal(Vocab { kinds: vec![TokenKind::Normal], ..good.clone() }).contains("1 entries"));
    assert!(refusal(Vocab { tokens: vec![].into(), kinds: vec![], ..good.clone() }).contains("empty"));
    assert!(refusal(Vocab { eos: Some(u32::MAX), ..good.clone() }).contains("EOS"));
    assert!(refusal(Vocab { end_of_generation: vec![9_999_999], ..good.clone() }).contains("9999999"));
    assert!(Tokenizer::from_vocab(good).is_ok());
}

#[test]
fn long_runs_are_encoded() {
    let tokenizer = Tokenizer::from_metadata(&metadata()).unwrap();
    for unit in [" ", "\n", "a", "/", "é", "' ", "1"] {
        let text = unit.repeat(200_000);
        let ids = tokenizer.encode(&text, SpecialTokens::Parse).unwrap();
        assert_eq!(tokenizer.decode(&ids, true), text, "{unit:?}");
    }
}

/// Changes one value of the folder fixture's tokenizer.json and returns the refusal.
fn folder_refusal(change: impl FnOnce(&mut serde_json::Value)) -> String {
    let text = std::fs::read_to_string(fixture("qwen3-folder/tokenizer.json")).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    change(&mut json);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), json.to_string()).unwrap();
    Tokenizer::from_folder(folder.path()).expect_err("refused").to_string()
}

#[test]
fn folders_ask_for_nothing_unsupported() {
    let model =
        |key: &'static str, value: serde_json::Value| folder_refusal(|json| json["model"][key] = value);
    assert!(model("type", "Unigram".into()).contains("Unigram"));
    assert!(model("byte_fallback", true.into()).contains("SentencePiece"));
    assert!(model("end_of_word_suffix", "</w>".into()).contains("suffixes"));
    assert!(model("vocab", 3.into()).contains("model.vocab"));
    let refused = folder_refusal(|json| json["model"]["vocab"]["far"] = 4_000_000_000u32.into());
    assert!(refused.contains("4000000000"), "{refused}");
    assert!(folder_refusal(|json| json["model"]["vocab"]["same"] = 3.into()).contains("same id 3"));
    assert!(folder_refusal(|json| json["added_tokens"][0]["lstrip"] = true.into()).contains("lstrip"));
    assert!(folder_refusal(|json| json["normalizer"]["type"] = "Lowercase".into()).contains("Lowercase"));
    assert!(
        folder_refusal(|json| json["pre_tokenizer"]["type"] = "Whitespace".into()).contains("Whitespace")
    );
    assert!(folder_refusal(|json| json["pre_tokenizer"] = ().into()).contains("byte-level"));
    let refused = folder_refusal(|json| {
        json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(".into();
    });
    assert!(refused.contains("does not compile"), "{refused}");
}

#[test]
fn missing_and_broken_files_of_a_folder_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let refusal = || Tokenizer::from_folder(folder.path()).expect_err("refused").to_string();
    assert!(refusal().contains("tokenizer.json"));
    std::fs::write(folder.path().join("tokenizer.json"), "<html>").unwrap();
    assert!(refusal().contains("tokenizer.json") && refusal().contains("line 1"));
    std::fs::copy(fixture("qwen3-folder/tokenizer.json"), folder.path().join("tokenizer.json")).unwrap();
    std::fs::write(folder.path().join("tokenizer_config.json"), r#"{"eos_token": "<gone>"}"#).unwrap();
    assert!(refusal().contains("<gone>"));
    std::fs::write(folder.path().join("tokenizer_config.json"), "{}").unwrap();
    std::fs::write(folder.path().join("generation_config.json"), r#"{"eos_token_id": [1, 99999]}"#).unwrap();
    assert!(refusal().contains("99999"));
}

//! Folders with tekken.json and no tokenizer.json, as Mistral publishes them.

mod tokenizer_support;

use std::fs;

use ember_loaders::tokenizer::{SpecialTokens, TokenKind, Tokenizer};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokenizer_support::{cases, differences, fixture, metadata};

/// The fixture's tekken.json after `change`, and these other files.
fn folder(change: impl FnOnce(&mut Value), files: &[(&str, &str)]) -> TempDir {
    let text = fs::read_to_string(fixture("tekken-folder/tekken.json")).unwrap();
    let mut json: Value = serde_json::from_str(&text).unwrap();
    change(&mut json);
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("tekken.json", json.to_string().as_str())].iter().chain(files) {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn refusal(change: impl FnOnce(&mut Value)) -> String {
    Tokenizer::from_folder(folder(change, &[]).path()).expect_err("refused").to_string()
}

#[test]
fn ids_are_ranks_behind_the_special_tokens() {
    let tokenizer = Tokenizer::from_folder(&fixture("tekken-folder")).unwrap();
    assert_eq!(differences(&tokenizer, &cases("tekken")), Vec::<String>::new());
    let from_gguf = Tokenizer::from_metadata(&metadata("tekken")).unwrap();
    assert_eq!(tokenizer.vocab_size(), from_gguf.vocab_size());
    assert!(tokenizer.control_tokens().eq(from_gguf.control_tokens()));
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.add_bos()), (Some(1), Some(2), Some(1)));
    assert_eq!(tokenizer.eog(), [2]);
    // The first 256 ranks are the bytes.
    assert_eq!(tokenizer.encode("a", SpecialTokens::Ignore).unwrap(), [24 + u32::from(b'a')]);
}

#[test]
fn the_files_own_expression_and_special_tokens_count() {
    let listed = folder(
        |json| {
            json["config"]["version"] = "v13".into();
            json["config"]["pattern"] = r"\p{L}+|[^\p{L}]+".into();
            json["special_tokens"] = json!([
                {"rank": 0, "token_str": "<unk>", "is_control": true},
                {"rank": 1, "token_str": "<s>", "is_control": true},
                {"rank": 2, "token_str": "</s>", "is_control": true},
                {"rank": 20, "token_str": "[THINK]", "is_control": true}]);
        },
        &[
            ("chat_template.jinja", "{{ messages }}"),
            ("generation_config.json", r#"{"eos_token_id": [2, 20]}"#),
        ],
    );
    let tokenizer = Tokenizer::from_folder(listed.path()).unwrap();
    assert_eq!(tokenizer.token_id("[THINK]"), Some(20));
    assert_eq!(tokenizer.id_to_token(3), Some("<SPECIAL_3>"));
    assert_eq!(tokenizer.kind(3), Some(TokenKind::Control));
    assert_eq!(
        (tokenizer.chat_template(None), tokenizer.eog()),
        (Some("{{ messages }}"), [2, 20].as_slice())
    );
    assert!(!differences(&tokenizer, &cases("tekken")).is_empty());
}

/// Ranks beyond the vocabulary's size are listed, but are no tokens of the model.
#[test]
fn the_vocabulary_ends_where_its_size_says() {
    let shorter = folder(|json| json["config"]["default_vocab_size"] = 300.into(), &[]);
    let tokenizer = Tokenizer::from_folder(shorter.path()).unwrap();
    assert_eq!(tokenizer.vocab_size(), 300);
    let ids = tokenizer.encode("The quick brown fox", SpecialTokens::Ignore).unwrap();
    assert!(ids.iter().all(|&id| id < 300));
    assert_eq!(tokenizer.decode(&ids, false), "The quick brown fox");
}

#[test]
fn tokenizer_json_goes_first() {
    let qwen = fs::read_to_string(fixture("qwen3-folder/tokenizer.json")).unwrap();
    let tokenizer = Tokenizer::from_folder(folder(|_| (), &[("tokenizer.json", &qwen)]).path()).unwrap();
    assert_eq!(differences(&tokenizer, &cases("qwen2")), Vec::<String>::new());
}

/// ChatML fine-tunes of Nemo add their markers at the end, as user-defined tokens: no piece of text may take them apart.
#[test]
fn markers_that_a_fine_tune_adds_are_found_whole() {
    let mut metadata = metadata("tekken");
    let mut tokens = metadata.str_array("tokenizer.ggml.tokens").unwrap().to_vec();
    let mut kinds: Vec<i64> = metadata.int_array("tokenizer.ggml.token_type").unwrap();
    let first = tokens.len() as u32;
    tokens.extend(["<|im_start|>", "<|im_end|>", "<note>"].map(str::to_owned));
    kinds.extend([4, 4, 4]);
    metadata.insert("tokenizer.ggml.tokens", tokens);
    metadata.insert("tokenizer.ggml.token_type", kinds);
    let tokenizer = Tokenizer::from_metadata(&metadata).unwrap();
    let ids = tokenizer.encode("<|im_start|>user\nhi<note><|im_end|>", SpecialTokens::Parse).unwrap();
    let added: Vec<u32> = ids.into_iter().filter(|&id| id >= first).collect();
    assert_eq!(added, [first, first + 2, first + 1]);
    assert_eq!(tokenizer.eog(), [2, first + 1]);
}

#[test]
fn files_that_do_not_hold_together_are_refused() {
    for (change, message) in [
        (
            (|json| json["vocab"][5]["token_bytes"] = "*".into()) as fn(&mut Value),
            "token of rank 5 is not base64",
        ),
        (|json| json["vocab"][5]["token_bytes"] = "".into(), "token of rank 5 is not base64"),
        (|json| json["vocab"][5]["rank"] = 6.into(), "there is no token of rank 5"),
        (
            |json| json["vocab"][6]["token_bytes"] = json["vocab"][5]["token_bytes"].clone(),
            "have the same text",
        ),
        (|json| json["config"]["default_vocab_size"] = 999_999.into(), "does not fit the"),
        (|json| json["config"]["default_vocab_size"] = 1.into(), "does not fit the"),
        (
            |json| json["config"]["default_num_special_tokens"] = u64::MAX.into(),
            "are more than the vocabulary's",
        ),
        (|json| json["config"]["default_num_special_tokens"] = 4.into(), "has rank 4, but there are only 4"),
        (|json| json["config"]["version"] = "v13".into(), "special_tokens is missing"),
        (|json| json["config"]["pattern"] = "(".into(), "does not compile"),
        (|json| json["config"] = Value::Null, "tekken.json: invalid type: null"),
    ] {
        let refused = refusal(change);
        assert!(refused.contains(message), "{message}: {refused}");
    }
}

#[test]
fn a_folder_without_a_vocabulary_says_what_is_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    let refused = Tokenizer::from_folder(folder.path()).unwrap_err().to_string();
    assert!(refused.contains("has no tokenizer.json, tekken.json or tokenizer.model"), "{refused}");
}

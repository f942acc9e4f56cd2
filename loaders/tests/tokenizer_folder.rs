//! Hugging Face folders: what the files beside tokenizer.json say, and what is set right.

use std::fs;
use std::path::{Path, PathBuf};

use ember_loaders::gguf::Gguf;
use ember_loaders::tokenizer::{SpecialTokens, Tokenizer};
use serde_json::{Value, json};
use tempfile::TempDir;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizer").join(name)
}

/// The Qwen3 folder's tokenizer.json after `change`, and these other files.
fn folder(change: impl FnOnce(&mut Value), files: &[(&str, &str)]) -> TempDir {
    let text = fs::read_to_string(fixture("qwen3-folder/tokenizer.json")).unwrap();
    let mut json: Value = serde_json::from_str(&text).unwrap();
    change(&mut json);
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("additional_chat_templates")).unwrap();
    for (name, text) in [("tokenizer.json", json.to_string().as_str())].iter().chain(files) {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

#[test]
fn tokenizer_json_is_enough() {
    let folder = folder(|_| (), &[]);
    let tokenizer = Tokenizer::from_folder(folder.path()).unwrap();
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.add_bos()), (None, None, None));
    assert_eq!(tokenizer.chat_template(None), None);
    // Known by their texts.
    assert_eq!(tokenizer.eog().len(), 2);
}

/// transformers 5.24: `PreTrainedTokenizerBase._from_pretrained` and `ProcessorMixin.get_processor_dict`.
#[test]
fn templates_come_from_where_transformers_takes_them() {
    let template = |files: &[(&str, &str)], name: Option<&str>| {
        let tokenizer = Tokenizer::from_folder(folder(|_| (), files).path()).unwrap();
        tokenizer.chat_template(name).map(str::to_owned)
    };
    let tools = Some("tool_use");
    let config = (
        "tokenizer_config.json",
        r#"{"chat_template": [
        {"name": "default", "template": "old"}, {"name": "tool_use", "template": "tools"}]}"#,
    );
    let one = ("tokenizer_config.json", r#"{"chat_template": "one"}"#);
    let jinja = ("chat_template.jinja", "new");
    let rag = ("additional_chat_templates/rag.jinja", "rag");
    let processor = [
        ("chat_template.json", r#"{"chat_template": "legacy"}"#),
        ("processor_config.json", r#"{"chat_template": "processor", "patch_size": 14}"#),
    ];
    assert_eq!(template(&[one], None).as_deref(), Some("one"));
    assert_eq!(template(&[config], None).as_deref(), Some("old"));
    assert_eq!(template(&[config], tools).as_deref(), Some("tools"));
    // A file of its own replaces all that tokenizer_config.json says.
    assert_eq!(template(&[config, jinja, rag], None).as_deref(), Some("new"));
    assert_eq!(template(&[config, jinja, rag], Some("rag")).as_deref(), Some("rag"));
    assert_eq!(template(&[config, jinja, rag], tools), None);
    assert_eq!(template(&[config, rag], None), None);
    // A processor's files say what nothing else does.
    assert_eq!(template(&processor, None).as_deref(), Some("legacy"));
    assert_eq!(template(&processor[1..], None).as_deref(), Some("processor"));
    for other in [config, one, jinja] {
        let files = [&[other], &processor[..]].concat();
        assert_eq!(template(&files, None), template(&[other], None), "{other:?}");
    }
}

#[test]
fn bos_is_added_where_any_of_the_files_says_so() {
    let template = |json: &mut Value| {
        json["post_processor"] = json!({"type": "Sequence", "processors": [
            {"type": "ByteLevel"},
            {"type": "TemplateProcessing", "single": [
                {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]}]});
    };
    let add_bos = |change: fn(&mut Value), config: &str| {
        let folder = folder(change, &[("tokenizer_config.json", config)]);
        Tokenizer::from_folder(folder.path()).unwrap().add_bos().is_some()
    };
    assert!(add_bos(template, r#"{"bos_token": {"content": "<|im_start|>"}}"#));
    assert!(!add_bos(template, r#"{"bos_token": "<|im_start|>", "add_bos_token": false}"#));
    assert!(!add_bos(template, r#"{"bos_token": "<|endoftext|>"}"#));
    assert!(!add_bos(|_| (), r#"{"bos_token": "<|im_start|>"}"#));
    assert!(add_bos(|_| (), r#"{"bos_token": "<|im_start|>", "add_bos_token": true}"#));
}

#[test]
fn every_end_of_generation_config_counts() {
    for (config, ends) in [(r#"{"eos_token_id": 7}"#, 3), (r#"{"eos_token_id": [7, 8, 9]}"#, 5), ("{}", 2)] {
        let folder = folder(|_| (), &[("generation_config.json", config)]);
        assert_eq!(Tokenizer::from_folder(folder.path()).unwrap().eog().len(), ends);
    }
}

/// Mistral's folders of 2025 hold Llama 3's expression; with it the ids would not be those of the training.
#[test]
fn the_wrong_expression_of_mistral_folders_is_set_right() {
    let gguf = Gguf::open(fixture("tekken.gguf")).unwrap();
    let metadata = gguf.metadata();
    let tokens = metadata.str_array("tokenizer.ggml.tokens").unwrap();
    let special: Vec<Value> =
        (0..24).map(|id| json!({"id": id, "content": tokens[id], "special": true})).collect();
    let vocab: serde_json::Map<String, Value> =
        tokens.iter().enumerate().map(|(id, text)| (text.clone(), id.into())).collect();
    let merges = metadata.str_array("tokenizer.ggml.merges").unwrap();
    let llama3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let folder = folder(
        |json| {
            json["model"] = json!({"type": "BPE", "ignore_merges": true, "vocab": vocab, "merges": merges});
            json["normalizer"] = Value::Null;
            json["added_tokens"] = special.into();
            json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = llama3.into();
        },
        &[],
    );
    let (fixed, right) =
        (Tokenizer::from_folder(folder.path()).unwrap(), Tokenizer::from_gguf(&gguf).unwrap());
    let text = "รั ภาษาไทย नमस्ते cafe\u{301} parseJSON";
    let encode = |tokenizer: &Tokenizer| tokenizer.encode(text, SpecialTokens::Ignore).unwrap();
    assert_eq!(encode(&fixed), encode(&right));
    let mut wrong = metadata.clone();
    wrong.insert("tokenizer.ggml.pre", "llama-bpe".to_owned());
    assert_ne!(encode(&Tokenizer::from_metadata(&wrong).unwrap()), encode(&right));
}

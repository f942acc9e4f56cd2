//! The names that files give their pre-tokenizer: several for each rule.

mod tokenizer_support;

use ember_loaders::tokenizer::{SpecialTokens, Tokenizer, TokenizerError};
use tokenizer_support::{cases, differences, metadata};

/// The tokenizer of a family's fixture under another name, without the key that says whether BOS comes first.
fn renamed(family: &str, name: &str) -> Result<Tokenizer, TokenizerError> {
    let mut other = ember_loaders::gguf::Metadata::new("renamed.gguf");
    for (key, value) in metadata(family).iter().filter(|(key, _)| *key != "tokenizer.ggml.add_bos_token") {
        other.insert(key, value.clone());
    }
    other.insert("tokenizer.ggml.pre", name.to_owned());
    Tokenizer::from_metadata(&other)
}

#[test]
fn other_names_of_a_rule_give_the_same_ids() {
    for (family, names) in [
        ("qwen2", ["deepseek-r1-qwen", "f2llmv2"].as_slice()),
        ("tekken", &["pixtral"]),
        ("llama-bpe", &["llama3", "llama-v3", "falcon3", "falcon-h1", "lfm2", "midm-2.0", "jina-v5-nano"]),
        ("smollm", &["starcoder", "refact", "codeshell", "minerva-7b", "mellum2"]),
        ("gpt-2", &["phi-2", "jais", "trillion", "gigachat", "mellum", "a.x-4.0", "granite-docling"]),
    ] {
        let own = renamed(family, family).unwrap();
        for name in names {
            let tokenizer = renamed(family, name).unwrap();
            assert_eq!(differences(&tokenizer, &cases(family)), Vec::<String>::new(), "{name}");
            assert_eq!((tokenizer.add_bos(), tokenizer.eog()), (own.add_bos(), own.eog()), "{name}");
        }
    }
}

/// Qwen's expression without its composition of characters.
#[test]
fn characters_are_composed_only_where_the_tokenizer_does_it() {
    for name in ["megrez", "kormo"] {
        let tokenizer = renamed("qwen2", name).unwrap();
        let plain: Vec<_> = cases("qwen2").into_iter().filter(|case| case.text.is_ascii()).collect();
        assert!(plain.len() >= 10);
        assert_eq!(differences(&tokenizer, &plain), Vec::<String>::new(), "{name}");
        let ids = tokenizer.encode("cafe\u{301}", SpecialTokens::Ignore).unwrap();
        assert_eq!(tokenizer.decode(&ids, false), "cafe\u{301}", "{name}");
    }
}

#[test]
fn names_of_other_rules_are_refused() {
    // Of these, some differ in one class of characters only.
    for name in ["qwen35", "gpt-4o", "deepseek-v3", "dbrx", "command-r", "default", "superbpe", "Qwen2"] {
        let message = renamed("qwen2", name).unwrap_err().to_string();
        let expected = format!(
            "pre-tokenizer \"{name}\" (tokenizer.ggml.pre) is not known; the accepted ones are qwen2, "
        );
        assert!(message.starts_with(&expected), "{message}");
    }
}

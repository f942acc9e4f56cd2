//! generation_config.json of a Hugging Face folder as the source of sampling settings.
use ember::sampling::{SamplingOptions, Thinking};
use ember::{AnswerOptions, Error};
use ember_loaders::checkpoint::Checkpoint;
use std::path::{Path, PathBuf};

/// The folder of the fixture qwen3-untied, with this generation_config.json.
fn folder(name: &str, generation_config: &str) -> PathBuf {
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()));
    std::fs::create_dir_all(&to).expect("a scratch folder");
    let from = ember_test_support::fixture("models/qwen3-untied/hf");
    for entry in std::fs::read_dir(from).expect("a committed fixture") {
        let entry = entry.expect("a readable folder");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("room for a tiny model");
    }
    std::fs::write(to.join("generation_config.json"), generation_config).expect("room for a tiny file");
    to
}

fn settings(name: &str, generation_config: &str, asked: SamplingOptions) -> String {
    let checkpoint = Checkpoint::open(folder(name, generation_config)).expect("a whole folder");
    let options =
        AnswerOptions { sampling: SamplingOptions { seed: Some(7), ..asked }, ..Default::default() };
    let settings = options.resolve(&checkpoint).expect("settings within their ranges");
    settings.sampling(Thinking::On).to_string()
}

#[test]
fn its_settings_count_and_flags_win() {
    // Qwen3's own, with keys that are no settings of ours.
    let qwen3 = r#"{"bos_token_id": 1, "do_sample": true, "eos_token_id": [2, 0], "pad_token_id": 1,
        "temperature": 0.5, "top_k": 30, "top_p": 0.9, "transformers_version": "4.51.0"}"#;
    assert_eq!(
        settings("qwen3", qwen3, SamplingOptions::default()),
        "temperature 0.5 (file), top_k 30 (file), top_p 0.9 (file), min_p 0 (card), seed 7"
    );
    let asked = SamplingOptions { temperature: Some(0.9), min_p: Some(0.1), ..SamplingOptions::default() };
    assert_eq!(
        settings("asked", qwen3, asked),
        "temperature 0.9 (request), top_k 30 (file), top_p 0.9 (file), min_p 0.1 (request), seed 7"
    );
}

#[test]
fn its_keys_mean_what_transformers_means() {
    for (name, config, expected) in [
        ("greedy", r#"{"do_sample": false, "temperature": 0.5}"#, "greedy (file)"),
        (
            "sampled",
            r#"{"do_sample": true, "top_k": 5, "top_p": 1, "min_p": null}"#,
            "temperature 1 (file), top_k 5 (file), top_p 1 (file), min_p 0 (card), seed 7",
        ),
        (
            "warm",
            r#"{"temperature": 0.6, "typical_p": 0.5}"#,
            "temperature 0.6 (file), top_k 20 (card), top_p 0.95 (card), min_p 0 (card), typical_p 0.5 (file), seed 7",
        ),
        // Over the whole text, without a window.
        (
            "penalty",
            r#"{"do_sample": false, "repetition_penalty": 1.25}"#,
            "greedy (file), repeat_penalty 1.25 (file), repeat_last_n -1 (file)",
        ),
        ("empty", "{}", "temperature 0.6 (card), top_k 20 (card), top_p 0.95 (card), min_p 0 (card), seed 7"),
    ] {
        assert_eq!(settings(name, config, SamplingOptions::default()), expected, "{config}");
    }
}

#[test]
fn a_malformed_one_is_refused_by_file_and_key() {
    for (name, config, parts) in [
        ("type", r#"{"temperature": "hot"}"#, ["generation_config.json: temperature", "must be a number"]),
        ("int", r#"{"top_k": 2.5}"#, ["generation_config.json: top_k", "must be a whole number"]),
        ("large", r#"{"top_p": 1e99}"#, ["generation_config.json: top_p", "too large"]),
        ("bool", r#"{"do_sample": 1}"#, ["generation_config.json: do_sample", "true or false"]),
        ("eos", r#"{"eos_token_id": [2, -1]}"#, ["generation_config.json: eos_token_id", "a list of them"]),
        ("list", "[]", ["generation_config.json", "invalid type"]),
        ("json", "{", ["generation_config.json", "EOF"]),
    ] {
        let error = Checkpoint::open(folder(name, config)).map(drop).expect_err(config).to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    let checkpoint = Checkpoint::open(folder("range", r#"{"top_p": 1.5}"#)).expect("a number");
    let error = AnswerOptions::default().resolve(&checkpoint).map(drop).expect_err("out of range");
    assert!(matches!(error, Error::FileSetting { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("generation_config.json: top_p is 1.5: it must be between 0 and 1"), "{text}");
}

//! The commands that run a model: run, chat, logits.
mod cli_support;

use cli_support::{Ran, ember, ember_with, finish, model, scratch, spawn};
use ember_test_support::{Reference, TensorFile, max_relative_by_row};
use serde_json::Value;
use std::io::Read;

/// Tokens of qwen3-tied that the tests keep out of its text, which is noise: the ends of generation, and the bytes that
/// are no printable ASCII.
fn banned() -> impl Iterator<Item = usize> {
    (0..3).chain(97..223).chain(224..259)
}

/// Runs `COMMAND -m qwen3-tied ARGS` with the tokens banned.
fn on_qwen(command: &[&str], args: &[&str], input: &str) -> Ran {
    let model = model("qwen3-tied/f32.gguf");
    let bans: Vec<String> = banned().map(|id| format!("--logit-bias={id}:-1000")).collect();
    let bans: Vec<&str> = bans.iter().map(String::as_str).collect();
    ember_with(&[command, &["-m", &model], &bans, args].concat(), input).ok()
}

fn run_json(args: &[&str]) -> Value {
    on_qwen(&["run", "--json"], args, "").json()
}

#[test]
fn json_describes_the_answer() {
    let answer = run_json(&["--max-tokens", "12", "hi"]);
    assert_eq!((&answer["finish_reason"], &answer["limit"]), (&"length".into(), &"max_tokens".into()));
    assert_eq!(answer["prompt_tokens"], 18);
    assert_eq!(answer["cached_tokens"], 0);
    assert_eq!(answer["generated_tokens"], 12);
    assert_eq!(answer["reasoning"], Value::Null);
    assert_eq!(answer["stop_string"], Value::Null);
    assert_eq!(answer["sampling"]["temperature"], 0.0);
    assert!(!answer["text"].as_str().unwrap().is_empty());
    for timing in ["load_ms", "prompt_ms", "prompt_per_second", "generation_ms", "generation_per_second"] {
        assert!(answer["timings"][timing].as_f64().is_some_and(|time| time > 0.0), "{timing}");
    }
}

#[test]
fn the_prompt_may_come_from_anywhere() {
    let file = scratch("prompt.txt");
    std::fs::write(&file, "hi\n").unwrap();
    let dump = |args: &[&str], input| {
        on_qwen(&["run", "--dump-prompt", "--json"], args, input).json()["text"].clone()
    };
    let expected = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(dump(&["hi"], ""), expected);
    assert_eq!(dump(&["-p", "hi"], ""), expected);
    assert_eq!(dump(&["-f", file.to_str().unwrap()], ""), expected);
    assert_eq!(dump(&[], "hi\r\n"), expected);
    assert_eq!(dump(&["-"], "hi"), expected);
}

#[test]
fn streamed_text_equals_the_whole_and_statistics_stay_on_stderr() {
    let args = ["--max-tokens", "20", "hi"];
    let text = run_json(&args)["text"].as_str().unwrap().to_owned();
    let streamed = on_qwen(&["run"], &args, "");
    assert_eq!(streamed.stdout, format!("{text}\n"));
    assert!(streamed.stderr.starts_with("qwen3 \"Qwen3 Tied\", F32, "), "{}", streamed.stderr);
    for line in [
        "prompt: 18 tokens, 0 cached",
        "answer: 20 tokens",
        "sampling: greedy (default), logit_bias of 164 tokens (flag)",
        "warning: the answer is cut off after 20 tokens, as --max-tokens asks",
    ] {
        assert!(streamed.stderr.contains(line), "{line} is not in {}", streamed.stderr);
    }
}

#[test]
fn a_stop_string_ends_the_answer_before_it() {
    let args = ["--max-tokens", "30", "hi"];
    let whole = run_json(&args)["text"].as_str().unwrap().to_owned();
    let stop = &whole[6..9];
    let stopped = run_json(&[&args[..], &["--stop", "never seen", "--stop", stop]].concat());
    assert_eq!(stopped["finish_reason"], "stop");
    assert_eq!(stopped["stop_string"], stop);
    assert_eq!(stopped["text"], whole[..whole.find(stop).unwrap()]);
}

#[test]
fn the_same_seed_gives_the_same_text() {
    let sampled = |seed| run_json(&["--temp", "2", "--seed", seed, "--max-tokens", "40", "hi"]);
    let first = sampled("1");
    assert_eq!(first["sampling"]["seed"], 1);
    assert_eq!(first["text"], sampled("1")["text"]);
    assert_ne!(first["text"], sampled("2")["text"]);
}

#[test]
fn the_prompt_can_be_looked_at() {
    let qwen = model("qwen3-tied/f32.gguf");
    let dump = ember(&["run", "-m", &qwen, "--dump-prompt", "--system", "a", "hi"]).ok();
    let (text, ids) = dump.stdout.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(
        text,
        "<|im_start|>system\na<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    );
    assert!(ids.starts_with("1 85 ") && ids.split(' ').all(|id| id.parse::<u32>().is_ok()), "{ids}");
    assert_eq!(dump.stderr, "");
    let raw = ember(&["run", "-m", &qwen, "--dump-prompt", "--raw", "--json", "a<|im_end|>"]).ok().json();
    assert_eq!(raw, serde_json::json!({"text": "a<|im_end|>", "tokens": [67, 2]}));
}

#[test]
fn a_relabelled_model_is_announced() {
    let run = ember(&["run", "-m", &model("mistral-small-llama/f32.gguf"), "--max-tokens", "2", "hi"]).ok();
    assert!(run.stderr.starts_with("mistral3 "), "{}", run.stderr);
    assert!(run.stderr.contains("\nlabelled llama, served as mistral3\n"), "{}", run.stderr);
}

#[test]
fn every_cache_type_runs() {
    for ty in ["f32", "f16", "bf16", "q8_0"] {
        let answer = run_json(&["--kv-cache-dtype", ty, "--threads", "2", "--max-tokens", "4", "hi"]);
        assert_eq!(answer["prompt_tokens"], 18, "{ty}");
    }
}

/// Runs `ember logits`; the tokens, and one row of 288 logits per token.
fn logits(name: &str, args: &[&str]) -> (Vec<u32>, Vec<f32>) {
    let out = scratch(&format!("{name}.safetensors"));
    ember(&[&["logits", "--out", out.to_str().unwrap()], args].concat()).ok();
    let file = TensorFile::open(&out);
    let tokens = file.ids("tokens");
    assert_eq!(file.shape("logits"), [tokens.len(), 288]);
    (tokens, file.f32("logits"))
}

#[test]
fn logits_equal_those_of_transformers() {
    for name in ["qwen3-tied", "llama", "ministral3-short", "qwen2"] {
        let reference = Reference::open(model(&format!("{name}/reference.safetensors")));
        let ids: Vec<String> = reference.tokens.iter().map(u32::to_string).collect();
        let file = model(&format!("{name}/f32.gguf"));
        let (tokens, actual) = logits(name, &["-m", &file, "--tokens", &ids.join(",")]);
        assert_eq!(tokens, reference.tokens);
        let error = max_relative_by_row(&actual, &reference.logits, 288);
        assert!(error <= 1e-4, "{name}: {error}");
    }
}

/// The errors that models/tests/golden.rs allows each type: one type in the place of another is outside of them.
#[test]
fn every_cache_type_is_the_one_asked_for() {
    let reference = Reference::open(model("qwen3-tied/reference.safetensors"));
    let ids: Vec<String> = reference.tokens.iter().map(u32::to_string).collect();
    let file = model("qwen3-tied/f32.gguf");
    for (ty, allowed) in
        [("f32", 0.0..1e-5), ("f16", 4e-4..9e-4), ("bf16", 4e-3..9e-3), ("q8_0", 1e-2..2.4e-2)]
    {
        let args = ["-m", &file, "--kv-cache-dtype", ty, "--tokens", &ids.join(",")];
        let error = max_relative_by_row(&logits(ty, &args).1, &reference.logits, 288);
        assert!(allowed.contains(&error), "{ty}: {error:.2e}");
    }
}

#[test]
fn the_first_greedy_token_is_the_likeliest_of_the_logits() {
    let (qwen, prompt) = (model("qwen3-tied/f32.gguf"), "is the end of it");
    let (tokens, logits) = logits("greedy", &["-m", &qwen, "--prompt", prompt]);
    assert_eq!(tokens, [273, 264, 223, 270, 70, 282, 223, 274]);
    let last = logits.rchunks(288).next().unwrap();
    let best = (0..last.len())
        .filter(|&id| banned().all(|banned| banned != id))
        .max_by(|&a, &b| last[a].total_cmp(&last[b]))
        .unwrap()
        .to_string();
    let expected = ember(&["detokenize", "-m", &qwen, &best]).ok().stdout;
    let args = ["--raw", "--kv-cache-dtype", "f32", "--max-tokens", "1", prompt];
    assert_eq!(run_json(&args)["text"], expected);
}

#[test]
fn no_partial_logits_file_is_left() {
    let out = scratch("refused.safetensors");
    let path = out.to_str().unwrap();
    let run = ember(&["logits", "-m", &model("qwen2/f32.gguf"), "--out", path, "--tokens", "1,288"]);
    assert_eq!(run.status, 1);
    assert!(run.stderr.contains("token id 288 is outside the vocabulary"), "{}", run.stderr);
    assert!(!out.exists());
}

fn chat(input: &str) -> Ran {
    on_qwen(&["chat"], &["--max-tokens", "10"], input)
}

fn saved(path: &std::path::Path) -> Vec<Value> {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn a_chat_keeps_its_conversation_and_reuses_it() {
    let file = scratch("chat.json");
    let run = chat(&format!("hi\nand\\\nthen\n/regen\n/save {}\n", file.display()));
    let messages = saved(&file);
    let roles: Vec<_> = messages.iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant"]);
    assert_eq!((&messages[0]["content"], &messages[2]["content"]), (&"hi".into(), &"and\nthen".into()));
    let alone = run_json(&["--max-tokens", "10", "hi"]);
    assert_eq!(messages[1]["content"], alone["text"], "the first answer is that of `ember run`");
    let cached: Vec<usize> = run.stderr.lines().filter_map(cached_tokens).collect();
    assert_eq!(cached.len(), 3, "{}", run.stderr);
    assert_eq!(cached[0], 0);
    assert!(cached[1] >= 18, "the first turn's prompt was run again: {}", run.stderr);
    let prompt_of_second: usize = prompt_tokens(&run.stderr, 1);
    assert_eq!(cached[2], prompt_of_second - 1, "the second turn's prompt was run again by /regen");
}

fn cached_tokens(line: &str) -> Option<usize> {
    line.split_once("[prompt ")?.1.split_once("tokens, ")?.1.split_once(" cached")?.0.parse().ok()
}

fn prompt_tokens(stderr: &str, turn: usize) -> usize {
    let line = stderr.lines().filter(|line| line.contains("[prompt ")).nth(turn).unwrap();
    line.split_once("[prompt ").unwrap().1.split_once(' ').unwrap().0.parse().unwrap()
}

#[test]
fn chat_commands_act() {
    let file = scratch("commands.json");
    let run = chat(&format!(
        "/system be brief\nhi\n/reset\n/set max_tokens 3\n\"\"\"\nline 1\n\nline 2\n\"\"\"\n/save {}\n/info\n/exit\nnot sent\n",
        file.display()
    ));
    let messages = saved(&file);
    assert_eq!(messages.len(), 3, "reset keeps the system message only");
    assert_eq!((&messages[0]["role"], &messages[0]["content"]), (&"system".into(), &"be brief".into()));
    assert_eq!(messages[1]["content"], "line 1\n\nline 2");
    assert!(run.stderr.contains("answer 3 tokens"), "{}", run.stderr);
    assert!(run.stderr.contains("max-tokens: 3\n"), "{}", run.stderr);
    assert!(run.stderr.contains(" of 4096 tokens in use, 2 messages"), "{}", run.stderr);
}

#[test]
fn chat_mistakes_do_not_end_the_program() {
    let run = chat("/fly\n/think on\n/set temp hot\n/regen\n/save\nhi\n");
    for message in [
        "error: there is no command /fly",
        "has no switch (enable_thinking)",
        "error: invalid value 'hot' for '--temp <T>'",
        "error: there is no answer yet",
        "error: /save needs a file name",
        "answer 10 tokens",
    ] {
        assert!(run.stderr.contains(message), "{message} is not in {}", run.stderr);
    }
}

/// A generation of minutes, on the model with the longest context.
fn start_long_run() -> std::process::Child {
    let ministral = model("ministral3/f32.gguf");
    // Token 2 would end the answer.
    let endless = ["--no-loop-check", "--logit-bias", "2:-1000"];
    let args = ["run", "-m", &ministral, "--ctx-size", "200000", "--raw", "hi"];
    let mut child = spawn(&[&args[..], &endless].concat());
    drop(child.stdin.take());
    child
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_the_answer_with_its_statistics() {
    let mut child = start_long_run();
    let mut first = [0; 1];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let run = finish(child);
    assert_eq!(run.status, 130, "{}", run.stderr);
    assert!(run.stderr.ends_with("stopped: interrupted\n"), "{}", run.stderr);
}

#[test]
fn a_reader_that_leaves_ends_the_run_quietly() {
    let mut child = start_long_run();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 1]).unwrap();
    drop(stdout);
    let run = finish(child);
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(!run.stderr.contains("error") && !run.stderr.contains("panicked"), "{}", run.stderr);
}

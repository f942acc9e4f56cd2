//! The end of an answer and its settings on the command line, on models whose every answer is known.
mod cli_support;

use cli_support::{ember, ember_with, scratch};
use ember_test_support::Scripted;
use serde_json::Value;

/// Writes a model's file; its path.
fn file(name: &str, script: &Scripted) -> String {
    script.write(scratch(name)).to_str().expect("a UTF-8 path").to_owned()
}

/// After `a`, a cycle of `cycle` words for ever; its template is the messages as they are.
fn cycle_of(cycle: u32) -> Scripted {
    let words: Vec<u32> = (Scripted::WORD..Scripted::WORD + cycle).collect();
    let chain = [&[Scripted::byte(b'a')], &words[..], &words[..1]].concat();
    Scripted::new("llama").walk(&chain).template("{% for m in messages %}{{ m.content }}{% endfor %}")
}

/// `x` or `y`, equally likely, after everything.
fn x_or_y() -> Scripted {
    let [a, x, y] = [b'a', b'x', b'y'].map(Scripted::byte);
    [a, x, y].into_iter().fold(Scripted::new("llama"), |s, from| s.logit(from, x, 30.0).logit(from, y, 30.0))
}

#[test]
fn words_of_the_prompt_are_not_punished_for_their_presence() {
    let [a, e, z] = [b'a', b'e', b'z'].map(Scripted::byte);
    let script = [a, e, z]
        .into_iter()
        .fold(Scripted::new("llama"), |s, from| s.logit(from, a, 2.5).logit(from, z, 1.0));
    let model = file("apple.gguf", &script);
    let answer = |penalty: &str| {
        ember(&["run", "-m", &model, "--raw", "apple apple apple", "--max-tokens", "2", penalty]).ok().stdout
    };
    assert_eq!(answer("--presence-penalty=0"), "aa\n");
    assert_eq!(answer("--presence-penalty=2"), "az\n");
    assert_eq!(answer("--frequency-penalty=2"), "az\n");
    assert_eq!(answer("--repeat-penalty=4"), "za\n", "this one counts the prompt");
}

#[test]
fn a_cut_answer_says_so() {
    let model = file("cut.gguf", &cycle_of(65).set("context_length", 35_u32));
    let run = |args: &[&str]| ember(&[&["run", "-m", &model, "--raw", "a"], args].concat()).ok();
    let limit = ["--max-tokens", "7"];
    let by_context =
        "\nwarning: the answer is cut off after 35 tokens: the context of 35 tokens is full (--ctx-size)\n";
    let by_limit = "\nwarning: the answer is cut off after 7 tokens, as --max-tokens asks\n";
    for (args, stderr, limit) in [(&[][..], by_context, "context"), (&limit, by_limit, "max_tokens")] {
        let plain = run(args);
        assert!(plain.stderr.ends_with(stderr), "{}", plain.stderr);
        let json = run(&[args, &["--json"]].concat());
        assert!(json.stderr.ends_with(stderr), "{}", json.stderr);
        let json = json.json();
        assert_eq!((&json["finish_reason"], &json["limit"]), (&"length".into(), &limit.into()));
    }
    let chat = ember_with(&["chat", "-m", &model, "--max-tokens", "7"], "a\n").ok();
    assert!(chat.stderr.contains(by_limit), "{}", chat.stderr);
}

#[test]
fn a_whole_answer_says_so_too() {
    let words: Vec<u32> = (Scripted::WORD..Scripted::WORD + 120).collect();
    let chain = [&[Scripted::byte(b'a')], &words[..], &[Scripted::END]].concat();
    let model = file("whole.gguf", &Scripted::new("llama").walk(&chain));
    let run = ember(&["run", "-m", &model, "--raw", "a", "--json"]).ok();
    assert!(run.stderr.ends_with("\nstopped: the model ended its answer\n"), "{}", run.stderr);
    let json = run.json();
    assert_eq!((&json["finish_reason"], &json["limit"]), (&"stop".into(), &Value::Null));
    assert_eq!(json["generated_tokens"], 120);
}

#[test]
fn an_endless_repetition_ends_an_answer() {
    let model = file("loop.gguf", &cycle_of(3).set("context_length", 1200_u32));
    let run = |args: &[&str]| ember(&[&["run", "-m", &model, "--raw", "a", "--json"], args].concat()).ok();
    let looped = run(&[]);
    let warning = "\nwarning: the answer is ended after 1024 tokens: it repeated the same 3 tokens for the last 1024 \
                   of them (--no-loop-check lets it go on)\n";
    assert!(looped.stderr.ends_with(warning), "{}", looped.stderr);
    let json = looped.json();
    assert_eq!((&json["finish_reason"], &json["limit"]), (&"repetition".into(), &Value::Null));
    assert_eq!(json["generated_tokens"], 1024);
    let unchecked = run(&["--no-loop-check"]).json();
    assert_eq!((&unchecked["finish_reason"], &unchecked["limit"]), (&"length".into(), &"context".into()));
    let chat = ember_with(
        &["chat", "-m", &model, "--max-tokens", "1025"],
        "a\n/reset\n/set no-loop-check true\na\n",
    );
    let stderr = chat.ok().stderr;
    assert!(stderr.contains(warning) && stderr.contains("cut off after 1025 tokens"), "{stderr}");
}

#[test]
fn the_seed_and_the_source_of_each_setting_are_reported() {
    let model = file("seed.gguf", &x_or_y().key("general.sampling.top_k", 3_i32));
    let run = |args: &[&str]| {
        let limits = ["--raw", "a", "--max-tokens", "60", "--temp", "1", "--json"];
        ember(&[&["run", "-m", &model], &limits[..], args].concat()).ok()
    };
    let first = run(&[]);
    let json = first.json();
    let seed = json["sampling"]["seed"].to_string();
    assert!(
        first.stderr.contains(&format!("sampling: temperature 1 (flag), top_k 3 (file), seed {seed}\n")),
        "{}",
        first.stderr
    );
    let sources = &json["sampling_sources"];
    assert_eq!((&sources["temperature"], &sources["top_k"]), (&"flag".into(), &"file".into()));
    assert_eq!(sources["min_p"], "default");
    assert_eq!(run(&["--seed", &seed]).json()["text"], json["text"]);
    assert_ne!(run(&[]).json()["text"], json["text"], "another seed each time");
}

#[test]
fn qwen3_does_not_think_greedily_unless_it_is_told_to() {
    let template = include_str!("fixtures/chat/templates/Qwen-Qwen3-0.6B.jinja");
    let script = Scripted::new("qwen3").template(template).logit(Scripted::byte(b'\n'), Scripted::END, 100.0);
    let model = file("card.gguf", &script);
    let sampling = |args: &[&str]| {
        let stderr = ember(&[&["run", "-m", &model, "--seed", "5", "hi"], args].concat()).ok().stderr;
        stderr
            .lines()
            .find_map(|line| line.strip_prefix("sampling: "))
            .expect("a line of settings")
            .to_owned()
    };
    assert_eq!(
        sampling(&[]),
        "temperature 0.6 (card), top_k 20 (card), top_p 0.95 (card), min_p 0 (card), seed 5"
    );
    assert_eq!(
        sampling(&["--no-think", "--top-k", "7"]),
        "temperature 0.7 (card), top_k 7 (flag), top_p 0.8 (card), min_p 0 (card), seed 5"
    );
    assert_eq!(sampling(&["--temp", "0"]), "greedy (flag)");
    let chat =
        ember_with(&["chat", "-m", &model, "--seed", "5"], "/set\n/think off\n/set\n/set temp 1\n").ok();
    for settings in [
        "sampling: temperature 0.6 (card), ",
        "sampling: temperature 0.7 (card), ",
        "(flag), top_k 20 (card), ",
    ] {
        assert!(chat.stderr.contains(settings), "{settings} is not in {}", chat.stderr);
    }
    assert!(chat.stderr.contains("max-tokens: what is left of the context\n"), "{}", chat.stderr);
}

/// As Qwen documents it for the YaRN of Qwen3.
fn qwen3_yarn() -> Scripted {
    Scripted::new("qwen3")
        .set("context_length", 40960_u32)
        .set("rope.scaling.type", "yarn")
        .set("rope.scaling.factor", 4.0_f32)
        .set("rope.scaling.original_context_length", 32768_u32)
        .logit(Scripted::byte(b'a'), Scripted::END, 100.0)
}

#[test]
fn yarn_allows_a_longer_context_than_the_stated_one() {
    let model = file("yarn.gguf", &qwen3_yarn());
    let run = |size: &str| ember(&["run", "-m", &model, "--ctx-size", size, "--raw", "a"]);
    for size in ["100000", "131072"] {
        let stderr = run(size).ok().stderr;
        assert!(stderr.contains(&format!("context {size} of 131072")), "{stderr}");
    }
    let refused = run("131073");
    assert_eq!(refused.status, 1);
    assert_eq!(
        refused.stderr,
        "error: a context of 131073 tokens is beyond the 131072 that the model allows (its context length is \
         40960, and YaRN stretches 32768 by 4 to 131072): lower --ctx-size\n"
    );
    let plain = file("plain.gguf", &Scripted::new("qwen3"));
    let refused = ember(&["run", "-m", &plain, "--ctx-size", "4097", "--raw", "a"]);
    assert_eq!(
        refused.stderr,
        "error: a context of 4097 tokens is beyond the 4096 that the model allows: lower --ctx-size\n"
    );
}

#[test]
fn broken_numbers_are_traced_to_their_layer() {
    let script = Scripted::new("llama").layers(3);
    let names = ["ffn_gate", "ffn_up", "ffn_down"];
    let script = names.iter().fold(script, |script, name| script.fill(&format!("blk.1.{name}.weight"), 3e38));
    let (model, out) = (file("broken.gguf", &script), scratch("broken.safetensors"));
    let out = out.to_str().expect("a UTF-8 path");
    let run = ["run", "-m", &model, "--raw", "ab"];
    let chat = ["chat", "-m", &model];
    let logits = ["logits", "-m", &model, "--prompt", "ab", "--out", out];
    let bench = ["bench", "-m", &model, "-p", "2", "-n", "1", "-r", "1"];
    for command in [&run[..], &chat, &logits, &bench] {
        let stderr = |args: &[&str]| ember_with(&[command, args].concat(), "ab\n").stderr;
        let plain = stderr(&[]);
        assert!(
            plain.contains("values overflow: --check-finite names the layer where it begins\n"),
            "{plain}"
        );
        let checked = stderr(&["--check-finite"]);
        assert!(checked.contains("error: layer 1 (feed-forward output): the first value that"), "{checked}");
    }
    assert!(!std::path::Path::new(out).exists());
}

#[test]
fn the_help_says_what_counts() {
    let help = ember(&["run", "--help"]).ok().stdout;
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "[default: what is left of the context]",
        "the prompt does not count, reasoning does",
        "recent tokens, of the prompt too, by R",
        "--no-loop-check",
    ] {
        assert!(words.contains(part), "{part} is not in {help}");
    }
}

//! What commands read: stdin beside a prompt, encodings, paths as they are typed, and settings with escapes.
mod cli_support;
mod vision_support;

use cli_support::{Ran, ember, ember_with, finish, model, scratch, spawn};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use vision_support::{folder, image, with_template};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Runs the binary on a file of these bytes: a pipe that is written to late may have been left by then.
fn on_stdin(args: &[&str], bytes: &[u8]) -> Ran {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let path = scratch(&format!("stdin-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    fs::write(&path, bytes).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ember"));
    command.args(args).stdin(fs::File::open(path).unwrap());
    finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

/// The text of the prompt that `ember run` makes, and stderr.
fn prompt(args: &[&str], input: &str) -> (String, String) {
    content(on_stdin(&run_args(args), input.as_bytes()).ok())
}

fn run_args<'a>(args: &[&'a str]) -> Vec<&'a str> {
    static MODEL: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| model("qwen3-tied/f32.gguf"));
    [&["run", "-m", MODEL.as_str(), "--dump-prompt", "--json"], args].concat()
}

/// The user's message of a dumped prompt, and stderr.
fn content(run: Ran) -> (String, String) {
    let text = run.json()["text"].as_str().unwrap().to_owned();
    let message = text.strip_prefix("<|im_start|>user\n").unwrap();
    let (message, _) = message.split_once("<|im_end|>\n<|im_start|>assistant\n").unwrap();
    (message.to_owned(), run.stderr)
}

#[test]
fn piped_text_follows_the_prompt() {
    let added = |n: usize| format!("stdin: {n} bytes added to the prompt\n");
    let file = folder("stdin").join("question.txt");
    fs::write(&file, "Explain this\n").unwrap();
    for args in [&["Explain this"][..], &["-p", "Explain this"], &["-f", text(&file)]] {
        assert_eq!(prompt(args, "E42\n"), ("Explain this\n\nE42".into(), added(4)));
        assert_eq!(prompt(args, "é\r\n\r\n"), ("Explain this\n\né\r\n".into(), added(6)));
        for nothing in ["", "\n", " \r\n"] {
            assert_eq!(prompt(args, nothing), ("Explain this".into(), String::new()));
        }
    }
    let raw = ember_with(&run_args(&["--raw", "Once"]), "upon").ok().json();
    assert_eq!(raw["text"], "Once\n\nupon");
    for alone in [&[][..], &["-"], &["-f", "-"], &["-p", "-"]] {
        let (message, told) = prompt(alone, "E42\n");
        let expected = if alone == ["-p", "-"] {
            ("-\n\nE42".to_owned(), added(4))
        } else {
            ("E42".into(), String::new())
        };
        assert_eq!((message, told), expected, "{alone:?}");
    }
    let nothing = ember_with(&run_args(&[]), "\n");
    assert_eq!(
        (nothing.status, nothing.stderr.contains("there is no prompt")),
        (2, true),
        "{}",
        nothing.stderr
    );
}

#[test]
fn stdin_without_text_adds_nothing() {
    let with = |stdin: Stdio| {
        let output = Command::new(env!("CARGO_BIN_EXE_ember")).args(run_args(&["hi"])).stdin(stdin).output();
        let output = output.unwrap();
        (String::from_utf8(output.stdout).unwrap().contains("user\\nhi<|im_end|>"), output.stderr)
    };
    assert_eq!(with(Stdio::null()), (true, Vec::new()));
    #[cfg(unix)]
    {
        let closed = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" <&-", env!("CARGO_BIN_EXE_ember")])
            .args(run_args(&["hi"]))
            .output()
            .unwrap();
        assert!(closed.status.success() && closed.stderr.is_empty(), "{closed:?}");
    }
}

#[test]
fn a_loop_keeps_its_list() {
    let list = folder("stdin-list").join("list.txt");
    fs::write(&list, "one\ntwo\n").unwrap();
    let shared = fs::File::open(&list).unwrap();
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ember"));
        let output = command.args(run_args(args)).stdin(shared.try_clone().unwrap()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(run(&["--no-stdin", "hi"]).contains("user\\nhi<|im_end|>"));
    assert!(run(&["-f", "-"]).contains("user\\none\\ntwo<|im_end|>"));
    let refused = ember(&run_args(&["--no-stdin", "-"]));
    assert!(refused.status == 2 && refused.stderr.contains("--no-stdin does not"), "{}", refused.stderr);
    let help = ember(&["run", "--help"]).ok().stdout;
    assert!(help.contains("while read -r line; do ember run -m model.gguf --no-stdin"), "{help}");
    assert!(help.contains("</dev/null"), "{help}");
}

#[test]
fn a_silent_pipe_is_left_after_seconds_unless_it_is_the_prompt() {
    let started = Instant::now();
    let mut beside = spawn(&run_args(&["hi"]));
    let mut alone = spawn(&run_args(&["-f", "-"]));
    let open = beside.stdin.take();
    let (message, told) = content(finish(beside).ok());
    let waited = started.elapsed();
    drop(open);
    assert_eq!(message, "hi");
    assert!(told.starts_with("stdin is open, but nothing came for 3 s: going on without it"), "{told}");
    assert!(waited >= Duration::from_secs(3), "{waited:?}");
    // The other one has waited for as long, and still does.
    alone.stdin.take().unwrap().write_all(b"late").unwrap();
    assert_eq!(content(finish(alone).ok()), ("late".into(), String::new()));
}

const BOM: &str = "\u{feff}";

fn utf16(text: &str) -> Vec<u8> {
    [0xfeff].into_iter().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect()
}

#[test]
fn a_byte_order_mark_is_dropped_and_utf_16_refused() {
    let folder = folder("encodings");
    let qwen = model("qwen2/f32.gguf");
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, bytes).unwrap();
        text(&path).to_owned()
    };
    let (messages, tools) = (r#"[{"role": "user", "content": "hi"}]"#, r#"[{"type": "function"}]"#);
    let marked = |text: &str| format!("{BOM}{text}").into_bytes();
    // Each with what reads it.
    let prompt_file = |bytes: &[u8]| ember(&run_args(&["-f", &write("p.txt", bytes)]));
    let messages_file = |bytes: &[u8]| ember(&["render", "-m", &qwen, &write("m.json", bytes)]);
    let tools_file = |bytes: &[u8]| {
        let (messages, tools) = (write("m.json", messages.as_bytes()), write("t.json", bytes));
        ember(&["render", "-m", &qwen, &messages, "--tools", &tools])
    };
    assert_eq!(content(prompt_file(&marked("hi")).ok()).0, "hi");
    assert_eq!(content(on_stdin(&run_args(&[]), &marked("hi")).ok()).0, "hi");
    assert_eq!(content(on_stdin(&run_args(&["hi"]), &marked("E42")).ok()).0, "hi\n\nE42");
    let plain = messages_file(messages.as_bytes()).ok().stdout;
    assert_eq!(messages_file(&marked(messages)).ok().stdout, plain);
    assert_eq!(on_stdin(&["render", "-m", &qwen, "-"], &marked(messages)).ok().stdout, plain);
    assert_eq!(tools_file(&marked(tools)).stdout, tools_file(tools.as_bytes()).stdout);
    let tokenized = on_stdin(&["tokenize", "-m", &qwen, "--json"], &marked("is")).ok().json();
    assert_eq!(tokenized["tokens"], serde_json::json!([273]));
    let chat = on_stdin(&["chat", "-m", &qwen, "--max-tokens", "1"], &marked("/system be brief\n")).ok();
    assert!(chat.stderr.contains("system: be brief"), "{}", chat.stderr);

    for refused in [
        prompt_file(&utf16("hi")),
        messages_file(&utf16(messages)),
        tools_file(&utf16(tools)),
        on_stdin(&run_args(&["hi"]), &utf16("E42")),
        on_stdin(&run_args(&["-"]), &utf16("E42")),
        on_stdin(&["tokenize", "-m", &qwen], &utf16("is")),
        on_stdin(&["detokenize", "-m", &qwen], &utf16("1")),
        on_stdin(&["chat", "-m", &qwen], &utf16("hi\n")),
    ] {
        assert_eq!(refused.status, 1, "{}", refused.stderr);
        assert!(
            refused.stderr.contains("UTF-16 text (it begins with FF FE): save it as UTF-8"),
            "{}",
            refused.stderr
        );
    }
    let latin1 = on_stdin(&run_args(&["hi"]), b"caf\xe9 noir");
    assert!(
        latin1.status == 1 && latin1.stderr.contains("not UTF-8 text (the byte at offset 3"),
        "{}",
        latin1.stderr
    );
}

#[test]
fn a_hugging_face_folder_may_have_byte_order_marks() {
    let folder = folder("encodings-hf");
    for entry in fs::read_dir(model("qwen2/hf")).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        let is_json = path.extension().is_some_and(|extension| extension == "json");
        let bytes = if is_json { [BOM.as_bytes(), &bytes].concat() } else { bytes };
        fs::write(folder.join(path.file_name().unwrap()), bytes).unwrap();
    }
    let args = ["run", "-m", text(&folder), "--json", "--max-tokens", "2", "--raw", "is the end of it"];
    let run = ember(&args).ok().json();
    assert_eq!(run["prompt_tokens"], 8);
    fs::write(folder.join("tokenizer.json"), utf16("{}")).unwrap();
    let refused = ember(&args);
    assert!(
        refused.stderr.contains("tokenizer.json") && refused.stderr.contains("UTF-16"),
        "{}",
        refused.stderr
    );
}

/// Runs a chat on lines of input.
fn chat(model: &str, lines: &str) -> String {
    ember_with(&["chat", "-m", model, "--max-tokens", "2"], lines).ok().stderr
}

#[test]
fn images_are_found_as_they_are_dropped_on_a_terminal() {
    let folder = folder("dropped");
    let model = with_template(&folder);
    let picture = image(&folder, "it's a (b).bmp", (1, 1), 1);
    let uri = format!("file://{}", picture.replace(' ', "%20").replace('(', "%28"));
    let mut typed = vec![picture.clone(), uri.clone(), format!("'{}' ", picture.replace('\'', r"'\''"))];
    if !cfg!(windows) {
        let escaped =
            [' ', '(', ')', '\''].iter().fold(picture.clone(), |path, c| path.replace(*c, &format!("\\{c}")));
        typed.extend([escaped, format!("\"{picture}\"")]);
    }
    for typed in &typed {
        let told = chat(&model, &format!("/image {typed}\n"));
        assert!(told.contains(&format!("attached: {picture}, 1 x 1 cells")), "{typed}: {told}");
    }
    let run = ember(&["run", "-m", &model, "--dump-prompt", "--image", &uri]).ok();
    assert!(run.stdout.contains("[IMG]Describe this image."), "{}", run.stdout);
    let out = folder.join("out");
    let mmproj = folder.join("mmproj-mistral.gguf");
    ember(&["vision", "--mmproj", text(&mmproj), "--image", &uri, "--out", text(&out)]).ok();
}

#[test]
fn a_line_break_ends_an_answer_and_settings_go_back() {
    let qwen = model("qwen3-tied/f32.gguf");
    // Token 201 is the line break.
    let run = |args: &[&str]| {
        let fixed = ["run", "-m", &qwen, "--json", "--max-tokens", "4", "--logit-bias", "201:1000", "hi"];
        ember(&[&fixed, args].concat()).ok().json()
    };
    assert_eq!(run(&[])["text"], "\n\n\n\n");
    let stopped = run(&["--stop", r"\n\n"]);
    assert_eq!((&stopped["stop_string"], &stopped["text"]), (&"\n\n".into(), &"".into()));
    let literal = run(&["--stop", r"\\n"]);
    assert_eq!((&literal["finish_reason"], &literal["text"]), (&"length".into(), &"\n\n\n\n".into()));
    let unknown = ember(&["run", "-m", &qwen, "--stop", r"\boxed", "hi"]);
    assert!(unknown.status == 2 && unknown.stderr.contains(r"\b is no escape"), "{}", unknown.stderr);
    let help = ember(&["run", "--help"]).ok().stdout;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains(r"\n is a line break") && help.contains(r"\\ a backslash"), "{help}");

    let told = chat(
        &qwen,
        "/set stop \\n\\t\\\\x\n/unset stop\n/set temp 1\n/set seed 7\n/set seed -1\n/unset temp\n/unset warmth\n",
    );
    let settings: Vec<&str> = told.lines().filter(|line| line.starts_with("stop: ")).collect();
    assert_eq!(
        settings,
        [r#"stop: ["\n\t\\x"]"#, "stop: []", "stop: []", "stop: []", "stop: []", "stop: []"]
    );
    let sampling: Vec<&str> = told.lines().filter(|line| line.starts_with("sampling: ")).collect();
    assert_eq!((sampling[0], sampling[5]), ("sampling: greedy (default)", "sampling: greedy (default)"));
    assert_eq!(sampling[3], "sampling: temperature 1 (flag), seed 7");
    assert_ne!(sampling[4], sampling[3]);
    assert!(told.contains("error: there is no setting warmth"), "{told}");
}

#[test]
fn a_seed_of_minus_one_differs_from_run_to_run() {
    let qwen = model("qwen3-tied/f32.gguf");
    let seed = |args: &[&str]| {
        let fixed = ["run", "-m", &qwen, "--json", "--max-tokens", "1", "--temp", "1", "hi"];
        ember(&[&fixed, args].concat()).ok().json()["sampling"]["seed"].as_u64().unwrap()
    };
    assert_eq!(seed(&["--seed", "3"]), 3);
    let drawn = [seed(&["--seed", "-1"]), seed(&["--seed", "-1"]), seed(&[])];
    assert!(drawn[0] != drawn[1] && drawn[1] != drawn[2], "{drawn:?}");
}

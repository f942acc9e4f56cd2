//! The examples, run as README says. `cargo test` builds them before this; a test run alone needs `cargo build --examples`.
mod cli_support;
mod vision_support;

use cli_support::model;
use ember_test_support::Scripted;
use std::path::PathBuf;
use std::process::Command;

/// An example's binary, which lies beside the folder of this test's own.
fn example(name: &str) -> Command {
    let own = std::env::current_exe().expect("a running test has a path");
    let folder = own.parent().and_then(|deps| deps.parent()).expect("target/PROFILE/deps");
    let path: PathBuf = folder.join("examples").join(name).with_extension(std::env::consts::EXE_EXTENSION);
    assert!(path.is_file(), "{} is missing: cargo build --examples", path.display());
    Command::new(path)
}

fn output(name: &str, args: &[&str]) -> String {
    let ran = example(name).args(args).output().expect("the example starts");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).expect("answers are UTF-8")
}

#[test]
fn generate_answers_and_is_what_the_readme_shows() {
    let [newline, h, i] = [b'\n', b'h', b'i'].map(Scripted::byte);
    let script = Scripted::new("llama").walk(&[newline, h, i, Scripted::END]);
    let model = script.write(cli_support::scratch("hi.gguf"));
    let printed = output("generate", &[model.to_str().expect("a UTF-8 path"), "hello"]);
    let (text, statistics) =
        printed.trim_end().rsplit_once('\n').expect("an answer and a line of statistics");
    assert_eq!(text, "hi");
    assert!(
        statistics.starts_with("[2 tokens, ") && statistics.ends_with("EndOfGeneration]"),
        "{statistics}"
    );

    let source = include_str!("../examples/generate.rs");
    let shown = &source[source.find("use ember").expect("what follows the comment")..];
    assert!(include_str!("../README.md").contains(&format!("```rust\n{shown}```")), "{shown}");
}

#[test]
fn swap_backend_answers_on_the_cpu() {
    let printed = output("swap_backend", &[&model("qwen2/f32.gguf")]);
    assert!(printed.contains("ndarray: qwen2"), "{printed}");
    assert!(printed.trim_end().ends_with("tokens/s]"), "{printed}");
}

#[test]
fn chat_with_image_goes_on_from_the_cached_image() {
    let folder = vision_support::folder("example");
    let (model, picture) =
        (vision_support::with_template(&folder), vision_support::image(&folder, "a.bmp", (2, 3), 1));
    let printed = output("chat_with_image", &[&model, &picture]);
    let cached =
        |line: &str| line.strip_prefix('[').and_then(|line| line.split(' ').next()?.parse::<usize>().ok());
    let cached: Vec<usize> = printed.lines().filter_map(cached).collect();
    assert_eq!(cached.len(), 2, "{printed}");
    assert!(cached[0] == 0 && cached[1] > 2 * 4, "the image is read once: {printed}");
}

#[test]
fn chat_with_image_names_a_model_that_takes_none() {
    let ran = example("chat_with_image").args([&model("qwen2/f32.gguf"), "a.png"]).output();
    let ran = ran.expect("the example starts");
    assert!(!ran.status.success());
    let error = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(error.contains("[IMG]"), "{error}");
}

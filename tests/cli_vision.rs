//! Images on the command line: run, chat, logits and vision with the tiny vision models.
mod cli_support;
mod vision_support;

use cli_support::{Ran, ember, ember_with, scratch};
use ember_test_support::{TensorFile, max_relative};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use vision_support::{copies, fixture, folder, image, with_template};

/// The error of a run that must fail.
fn error(args: &[&str]) -> String {
    let run = ember(args);
    assert_eq!(run.status, 1, "{}{}", run.stdout, run.stderr);
    run.stderr.rsplit_once("error: ").unwrap_or_else(|| panic!("{}", run.stderr)).1.trim_end().to_owned()
}

fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

/// Runs `ember vision`; the grid and the embeddings.
fn encode(mmproj: &str, image: &str, args: &[&str]) -> (Vec<i64>, Vec<f32>, Ran) {
    let out = unused_file();
    let path = out.to_str().unwrap();
    let run = ember(&[&["vision", "--mmproj", mmproj, "--image", image, "--out", path], args].concat()).ok();
    let file = TensorFile::open(&out);
    let grid = file.i64("grid");
    assert_eq!(file.shape("embeddings"), [(grid[0] * grid[1]) as usize, 96]);
    (grid, file.f32("embeddings"), run)
}

/// A path that no other call gets.
fn unused_file() -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    scratch(&format!("{}.safetensors", NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// Runs `ember logits`; a row of 288 for each token.
fn logits(args: &[&str]) -> Vec<Vec<f32>> {
    let out = unused_file();
    ember(&[&["logits", "--out", out.to_str().unwrap()], args].concat()).ok();
    TensorFile::open(&out).f32("logits").chunks(288).map(<[f32]>::to_vec).collect()
}

#[test]
fn vision_writes_embeddings_and_grid() {
    let folder = folder("vision");
    let image = image(&folder, "a.bmp", (2, 3), 1);
    let (grid, embeddings, run) = encode(&fixture("gelu-2/mmproj-f32.gguf"), &image, &[]);
    assert_eq!(grid, [2, 3]);
    assert!(embeddings.iter().all(|value| value.is_finite() && *value != 0.0));
    assert_contains(
        &run.stderr,
        &["gelu-2/mmproj-f32.gguf, 304", "1 image encoded: 8 tokens in ", " tokens/s"],
    );
    let (_, ollama, run) = encode(&fixture("gelu-2/mmproj-ollama-f32.gguf"), &image, &[]);
    assert_contains(&run.stderr, &["it names no activation, GELU is taken\n"]);
    let error = max_relative(&ollama, &embeddings);
    assert!(error < 1e-5, "{error}");
    let (grid, ..) = encode(&fixture("gelu-2/mmproj-f32.gguf"), &image, &["--image-max-tokens", "3"]);
    assert_eq!(grid, [1, 2]);
}

#[test]
fn no_partial_embeddings_file_is_left() {
    let folder = folder("vision-errors");
    let out = folder.join("out.safetensors");
    let (garbage, mmproj) = (folder.join("garbage.png"), fixture("gelu-2/mmproj-f32.gguf"));
    fs::write(&garbage, "no image").unwrap();
    let garbage = garbage.to_str().unwrap();
    let run = |mmproj: &str, image: &str| {
        error(&["vision", "--mmproj", mmproj, "--image", image, "--out", out.to_str().unwrap()])
    };
    assert_contains(&run(&mmproj, garbage), &[garbage, "not an image of a known format"]);
    assert_contains(&run(&mmproj, "absent.png"), &["absent.png"]);
    let web = run(&mmproj, "https://example.org/a.png");
    assert_contains(&web, &["https://example.org/a.png: images are not fetched from the web"]);
    let text = fixture("gelu-2/text-f32.gguf");
    let refused = run(&text, garbage);
    assert!(refused.starts_with(&format!("{text}: not a Pixtral projector")), "{refused}");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}

#[test]
fn logits_put_images_at_their_places() {
    let folder = folder("logits");
    let (model, mmproj) = (fixture("gelu-2/text-f32.gguf"), fixture("gelu-2/mmproj-f32.gguf"));
    let (a, b) = (image(&folder, "a.bmp", (2, 3), 1), image(&folder, "b.bmp", (6, 5), 2));
    let run = |images: &[&str], args: &[&str]| {
        let images: Vec<&str> = images.iter().flat_map(|image| ["--image", image]).collect();
        logits(&[&["-m", &model, "--mmproj", &mmproj], &images[..], args].concat())
    };
    let by_prompt = run(&[&a, &b], &["--prompt", "x[IMG]y[IMG]z"]);
    // 1 + 1 tokens, an image of 8, 1, an image of 36, 1.
    assert_eq!(by_prompt.len(), 48);
    let runs = |rows: usize, cols: usize| {
        let rows = vec![vec!["10"; cols].join(","); rows];
        format!("{},13", rows.join(",12,"))
    };
    let text = ember(&["tokenize", "-m", &model, "--json", "--no-bos", "xyz"]).ok().json();
    let ids: Vec<String> = text["tokens"].as_array().unwrap().iter().map(Value::to_string).collect();
    let tokens = format!("1,{},{},{},{},{}", ids[0], runs(2, 3), ids[1], runs(6, 5), ids[2]);
    assert_eq!(run(&[&a, &b], &["--tokens", &tokens]), by_prompt);
    let other = run(&[&a, &image(&folder, "c.bmp", (6, 5), 3)], &["--tokens", &tokens]);
    assert_eq!(other[..11], by_prompt[..11], "the second image changes nothing before it");
    assert_ne!(other[11], by_prompt[11]);
    assert_ne!(other[47], by_prompt[47]);

    let refused = |images: &[&str], args: &[&str]| {
        let images: Vec<&str> = images.iter().flat_map(|image| ["--image", image]).collect();
        let out = folder.join("refused.safetensors");
        let fixed = ["logits", "-m", &model, "--mmproj", &mmproj, "--out", out.to_str().unwrap()];
        error(&[&fixed[..], &images, args].concat())
    };
    assert_eq!(
        refused(&[&b, &a], &["--tokens", &tokens]),
        "--tokens: the image tokens from token 2 on are 2 x 3, and the image is 6 x 5 cells (rows x columns)"
    );
    assert_eq!(
        refused(&[&a], &["--tokens", &tokens]),
        "--tokens: 1 image given for 2 places ([IMG]) in the prompt"
    );
    assert_eq!(
        refused(&[&a, &b], &["--prompt", "[IMG]"]),
        "--prompt: 2 images given for 1 place ([IMG]) in the prompt"
    );
    assert_eq!(
        refused(&[&a], &["--tokens", "1,10,10"]),
        "--tokens: the image tokens from token 1 on do not end with [IMG_END]"
    );
}

#[test]
fn run_answers_about_images() {
    let folder = folder("run");
    let model = with_template(&folder);
    let (a, b) = (image(&folder, "a.bmp", (2, 3), 1), image(&folder, "b.bmp", (1, 1), 2));
    let images = ["--image", &a, "--image", &b];
    let run = |args: &[&str]| {
        ember(&[&["run", "-m", &model, "--json", "--max-tokens", "3"], &images[..], args].concat()).ok()
    };
    let answer = run(&["What is this?"]);
    let found = format!("projector {}, 304", folder.join("mmproj-mistral.gguf").display());
    assert_contains(&answer.stderr, &[&found, "2 images encoded: 10 tokens in "]);
    let answer = answer.json();
    assert_eq!(answer["image_tokens"], json!([8, 2]));
    assert!(answer["timings"]["image_ms"].as_f64().unwrap() > 0.0);
    let dumped = run(&["--dump-prompt", "[IMG]?"]).json();
    assert_eq!(dumped["text"], "<s>[INST][IMG][IMG][IMG]?[/INST]");
    let ids: Vec<u64> = dumped["tokens"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
    assert_eq!(ids[..13], [1, 3, 10, 10, 10, 12, 10, 10, 10, 13, 10, 13, ids[12]]);
    assert!(!ids[12..].contains(&10), "the [IMG] of the prompt is text");
    let default = run(&["--dump-prompt"]).json();
    assert_eq!(default["text"], "<s>[INST][IMG][IMG]Describe these images.[/INST]");
    let one = ember(&["run", "-m", &model, "--dump-prompt", "--image", &a]).ok().stdout;
    assert_contains(&one, &["[IMG]Describe this image.[/INST]"]);
    let piped = ember_with(&["run", "-m", &model, "--dump-prompt", "--image", &a], "And this?\n").ok();
    assert_contains(&piped.stdout, &["[IMG]And this?[/INST]"]);
    let raw = run(&["--raw", "[IMG]a[IMG]"]).json();
    assert_eq!(raw["prompt_tokens"], 12);
}

#[test]
fn images_that_cannot_be_used_are_explained_before_the_model_is_loaded() {
    let folder = folder("run-errors");
    let picture = image(&folder, "a.bmp", (1, 1), 1);
    let (model, mmproj) = (fixture("gelu-2/text-f32.gguf"), fixture("gelu-2/mmproj-f32.gguf"));
    let run = |model: &str, image: &str, args: &[&str]| {
        error(&[&["run", "-m", model, "--image", image], args, &["hi"]].concat())
    };
    let qwen = cli_support::model("qwen3-tied/f32.gguf");
    let text_only = run(&qwen, "absent.png", &["--mmproj", &mmproj]);
    assert_eq!(text_only, "this model takes no images: its vocabulary has no [IMG]");
    let alone = cli_support::model("ministral3/f32.gguf");
    assert_contains(
        &run(&alone, "absent.png", &[]),
        &["there is no projector (*mmproj*.gguf) that reads images beside", "name one with --mmproj"],
    );
    let other = fixture("silu-2/mmproj-f32.gguf");
    assert_contains(
        &run(&model, "absent.png", &["--mmproj", &other]),
        &[&other, "mm.2.weight gives embeddings of width 64, the text model's are 96 wide"],
    );
    assert_contains(&run(&model, "absent.png", &["--mmproj", &mmproj]), &["absent.png"]);
    let no_place = run(&model, &picture, &["--mmproj", &mmproj]);
    assert_contains(&no_place, &["messages[0].content[0]", "takes no content of type `image_url`"]);
    let count = run(&model, &picture, &["--mmproj", &mmproj, "--raw"]);
    assert_eq!(count, "1 image given for 0 places ([IMG]) in the prompt");
    let no_image = error(&["run", "-m", &model, "--raw", "[IMG]"]);
    assert_eq!(no_image, "0 images given for 1 place ([IMG]) in the prompt");
    let long = ["--mmproj", &mmproj, "--image", &picture, "--raw", "--ctx-size", "2", "[IMG]"];
    let long = error(&[&["run", "-m", &model], &long[..]].concat());
    assert_contains(&long, &["the prompt has 3 tokens and the context holds 2"]);
}

#[test]
fn the_projector_beside_a_model_is_found() {
    let folder = folder("discovery");
    let picture = image(&folder, "a.bmp", (1, 2), 1);
    copies(&folder, [("gelu-2/text-f32.gguf", "model.gguf"), ("silu-2/mmproj-f32.gguf", "a-mmproj.gguf")]);
    let model = folder.join("model.gguf");
    let run =
        ["run", "-m", model.to_str().unwrap(), "--raw", "--max-tokens", "2", "--image", &picture, "[IMG]"];
    assert_contains(
        &error(&run),
        &["no projector beside", "a-mmproj.gguf: ", "width 64", "\nname one with --mmproj"],
    );
    let chosen = |name: &str| {
        let ran = ember(&run).ok();
        assert_contains(&ran.stderr, &[&format!("projector {}, ", folder.join(name).display())]);
    };
    copies(&folder, [("gelu-2/mmproj-f32.gguf", "x.MMPROJ.gguf")]);
    chosen("x.MMPROJ.gguf");
    copies(&folder, [("gelu-2/mmproj-q8_0.gguf", "mmproj-Mistral.GGUF")]);
    chosen("mmproj-Mistral.GGUF");
    copies(&folder, [("gelu-2/mmproj-f32.gguf", "mmproj-mistral-f32.gguf")]);
    assert_contains(
        &error(&run),
        &["several projectors beside", "Mistral.GGUF", "mistral-f32.gguf", "\nname one with --mmproj"],
    );
}

/// Runs a chat on standard input's lines.
fn chat(args: &[&str], input: &str) -> Ran {
    ember_with(&[&["chat", "--max-tokens", "3"], args].concat(), input).ok()
}

#[test]
fn a_chat_attaches_images_to_messages() {
    let folder = folder("chat");
    let model = with_template(&folder);
    let a = image(&folder, "a.bmp", (2, 3), 1);
    let b = image(&folder, "b c.bmp", (1, 1), 2);
    let saved = folder.join("saved.json");
    let input = format!(
        "one\n/image \"{b}\"\n/image\ntwo\n/regen\n/image {a}\n/image none\nfour\n/info\n/save {}\n",
        saved.display()
    );
    let run = chat(&["-m", &model, "--image", &a, "--image", &b], &input);
    let stderr = &run.stderr;
    assert_contains(stderr, &["b c.bmp, 1 x 1 cells, 2 tokens\n", "a.bmp, 2 x 3 cells, 8 tokens\n"]);
    assert_contains(stderr, &["2 images encoded: 10 tokens in ", "no image is attached\n"]);
    assert_eq!(stderr.matches(" encoded: ").count(), 1, "the third image is the second: {stderr}");
    assert_contains(stderr, &[&format!("projector {}", folder.join("mmproj-mistral.gguf").display())]);
    let messages: Vec<Value> = serde_json::from_slice(&fs::read(&saved).unwrap()).unwrap();
    let part = |path: &str| json!({"type": "image_url", "image_url": {"url": path}});
    let text = |text: &str| json!({"type": "text", "text": text});
    assert_eq!(messages[0]["content"], json!([part(&a), part(&b), text("one")]));
    assert_eq!(messages[2]["content"], json!([part(&b), text("two")]));
    assert_eq!(messages[4]["content"], "four");
    let rendered = ember(&["render", "-m", &model, saved.to_str().unwrap()]).ok().stdout;
    assert_contains(&rendered, &["[INST][IMG][IMG]one[/INST]", "[INST][IMG]two[/INST]"]);
}

#[test]
fn another_image_of_the_same_size_gets_its_own_answer() {
    let folder = folder("chat-again");
    let model = with_template(&folder);
    let images = [1, 2].map(|seed| image(&folder, &format!("{seed}.bmp"), (2, 3), seed));
    // By a fresh process each.
    let alone = images.each_ref().map(|image| {
        let run = ["run", "-m", &model, "--json", "--max-tokens", "3", "--image", image, "What is it?"];
        ember(&run).ok().json()["text"].clone()
    });
    let saved = [1, 2].map(|turn| folder.join(format!("{turn}.json")));
    let turn = |turn: usize| {
        format!("/reset\n/image {}\nWhat is it?\n/save {}\n", images[turn], saved[turn].display())
    };
    let run = chat(&["-m", &model], &(turn(0) + &turn(1)));
    let answers = saved
        .each_ref()
        .map(|path| serde_json::from_slice::<Value>(&fs::read(path).unwrap()).unwrap()[1]["content"].clone());
    assert_eq!(answers, alone);
    assert_ne!(alone[0], alone[1]);
    // <s>, [INST], an image of 8 tokens, the text and [/INST].
    let lines: Vec<&str> = run.stderr.lines().filter(|line| line.starts_with("[prompt ")).collect();
    assert!(lines[0].contains(" 0 cached") && lines[1].contains(" 2 cached"), "{}", run.stderr);
}

#[test]
fn chat_images_that_cannot_be_used_do_not_end_it() {
    let folder = folder("chat-errors");
    let model = with_template(&folder);
    let run = chat(&["-m", &model], "/image absent.png\n/image https://a.b/c.png\nhi\n");
    assert_contains(&run.stderr, &["error: absent.png: ", "images are not fetched", "answer 3 tokens"]);
    let text_only = cli_support::model("qwen3-tied/f32.gguf");
    let run = chat(&["-m", &text_only], "/image absent.png\n/info\nhi\n");
    assert_contains(&run.stderr, &["error: this model takes no images", "no images: this model", "[prompt "]);
    let before_loading = ember(&["chat", "-m", &text_only, "--image", "absent.png"]);
    assert_eq!(before_loading.stderr, "error: this model takes no images: its vocabulary has no [IMG]\n");
}

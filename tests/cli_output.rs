//! Files that commands write: never in place of an input, in place of another file only when told, complete or not at all.
mod cli_support;
mod vision_support;

use cli_support::{ember, ember_with, finish, model, spawn};
use ember_loaders::gguf::{Gguf, Value};
use ember_test_support::GgufFile;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vision_support::{folder, image, with_template};

/// The files of a folder, by name.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_file()).map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Runs commands that must refuse before any work, and leave their folder as it is.
fn assert_refused(folder: &Path, commands: &[Vec<&str>], message: &str) {
    let before = files(folder);
    for command in commands {
        let run = ember(command);
        assert_eq!(run.status, 1, "{command:?}: {}", run.stderr);
        let first = run.stderr.lines().next_back().unwrap_or_default();
        assert!(first.starts_with("error: ") && first.contains(message), "{command:?}: {}", run.stderr);
        assert!(!run.stderr.contains("ndarray"), "{command:?}: the model was loaded: {}", run.stderr);
    }
    assert!(files(folder) == before, "{commands:?} changed {}", folder.display());
}

const IS_INPUT: &str = " is an input of this command";

/// `ember logits --force` of a model to each of the outputs.
fn logits<'a>(model: &'a Path, outs: &'a [PathBuf]) -> Vec<Vec<&'a str>> {
    let command = |out| vec!["logits", "-m", text(model), "--tokens", "1,2", "--force", "--out", text(out)];
    outs.iter().map(|out| command(out)).collect()
}

#[test]
fn an_output_never_replaces_the_model() {
    let folder = folder("output-model");
    let file = folder.join("a.gguf");
    fs::copy(model("qwen3-tied/f32.gguf"), &file).unwrap();
    fs::create_dir(folder.join("sub")).unwrap();
    let mut outs = vec![file.clone(), folder.join("./a.gguf"), folder.join("sub/../a.gguf")];
    let links = [folder.join("hard.gguf"), folder.join("b.part")];
    links.iter().for_each(|link| fs::hard_link(&file, link).unwrap());
    // The second is what would be written before it becomes `b`.
    outs.extend([links[0].clone(), folder.join("b")]);
    #[cfg(unix)]
    {
        let link = folder.join("soft.gguf");
        std::os::unix::fs::symlink("hard.gguf", &link).unwrap();
        outs.push(link);
    }
    assert_refused(&folder, &logits(&file, &outs), IS_INPUT);
    assert_refused(&folder, &logits(&links[0], &outs), IS_INPUT);
}

#[test]
fn an_output_never_replaces_another_shard_or_a_file_of_the_folder() {
    let folder = folder("output-shards");
    let gguf = Gguf::open(model("qwen3-tied/f32.gguf")).unwrap();
    let whole = GgufFile::of(&gguf);
    let shards = [0, 1].map(|number| {
        let mut metadata: Vec<(String, Value)> = match number {
            0 => whole.metadata.clone(),
            _ => Vec::new(),
        };
        let count = |key: &str, n: usize| (format!("split.{key}"), Value::from(n as i32));
        metadata.extend([
            count("no", number),
            count("count", 2),
            count("tensors.count", whole.tensors.len()),
        ]);
        let tensors = whole.tensors.chunks(whole.tensors.len() / 2).nth(number).unwrap().to_vec();
        let path = folder.join(format!("m-0000{}-of-00002.gguf", number + 1));
        fs::write(&path, GgufFile { metadata, tensors }.into_bytes()).unwrap();
        path
    });
    assert_refused(&folder, &logits(&shards[0], &shards), IS_INPUT);
    ember(&["logits", "-m", text(&shards[1]), "--tokens", "1", "--out", text(&folder.join("new"))]).ok();

    let hf = folder.join("hf");
    fs::create_dir(&hf).unwrap();
    files(Path::new(&model("qwen2/hf"))).iter().for_each(|(path, bytes)| {
        fs::write(hf.join(path.file_name().unwrap()), bytes).unwrap();
    });
    let outs: Vec<_> = files(&hf).into_keys().collect();
    assert_eq!(outs.len(), 4);
    assert_refused(&hf, &logits(&hf, &outs), IS_INPUT);
}

#[test]
fn an_output_never_replaces_an_image_or_a_projector() {
    let folder = folder("output-image");
    let model = with_template(&folder);
    let picture = image(&folder, "a.bmp", (1, 1), 1);
    let mmproj = folder.join("mmproj-mistral.gguf");
    let mmproj = text(&mmproj);
    for out in [&*picture, mmproj] {
        let vision = vec!["vision", "--mmproj", mmproj, "--image", &picture, "--force", "--out", out];
        let logits =
            vec!["logits", "-m", &model, "--image", &picture, "--prompt", "[IMG]", "--force", "--out", out];
        assert_refused(&folder, &[vision, logits], IS_INPUT);
    }
}

#[test]
fn existing_outputs_are_replaced_only_when_asked() {
    let folder = folder("output-exists");
    let (qwen, picture) = (model("qwen3-tied/f32.gguf"), image(&folder, "a.bmp", (1, 1), 1));
    let mmproj = vision_support::fixture("gelu-2/mmproj-f32.gguf");
    let out = folder.join("out");
    let logits = vec!["logits", "-m", &qwen, "--tokens", "1", "--out", text(&out)];
    let vision = vec!["vision", "--mmproj", &mmproj, "--image", &picture, "--out", text(&out)];
    let synth =
        vec!["synth", "--arch", "pixtral", "--preset", "3b", "--type", "q8_0", "--layers", "1", text(&out)];
    let commands = [logits, vision, synth];
    fs::write(&out, "old").unwrap();
    assert_refused(&folder, &commands, "out exists (--force replaces it)");
    for command in &commands {
        ember(&[command, &["--force"][..]].concat()).ok();
        assert!(fs::read(&out).unwrap() != b"old");
        fs::write(&out, "old").unwrap();
    }
    fs::remove_file(&out).unwrap();

    // An unfinished file, and what no file can take the place of.
    let part = folder.join("out.part");
    fs::write(&part, "half").unwrap();
    assert_refused(
        &folder,
        &commands,
        "out.part exists, from a run that was killed or still goes on (--force",
    );
    ember(&[&commands[0], &["--force"][..]].concat()).ok();
    assert!(out.is_file() && !part.exists());
    fs::remove_file(&out).unwrap();
    fs::create_dir(&out).unwrap();
    let forced = commands.map(|command| [&command, &["--force"][..]].concat());
    assert_refused(&folder, &forced, "out is a folder");
}

#[cfg(unix)]
#[test]
fn devices_and_dangling_links_are_not_replaced() {
    let (folder, qwen) = (folder("output-special"), model("qwen3-tied/f32.gguf"));
    let link = |name: &str, to: &str| {
        let path = folder.join(name);
        std::os::unix::fs::symlink(to, &path).unwrap();
        path
    };
    let null = link("null", "/dev/null");
    let command = |out| vec!["logits", "-m", &qwen, "--tokens", "1", "--out", out];
    assert_refused(
        &folder,
        &[[&command(text(&null)), &["--force"][..]].concat()],
        "null is not a regular file",
    );
    let dangling = link("dangling", "nowhere");
    assert_refused(&folder, &[command(text(&dangling))], "dangling exists (--force replaces it)");
}

#[cfg(unix)]
#[test]
fn ctrl_c_leaves_nothing_however_often() {
    for signals in 1..=2 {
        let folder = folder(&format!("output-interrupted-{signals}"));
        let out = folder.join("out.gguf");
        let args = ["synth", "--arch", "qwen3", "--preset", "0.6b", "--type", "q8_0", text(&out)];
        let child = spawn(&args);
        let part = folder.join("out.gguf.part");
        let is_writing = || fs::metadata(&part).is_ok_and(|part| part.len() > 0);
        while !is_writing() {
            std::thread::sleep(Duration::from_millis(1));
        }
        for _ in 0..signals {
            Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        }
        let run = finish(child);
        assert_eq!(run.status, 130, "{}", run.stderr);
        assert_eq!(files(&folder).len(), 0);
    }
}

/// Runs a chat on lines of input.
fn chat(model: &str, lines: &str) -> String {
    ember_with(&["chat", "-m", model, "--max-tokens", "2"], lines).ok().stderr
}

#[test]
fn a_chat_saves_over_other_files_only_when_told() {
    let folder = folder("save");
    let model = with_template(&folder);
    let picture = image(&folder, "a.bmp", (1, 1), 1);
    let before = files(&folder);
    let saved = folder.join("my chat.json");
    let (saved, mmproj) = (text(&saved), folder.join("mmproj-mistral.gguf"));
    let save = |lines: &str| chat(&model, &format!("/image {picture}\none\n{lines}"));

    let told = save(&format!("/save '{saved}'\n/save {saved}\n"));
    assert!(told.contains(&format!("2 messages saved to {saved}\n")), "{told}");
    let exists = format!("error: {saved} exists (`/save! FILE` replaces it)\n");
    assert!(told.contains(&exists), "{told}");
    let first = fs::read(saved).unwrap();
    let told = save(&format!("/save {saved}\n"));
    assert!(told.contains(&exists) && fs::read(saved).unwrap() == first, "{told}");
    let told = save(&format!("two\n/save! {saved}\n"));
    assert!(told.contains("4 messages saved to "), "{told}");
    fs::remove_file(saved).unwrap();

    for input in [&*model, &picture, text(&mmproj)] {
        let told = save(&format!("/image none\n/save! {input}\n"));
        assert!(
            told.contains(&format!("error: {input} is an input of this command: write to another file\n")),
            "{told}"
        );
    }
    assert!(files(&folder) == before, "nothing else was written");
    assert!(chat(&model, "/help\n").contains("`/save! FILE` replaces one"));
}

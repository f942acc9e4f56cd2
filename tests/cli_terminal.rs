//! The command line on a terminal: what a model or a file says is shown there and not obeyed, and goes into a pipe as it is.
#![cfg(unix)]
mod cli_support;
mod vision_support;

use cli_support::{ember, model};
use ember_loaders::gguf::{Gguf, Value};
use ember_test_support::GgufFile;
use nix::pty::{Winsize, openpty};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::{Child, Command};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// Longer than anything takes here.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The binary on a terminal of its own.
struct OnTerminal {
    child: Child,
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    shown: Vec<u8>,
    /// Bytes of `shown` that were waited for.
    seen: usize,
}

impl OnTerminal {
    fn start(variables: &[(&str, &str)], args: &[&str]) -> Self {
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).unwrap();
        // Clones are closed in processes that other tests start.
        let [keyboard, mut reader] = [(); 2].map(|()| File::from(pty.master.try_clone().unwrap()));
        let [stdin, stdout, stderr] = [(); 3].map(|()| pty.slave.try_clone().unwrap());
        drop((pty.master, pty.slave));
        let mut command = Command::new(env!("CARGO_BIN_EXE_ember"));
        command.args(args).stdin(stdin).stdout(stdout).stderr(stderr);
        command.env_remove("NO_COLOR").env("TERM", "xterm").envs(variables.iter().copied());
        // No history of this machine's user is read or written.
        command.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
        let child = command.spawn().unwrap();
        let (sender, screen) = mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Linux reports the end of the other side as an error.
            while let Ok(n @ 1..) = reader.read(&mut buffer) {
                let _nobody_waits = sender.send(buffer[..n].to_vec());
            }
        });
        // Dropping `command` leaves the process with the last copies of the slave: reading ends when it does.
        Self { child, keyboard, screen, shown: Vec::new(), seen: 0 }
    }

    /// Waits until a text is shown.
    fn wait_for(&mut self, text: &str) {
        loop {
            let new = &self.shown[self.seen..];
            if let Some(at) = new.windows(text.len()).position(|window| window == text.as_bytes()) {
                self.seen += at + text.len();
                return;
            }
            match self.screen.recv_timeout(TIMEOUT) {
                Ok(chunk) => self.shown.extend(chunk),
                Err(error) => {
                    self.child.kill().unwrap();
                    panic!("{error}: {text:?} is not in {}", String::from_utf8_lossy(&self.shown));
                }
            }
        }
    }

    /// Types a line at the prompt that comes after a text.
    fn type_after(&mut self, text: &str, line: &str) {
        self.wait_for(text);
        self.wait_for("> ");
        self.keyboard.write_all(format!("{line}\r").as_bytes()).unwrap();
    }

    fn interrupt(&self) {
        Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
    }

    /// All that was shown until the process ended.
    fn finish(mut self) -> String {
        self.shown.extend(self.screen.iter().flatten());
        self.child.wait().unwrap();
        String::from_utf8(self.shown).unwrap()
    }
}

fn on_terminal(variables: &[(&str, &str)], args: &[&str]) -> String {
    OnTerminal::start(variables, args).finish()
}

/// True for what a terminal obeys, but for the ends of lines.
fn is_obeyed(c: char) -> bool {
    c.is_control() && !"\r\n\t".contains(c)
}

const DUMB: (&str, &str) = ("TERM", "dumb");

#[test]
fn a_models_escapes_are_shown_on_a_terminal_and_piped_as_they_are() {
    let qwen = model("qwen3-tied/f32.gguf");
    // Token 218 is the byte 1B.
    let args = ["run", "-m", &qwen, "--max-tokens", "3", "--logit-bias", "218:1000", "hi"];
    assert_eq!(ember(&args).ok().stdout, "\u{1b}\u{1b}\u{1b}\n");
    let shown = on_terminal(&[], &args);
    assert!(shown.contains("\\u{1b}\\u{1b}\\u{1b}\r\n") && !shown.contains('\u{1b}'), "{shown:?}");
    assert!(!shown.contains("stdin"), "a terminal on stdin adds nothing: {shown:?}");
    let json = on_terminal(&[], &[&args[..], &["--json"]].concat());
    assert!(json.contains(r#""text":"\u001b\u001b\u001b""#) && !json.contains('\u{1b}'), "{json:?}");
}

#[test]
fn text_of_files_is_shown_on_a_terminal_and_piped_as_it_is() {
    let folder = vision_support::folder("terminal");
    let qwen = model("qwen2/f32.gguf");
    let messages = folder.join("messages.json");
    fs::write(&messages, r#"[{"role": "user", "content": "a\u001b]0;b\u0007\u009bc\u202e"}]"#).unwrap();
    let render = ["render", "-m", &qwen, messages.to_str().unwrap()];
    let raw = "user\na\u{1b}]0;b\u{7}\u{9b}c\u{202e}<|im_end|>";
    assert!(ember(&render).ok().stdout.contains(raw));
    let visible = |shown: &str| {
        assert!(!shown.contains(|c| is_obeyed(c) || c == '\u{202e}'), "{shown:?}");
        shown.replace("\r\n", "\n")
    };
    let shown = visible(&on_terminal(&[], &render));
    assert!(shown.contains("user\na\\u{1b}]0;b\\u{7}\\u{9b}c\\u{202e}<|im_end|>"), "{shown:?}");
    // The two bytes of U+009B, and the byte 1B.
    let detokenize = ["detokenize", "-m", &qwen, "129", "252", "218"];
    assert_eq!(ember(&detokenize).ok().stdout, "\u{9b}\u{1b}");
    assert_eq!(visible(&on_terminal(&[], &detokenize)), "\\u{9b}\\u{1b}\n");
    let dump = ["run", "-m", &qwen, "--dump-prompt", "--no-stdin", "-f", messages.to_str().unwrap()];
    fs::write(&messages, "\u{1b}[2J").unwrap();
    assert!(visible(&on_terminal(&[], &dump)).contains("user\n\\u{1b}[2J<|im_end|>"));
    let json = visible(&on_terminal(&[], &[&dump[..], &["--json"]].concat()));
    assert!(json.contains(r"user\n\u001b[2J<|im_end|>"), "{json:?}");
}

#[test]
fn messages_that_quote_a_file_do_not_drive_the_terminal() {
    let folder = vision_support::folder("terminal-errors");
    let path = folder.join("escape\u{1b}[31m.gguf");
    let gguf = Gguf::open(model("qwen2/f32.gguf")).unwrap();
    let escape = "x\u{1b}[31m\u{9b}1m";
    let mut file = GgufFile::of(&gguf);
    for (key, value) in &mut file.metadata {
        if key == "general.architecture" {
            *value = Value::from(escape);
        }
    }
    file.metadata.push((escape.to_owned(), Value::from(vec![escape.to_owned()])));
    fs::write(&path, file.into_bytes()).unwrap();
    let path = path.to_str().unwrap();
    let list = folder.join("ids.txt");
    fs::write(&list, format!("[{{\"role\": \"{escape}\"")).unwrap();
    for (args, quoted) in [
        (vec!["run", "-m", path, "hi"], "x\\u{1b}[31m\\u{9b}1m"),
        (vec!["info", path], "x\\u{1b}[31m\\u{9b}1m (array of 1 string): [\"x\\u{1b}[31m\\u{9b}1m\"]"),
        (vec!["info", "--json", path], r"x\u001b[31m\u009b1m"),
        (vec!["render", "-m", path, list.to_str().unwrap()], "ids.txt: "),
    ] {
        let shown = on_terminal(&[DUMB], &args);
        assert!(shown.contains(quoted) && !shown.contains(is_obeyed), "{args:?}: {shown:?}");
    }
}

#[test]
fn a_dumb_terminal_gets_no_escapes() {
    let qwen = model("qwen3-tied/f32.gguf");
    let chat = |variables: &[(&str, &str)]| {
        let mut chat = OnTerminal::start(variables, &["chat", "-m", &qwen, "--max-tokens", "3"]);
        chat.type_after("Ctrl-D leaves", "hi");
        chat.type_after("answer 3 tokens", "/nothing");
        chat.type_after("no command /nothing", "/exit");
        chat.finish()
    };
    let dim = "\u{1b}[2m[prompt ";
    let shown = chat(&[DUMB]);
    assert!(shown.contains("[prompt ") && !shown.contains(is_obeyed), "{shown:?}");
    let shown = chat(&[("NO_COLOR", "1")]);
    assert!(shown.contains("[prompt ") && !shown.contains(dim), "{shown:?}");
    let shown = chat(&[]);
    assert!(shown.contains(dim), "other terminals get them: {shown:?}");
}

#[test]
fn help_and_mistakes_have_colours_only_where_they_may() {
    let qwen = model("qwen3-tied/f32.gguf");
    for args in [&["--help"][..], &["run"], &["detokenize", "-m", &qwen, "b"]] {
        for variable in [DUMB, ("NO_COLOR", "1")] {
            let plain = on_terminal(&[variable, ("CLICOLOR", "1")], args);
            assert!(plain.contains("Usage: ") && !plain.contains(is_obeyed), "{variable:?}: {plain:?}");
        }
        assert!(on_terminal(&[], args).contains("\u{1b}["));
    }
}

#[test]
fn a_dumb_terminal_gets_no_progress_bar() {
    let folder = vision_support::folder("terminal-bar");
    let out = folder.join("out.gguf");
    // Minutes of work, of which seconds are done.
    let args = ["synth", "--arch", "qwen3", "--preset", "0.6b", "--type", "q8_0", out.to_str().unwrap()];
    let mut bar = OnTerminal::start(&[], &args);
    bar.wait_for("writing MiB [");
    bar.interrupt();
    assert!(bar.finish().contains(is_obeyed));
    let dumb = OnTerminal::start(&[DUMB], &args);
    std::thread::sleep(Duration::from_secs(4));
    dumb.interrupt();
    let shown = dumb.finish();
    assert!(!shown.contains(is_obeyed), "{shown:?}");
    fs::remove_dir_all(folder).unwrap();
}

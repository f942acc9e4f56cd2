//! Runs the `ember` binary on the tiny models of tests/fixtures.
#![allow(dead_code, reason = "each test binary uses a part")]
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The result of a run of the binary.
pub struct Ran {
    /// Exit status.
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// The whole of stdout as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}\n{}", self.stdout, self.stderr))
    }

    /// Fails the test unless the run succeeded.
    pub fn ok(self) -> Self {
        assert_eq!(self.status, 0, "{}", self.stderr);
        self
    }
}

/// A file of tests/fixtures, as an argument.
pub fn fixture(path: &str) -> String {
    ember_test_support::fixture(path).to_str().expect("a UTF-8 path").to_owned()
}

/// A file of tests/fixtures/models.
pub fn model(path: &str) -> String {
    fixture(&format!("models/{path}"))
}

/// An unused path for a file that a test writes.
pub fn scratch(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()));
    let _absent = std::fs::remove_file(&path);
    path
}

/// Starts the binary with pipes on all three streams.
pub fn spawn(args: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_ember"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for a process that [`spawn`] started.
pub fn finish(child: Child) -> Ran {
    let output = child.wait_with_output().unwrap();
    Ran {
        status: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs the binary to its end with `input` on stdin.
pub fn ember_with(args: &[&str], input: &str) -> Ran {
    let mut child = spawn(args);
    // A run that fails early does not read its input.
    let _written = child.stdin.take().unwrap().write_all(input.as_bytes());
    finish(child)
}

/// Runs the binary to its end with nothing on stdin.
pub fn ember(args: &[&str]) -> Ran {
    ember_with(args, "")
}

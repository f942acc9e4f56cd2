//! Reading the user's lines, from a terminal with editing and history or from a pipe.
use crate::cli::text_input::without_line_break;
use anyhow::{Context, Result};
use ember_loaders::text;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use std::io::{IsTerminal, stdin};
use std::path::{Path, PathBuf};

const PROMPT: &str = "> ";
const CONTINUATION: &str = ". ";

/// The source of the user's lines.
pub enum LineReader {
    /// A terminal, with the file that keeps the history when there is a place for it.
    Terminal(Box<DefaultEditor>, Option<PathBuf>),
    /// A pipe or a file.
    Piped,
}

/// The outcome of waiting for the user.
#[derive(Debug, PartialEq, Eq)]
pub enum Entry {
    /// A whole message or command, of one line or several.
    Text(String),
    /// Ctrl-C while typing.
    Cancelled,
    /// Ctrl-D, or the end of the pipe.
    End,
}

impl LineReader {
    /// A reader of the process's stdin.
    ///
    /// # Errors
    /// If the terminal cannot be set up.
    pub fn new() -> Result<Self> {
        if !stdin().is_terminal() {
            return Ok(Self::Piped);
        }
        let mut editor = DefaultEditor::new().context("cannot set up line editing")?;
        let history = history_file();
        if let Some(path) = &history {
            // There is none before the first chat.
            let _loaded = editor.load_history(path);
        }
        Ok(Self::Terminal(Box::new(editor), history))
    }

    /// Waits for the next message or command.
    ///
    /// # Errors
    /// If stdin cannot be read.
    pub fn read(&mut self) -> Result<Entry> {
        let mut lines = Lines::default();
        loop {
            let line = match self.read_line(if lines.is_empty() { PROMPT } else { CONTINUATION })? {
                Entry::Text(line) => line,
                // The pipe ended within a message: what there is of it is the message.
                Entry::End if !lines.is_empty() => return Ok(Entry::Text(lines.join())),
                other => return Ok(other),
            };
            if let Some(text) = lines.push(&line) {
                self.remember(&text);
                return Ok(Entry::Text(text));
            }
        }
    }

    fn read_line(&mut self, prompt: &str) -> Result<Entry> {
        match self {
            Self::Terminal(editor, _) => match editor.readline(prompt) {
                Ok(line) => Ok(Entry::Text(line)),
                Err(ReadlineError::Interrupted) => Ok(Entry::Cancelled),
                Err(ReadlineError::Eof) => Ok(Entry::End),
                Err(error) => Err(error).context("cannot read from the terminal"),
            },
            Self::Piped => {
                let line = text::read_line(stdin().lock()).context("cannot read stdin")?;
                Ok(line.map_or(Entry::End, |line| Entry::Text(without_line_break(line))))
            }
        }
    }

    fn remember(&mut self, text: &str) {
        let Self::Terminal(editor, history) = self else { return };
        if text.trim().is_empty() {
            return;
        }
        // A chat without a history is better than none: the disk may be full or read-only.
        let _added = editor.add_history_entry(text);
        if let Some(path) = history {
            let _saved = save_history(editor, path);
        }
    }
}

fn save_history(editor: &mut DefaultEditor, path: &Path) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    Ok(editor.save_history(path)?)
}

/// `ember/chat_history` in the folder for such files: `$XDG_STATE_HOME`, `~/.local/state` or `%LOCALAPPDATA%`.
fn history_file() -> Option<PathBuf> {
    let folder =
        |variable: &str| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = if cfg!(windows) {
        folder("LOCALAPPDATA")
    } else {
        folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")))
    };
    Some(state?.join("ember").join("chat_history"))
}

/// The lines of one message: a trailing backslash joins the next line, `"""` encloses any number of them.
#[derive(Default)]
struct Lines {
    lines: Vec<String>,
    quoted: bool,
}

const QUOTE: &str = "\"\"\"";

impl Lines {
    fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Adds a line; the message when it is complete.
    fn push(&mut self, line: &str) -> Option<String> {
        let mut line = line;
        if self.is_empty()
            && let Some(rest) = line.trim_start().strip_prefix(QUOTE)
        {
            self.quoted = true;
            line = rest;
        }
        let open = if self.quoted {
            match line.trim_end().strip_suffix(QUOTE) {
                Some(rest) => {
                    line = rest;
                    false
                }
                None => true,
            }
        } else if let Some(rest) = line.strip_suffix('\\') {
            line = rest;
            true
        } else {
            false
        };
        self.lines.push(line.to_owned());
        (!open).then(|| self.join())
    }

    /// All lines; those that only held an opening or closing quote are not part of the message.
    fn join(&self) -> String {
        let text = self.lines.join("\n");
        if self.quoted { text.trim_matches('\n').to_owned() } else { text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(lines: &[&str]) -> String {
        let mut reader = Lines::default();
        let (last, open) = lines.split_last().unwrap();
        for line in open {
            assert_eq!(reader.push(line), None, "{line} ended the message");
        }
        reader.push(last).unwrap()
    }

    #[test]
    fn one_line_is_a_message() {
        assert_eq!(message(&["hello"]), "hello");
        assert_eq!(message(&[""]), "");
    }

    #[test]
    fn a_backslash_continues() {
        assert_eq!(message(&["a \\", "b\\", "c"]), "a \nb\nc");
    }

    #[test]
    fn quotes_enclose_lines() {
        assert_eq!(message(&["\"\"\"", "a\\", "", "b", "\"\"\""]), "a\\\n\nb");
        assert_eq!(message(&["\"\"\"a", "b\"\"\""]), "a\nb");
        assert_eq!(message(&["\"\"\"a\"\"\""]), "a");
    }
}

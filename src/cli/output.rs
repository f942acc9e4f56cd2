//! Output of answers on the two streams, and the end of a pipe that nobody reads any more.
use ember::chat::Omission;
use serde::Serialize;
use std::io::{self, IsTerminal, Write};

const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";

/// Shows an answer as it arrives: the answer on stdout, the reasoning before it on stderr (dim on a terminal), so
/// that a pipe carries the answer alone.
pub struct AnswerWriter<O = io::Stdout, E = io::Stderr> {
    stdout: O,
    stderr: E,
    dim: bool,
    open_line: Option<Stream>,
}

/// The stream whose last line has no end yet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stream {
    Answer,
    Reasoning,
}

impl AnswerWriter {
    /// A writer to the process's own streams.
    pub fn new() -> Self {
        Self::over(io::stdout(), io::stderr(), styled(&io::stderr()))
    }
}

impl<O: Write, E: Write> AnswerWriter<O, E> {
    fn over(stdout: O, stderr: E, dim: bool) -> Self {
        Self { stdout, stderr, dim, open_line: None }
    }

    /// Writes a piece of the answer.
    ///
    /// # Errors
    /// If stdout cannot be written to.
    pub fn answer(&mut self, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        if self.open_line == Some(Stream::Reasoning) {
            self.finish()?;
        }
        self.open_line = (!text.ends_with('\n')).then_some(Stream::Answer);
        self.stdout.write_all(text.as_bytes())?;
        self.stdout.flush()
    }

    /// Writes a piece of the reasoning.
    ///
    /// # Errors
    /// If stderr cannot be written to.
    pub fn reasoning(&mut self, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.open_line = (!text.ends_with('\n')).then_some(Stream::Reasoning);
        match self.dim {
            true => write!(self.stderr, "{DIM}{text}{RESET}"),
            false => self.stderr.write_all(text.as_bytes()),
        }
    }

    /// Ends the line that is open, if one is.
    ///
    /// # Errors
    /// If its stream cannot be written to.
    pub fn finish(&mut self) -> io::Result<()> {
        match self.open_line.take() {
            Some(Stream::Answer) => {
                self.stdout.write_all(b"\n")?;
                self.stdout.flush()
            }
            Some(Stream::Reasoning) => self.stderr.write_all(b"\n"),
            None => Ok(()),
        }
    }
}

/// Writes a value as one line of JSON.
///
/// # Errors
/// If `out` cannot be written to.
pub fn json_line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value).map_err(io::Error::from)?;
    writeln!(out)
}

/// Says on stderr what the chat template left out of a prompt.
pub fn warn_of_omissions(omissions: &[Omission]) {
    for omission in omissions {
        eprintln!("warning: {omission}");
    }
}

/// The text in dim letters, when stderr may show them.
pub fn dim(text: &str) -> String {
    if styled(&io::stderr()) { format!("{DIM}{text}{RESET}") } else { text.to_owned() }
}

/// True if escape sequences may be written: a terminal, and the user has not set `NO_COLOR`.
pub fn styled(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// True if the error is that the reader of a pipe has gone.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(
        dim: bool,
        act: impl FnOnce(&mut AnswerWriter<&mut Vec<u8>, &mut Vec<u8>>),
    ) -> (String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        act(&mut AnswerWriter::over(&mut out, &mut err, dim));
        (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    #[test]
    fn reasoning_stays_out_of_stdout() {
        let (out, err) = written(false, |w| {
            w.reasoning("hm").unwrap();
            w.reasoning("m").unwrap();
            w.answer("yes").unwrap();
            w.finish().unwrap();
        });
        assert_eq!((out.as_str(), err.as_str()), ("yes\n", "hmm\n"));
    }

    #[test]
    fn a_closed_line_is_not_closed_again() {
        let (out, err) = written(true, |w| {
            w.reasoning("a\n").unwrap();
            w.answer("b\n").unwrap();
            w.answer("").unwrap();
            w.finish().unwrap();
        });
        assert_eq!((out.as_str(), err.as_str()), ("b\n", "\u{1b}[2ma\n\u{1b}[0m"));
    }
}

//! Output of answers on the two streams, and the end of a pipe that nobody reads any more.
use super::visible::{is_obeyed, shown};
use ember::chat::Omission;
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;
use std::io::{self, IsTerminal, Write};

const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";

/// Shows an answer as it arrives: the answer on stdout, the reasoning before it on stderr (dim on a terminal), so
/// that a pipe carries the answer alone. What would drive a terminal is shown there and not obeyed.
pub struct AnswerWriter<O = io::Stdout, E = io::Stderr> {
    stdout: O,
    stderr: E,
    stdout_is_terminal: bool,
    stderr_is_terminal: bool,
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
        let (stdout, stderr) = (io::stdout(), io::stderr());
        let (stdout_is_terminal, stderr_is_terminal) = (stdout.is_terminal(), stderr.is_terminal());
        let dim = styled(&stderr);
        Self { stdout, stderr, stdout_is_terminal, stderr_is_terminal, dim, open_line: None }
    }
}

impl<O: Write, E: Write> AnswerWriter<O, E> {
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
        self.stdout.write_all(shown(self.stdout_is_terminal, text).as_bytes())?;
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
        let text = shown(self.stderr_is_terminal, text);
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
    value.serialize(&mut Serializer::with_formatter(&mut *out, VisibleJson)).map_err(io::Error::from)?;
    writeln!(out)
}

/// Says on stderr what the chat template left out of a prompt.
pub fn warn_of_omissions(omissions: &[Omission]) {
    let is_terminal = io::stderr().is_terminal();
    for omission in omissions {
        eprintln!("warning: {}", shown(is_terminal, &omission.to_string()));
    }
}

/// JSON that also escapes the characters that only a terminal minds: DEL, C1 and turns of direction.
struct VisibleJson;

impl Formatter for VisibleJson {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, text: &str) -> io::Result<()> {
        text.split_inclusive(is_obeyed).try_for_each(|part| {
            let obeyed = part.chars().next_back().filter(|&c| is_obeyed(c));
            out.write_all(&part.as_bytes()[..part.len() - obeyed.map_or(0, char::len_utf8)])?;
            // None of them is beyond U+FFFF.
            obeyed.map_or(Ok(()), |c| write!(out, "\\u{:04x}", u32::from(c)))
        })
    }
}

/// Writes a line to stderr, in dim letters when it may show them.
pub fn dim_line(text: &str) {
    let mut stderr = io::stderr().lock();
    let (dim, reset) = if styled(&stderr) { (DIM, RESET) } else { ("", "") };
    let line = format!("{dim}{}{reset}\n", shown(stderr.is_terminal(), text));
    // Nothing is left to do when stderr is gone.
    let _written = stderr.write_all(line.as_bytes());
}

/// True if escape sequences may be written to the stream.
pub fn styled(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && may_style()
}

/// True if terminals may be sent escape sequences: unless the user has set `NO_COLOR`, or they know none.
pub fn may_style() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && !is_dumb()
}

/// True if the terminal knows no escape sequences: `TERM` is `dumb`, or says nothing where it should.
fn is_dumb() -> bool {
    match std::env::var_os("TERM") {
        Some(term) => term.is_empty() || term == "dumb",
        None => !cfg!(windows),
    }
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

    /// Both streams after `act`, when they are terminals or when they are not.
    fn written(
        is_terminal: bool,
        act: impl FnOnce(&mut AnswerWriter<&mut Vec<u8>, &mut Vec<u8>>),
    ) -> (String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        act(&mut AnswerWriter {
            stdout: &mut out,
            stderr: &mut err,
            stdout_is_terminal: is_terminal,
            stderr_is_terminal: is_terminal,
            dim: is_terminal,
            open_line: None,
        });
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

    #[test]
    fn a_model_does_not_drive_the_terminal_and_a_pipe_gets_its_bytes() {
        let pieces = ["\u{1b}", "]52;c;aGk=", "\u{7}a\r", "b\u{9b}", "31m\n\t"];
        let said = |is_terminal| {
            written(is_terminal, |w| {
                pieces.iter().for_each(|piece| w.answer(piece).unwrap());
                pieces.iter().for_each(|piece| w.reasoning(piece).unwrap());
            })
        };
        let raw = pieces.concat();
        assert_eq!(said(false), (raw.clone(), raw));
        let (out, err) = said(true);
        let shown = "\\u{1b}]52;c;aGk=\\u{7}a\\rb\\u{9b}31m\n\t";
        assert_eq!(out, shown);
        assert_eq!(err.replace(DIM, "").replace(RESET, ""), shown);
    }

    #[test]
    fn json_escapes_what_a_terminal_obeys() {
        let text = "\u{1b}[1m\u{9b}1m\u{7f}\u{202e}\n\"é🙂";
        let mut line = Vec::new();
        json_line(&mut line, &[text]).unwrap();
        let line = String::from_utf8(line).unwrap();
        assert_eq!(line, "[\"\\u001b[1m\\u009b1m\\u007f\\u202e\\n\\\"é🙂\"]\n");
        assert_eq!(serde_json::from_str::<[String; 1]>(&line).unwrap(), [text]);
    }
}

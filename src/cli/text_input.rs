//! Texts that come from files and from stdin.
use super::out_file::protect_text;
use anyhow::{Context, Result};
use ember_loaders::text::{self, MAX_TEXT_BYTES, TextError};
use std::io::{self, ErrorKind, IsTerminal, Read, stdin};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

/// Time that a pipe may stay silent when it need not bring anything.
const PATIENCE: Duration = Duration::from_secs(3);
const CHUNK_BYTES: usize = 64 << 10;

/// The whole of a text file, which is then an input that no output may replace; `-` is stdin.
///
/// # Errors
/// If it cannot be read or is not UTF-8.
pub fn read_text(path: &Path) -> Result<String> {
    if is_stdin(path) {
        return text::read_from(stdin().lock()).context("cannot read stdin");
    }
    protect_text(path);
    text::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The text without its last line break.
pub fn without_line_break(text: String) -> String {
    match text.strip_suffix('\n') {
        Some(line) => line.strip_suffix('\r').unwrap_or(line).to_owned(),
        None => text,
    }
}

/// True for `-`, which stands for stdin.
pub fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// Stdin, when something is piped into it: nobody waits for a terminal by mistake.
///
/// # Errors
/// If it cannot be read or is not UTF-8.
pub fn read_piped_stdin() -> Result<Option<String>> {
    if stdin().is_terminal() { Ok(None) } else { read_text(Path::new("-")).map(Some) }
}

/// Text that is piped in beside a prompt; `None` when there is nothing but blanks, or when nothing comes for some seconds: many programs
/// leave a pipe open that they never use.
///
/// # Errors
/// If stdin cannot be read or is not UTF-8.
pub fn read_stdin_beside_prompt() -> Result<Option<String>> {
    if stdin().is_terminal() {
        return Ok(None);
    }
    let seconds = PATIENCE.as_secs();
    let bytes = collect(&chunks_of(stdin()), PATIENCE, MAX_TEXT_BYTES, &mut |silence| match silence {
        Silence::FromTheStart => {
            eprintln!(
                "stdin is open, but nothing came for {seconds} s: going on without it (--no-stdin does not wait)"
            );
        }
        Silence::Within { bytes } => {
            eprintln!("stdin stopped after {bytes} bytes: waiting for its end (--no-stdin leaves it out)");
        }
    });
    let text = text::decode(bytes.context("cannot read stdin")?).context("stdin")?;
    Ok((!text.trim().is_empty()).then_some(text))
}

/// A pipe that stays silent.
#[derive(Debug, PartialEq, Eq)]
enum Silence {
    FromTheStart,
    Within { bytes: usize },
}

/// Reads a stream in a thread of its own, which nobody has to wait for; an empty chunk is the end.
fn chunks_of(mut reader: impl Read + Send + 'static) -> Receiver<io::Result<Vec<u8>>> {
    // A bound, so that what is not wanted is not read either.
    let (sender, chunks) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        loop {
            let mut chunk = vec![0; CHUNK_BYTES];
            let read = match reader.read(&mut chunk) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read,
            };
            let goes_on = matches!(read, Ok(1..));
            let chunk = read.map(|n| {
                chunk.truncate(n);
                chunk
            });
            if sender.send(chunk).is_err() || !goes_on {
                return;
            }
        }
    });
    chunks
}

/// All chunks; nothing when the first does not come in time. A stream that has begun is waited for. `silent` hears once
/// about waiting, at the start or later.
fn collect(
    chunks: &Receiver<io::Result<Vec<u8>>>,
    patience: Duration,
    limit: usize,
    silent: &mut dyn FnMut(Silence),
) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut is_told = false;
    loop {
        match chunks.recv_timeout(patience) {
            Ok(chunk) => match chunk? {
                chunk if chunk.is_empty() => return Ok(bytes),
                chunk => bytes.extend(chunk),
            },
            Err(RecvTimeoutError::Timeout) if bytes.is_empty() => {
                silent(Silence::FromTheStart);
                return Ok(bytes);
            }
            Err(RecvTimeoutError::Timeout) => {
                if !std::mem::replace(&mut is_told, true) {
                    silent(Silence::Within { bytes: bytes.len() });
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("the reading thread is gone"));
            }
        }
        if bytes.len() > limit {
            return Err(TextError::TooLong { limit }.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::Sender;

    /// Collects what `act` sends; with the silences that were told.
    fn collected(
        limit: usize,
        act: impl FnOnce(Sender<io::Result<Vec<u8>>>) + Send + 'static,
    ) -> (io::Result<Vec<u8>>, Vec<Silence>) {
        let (sender, chunks) = mpsc::channel();
        let mut told = Vec::new();
        let sending = std::thread::spawn(move || act(sender));
        let bytes = collect(&chunks, Duration::from_millis(50), limit, &mut |silence| told.push(silence));
        drop(chunks);
        sending.join().unwrap();
        (bytes, told)
    }

    #[test]
    fn a_silent_pipe_is_left_and_one_that_began_is_waited_for() {
        let pause = || std::thread::sleep(Duration::from_millis(300));
        let (bytes, told) = collected(100, move |_open| pause());
        assert_eq!((bytes.unwrap(), told), (Vec::new(), vec![Silence::FromTheStart]));
        let (bytes, told) = collected(100, move |sender| {
            for chunk in [&b"a"[..], b"bc", b""] {
                sender.send(Ok(chunk.to_vec())).unwrap();
                pause();
            }
        });
        assert_eq!((bytes.unwrap(), told), (b"abc".to_vec(), vec![Silence::Within { bytes: 1 }]));
    }

    #[test]
    fn an_end_without_text_is_silent() {
        let (bytes, told) = collected(100, |sender| sender.send(Ok(Vec::new())).unwrap());
        assert_eq!((bytes.unwrap(), told), (Vec::new(), Vec::new()));
    }

    #[test]
    fn endless_text_and_failures_end_the_reading() {
        let (bytes, _) = collected(1000, |sender| while sender.send(Ok(vec![b'a'; 64])).is_ok() {});
        assert_eq!(bytes.unwrap_err().to_string(), "more than 1000 bytes of text, which no context holds");
        let (bytes, _) = collected(100, |sender| sender.send(Err(ErrorKind::NotConnected.into())).unwrap());
        assert_eq!(bytes.unwrap_err().kind(), ErrorKind::NotConnected);
    }

    #[test]
    fn a_stream_is_read_to_its_end() {
        let text = "é".repeat(CHUNK_BYTES);
        let chunks = chunks_of(io::Cursor::new(text.clone().into_bytes()));
        let bytes = collect(&chunks, Duration::from_secs(60), 1 << 20, &mut |_| {}).unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), text);
    }
}

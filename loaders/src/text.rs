//! Text files: UTF-8, with or without a byte order mark, which is no part of the text.
use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::Path;
use thiserror::Error;

/// Bytes of a text at most: far more than the largest context holds.
pub const MAX_TEXT_BYTES: usize = 256 << 20;

const BYTE_ORDER_MARK: char = '\u{feff}';

/// The reason bytes are no text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TextError {
    /// The byte order mark of UTF-16.
    #[error("UTF-16 text (it begins with {mark}): save it as UTF-8")]
    Utf16 {
        /// The mark, in hexadecimal.
        mark: &'static str,
    },
    /// Another encoding, or no text at all.
    #[error("not UTF-8 text (the byte at offset {offset} is not part of a character)")]
    NotUtf8 {
        /// Offset of the first wrong byte.
        offset: usize,
    },
    /// More than [`MAX_TEXT_BYTES`].
    #[error("more than {limit} bytes of text, which no context holds")]
    TooLong {
        /// The limit.
        limit: usize,
    },
}

impl From<TextError> for io::Error {
    fn from(error: TextError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// The text of a file.
///
/// # Errors
/// If the file cannot be read; [`TextError`], inside of the I/O error, if it is no text.
pub fn read(path: &Path) -> io::Result<String> {
    read_from(File::open(path)?)
}

/// The text of a stream, read to its end.
///
/// # Errors
/// As [`read`].
pub fn read_from(reader: impl Read) -> io::Result<String> {
    read_up_to(reader, MAX_TEXT_BYTES)
}

/// The next line of a stream, with its line break; `None` at the end. A byte order mark before it is dropped.
///
/// # Errors
/// As [`read`].
pub fn read_line(reader: impl BufRead) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    reader.take(MAX_TEXT_BYTES as u64 + 1).read_until(b'\n', &mut bytes)?;
    let text = within(bytes, MAX_TEXT_BYTES)?;
    Ok((!text.is_empty()).then_some(text))
}

fn read_up_to(reader: impl Read, limit: usize) -> io::Result<String> {
    let mut bytes = Vec::new();
    reader.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    Ok(within(bytes, limit)?)
}

fn within(bytes: Vec<u8>, limit: usize) -> Result<String, TextError> {
    if bytes.len() > limit { Err(TextError::TooLong { limit }) } else { decode(bytes) }
}

/// The text that bytes stand for.
///
/// # Errors
/// [`TextError::Utf16`], [`TextError::NotUtf8`].
pub fn decode(bytes: Vec<u8>) -> Result<String, TextError> {
    match *bytes {
        [0xff, 0xfe, ..] => return Err(TextError::Utf16 { mark: "FF FE" }),
        [0xfe, 0xff, ..] => return Err(TextError::Utf16 { mark: "FE FF" }),
        _ => {}
    }
    let mut text = String::from_utf8(bytes)
        .map_err(|error| TextError::NotUtf8 { offset: error.utf8_error().valid_up_to() })?;
    if text.starts_with(BYTE_ORDER_MARK) {
        text.drain(..BYTE_ORDER_MARK.len_utf8());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_text() {
        let text = |bytes: &[u8]| decode(bytes.to_vec()).unwrap();
        assert_eq!(text(b"\xef\xbb\xbf[1]"), "[1]");
        assert_eq!(text(b"\xef\xbb\xbf"), "");
        assert_eq!(text(b""), "");
        assert_eq!(text("a\u{feff}b".as_bytes()), "a\u{feff}b", "only at the start");
        assert_eq!(text("\u{feff}\u{feff}a".as_bytes()), "\u{feff}a", "only once");
    }

    #[test]
    fn other_encodings_are_refused_by_name() {
        let error = |bytes: &[u8]| decode(bytes.to_vec()).unwrap_err().to_string();
        assert_eq!(error(b"\xff\xfeh\0"), "UTF-16 text (it begins with FF FE): save it as UTF-8");
        assert_eq!(error(b"\xfe\xff\0h"), "UTF-16 text (it begins with FE FF): save it as UTF-8");
        let latin1 = error(b"caf\xe9 noir");
        assert_eq!(latin1, "not UTF-8 text (the byte at offset 3 is not part of a character)");
    }

    #[test]
    fn lines_come_one_by_one() {
        let mut stream = &b"\xef\xbb\xbfone\r\n\ntwo"[..];
        let mut lines = std::iter::from_fn(|| read_line(&mut stream).unwrap());
        assert_eq!(
            [(); 4].map(|()| lines.next()),
            [Some("one\r\n"), Some("\n"), Some("two"), None].map(|line| line.map(str::to_owned))
        );
        assert!(read_line(&b"\xff\xfeh\0\n\0"[..]).unwrap_err().to_string().starts_with("UTF-16"));
    }

    #[test]
    fn an_endless_stream_is_not_read_to_its_end() {
        let error = read_up_to(io::repeat(b'a'), 1000).unwrap_err();
        assert_eq!(error.to_string(), "more than 1000 bytes of text, which no context holds");
        assert_eq!(read_up_to(&b"12345"[..], 5).unwrap(), "12345");
    }
}

//! Paths as people type them, or drop them on a terminal.
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The path that a word of the command line stands for: the shell has undone its own quoting, so only `file://` is left.
pub fn path_or_file_uri(text: OsString) -> PathBuf {
    text.to_str().and_then(of_file_uri).unwrap_or_else(|| text.into())
}

/// The path that a line typed into a chat stands for: a file of just that name if there is one, else without its quotes and
/// backslashes, from the home folder on after `~/`, or what a `file://` address names.
pub fn typed_path(text: &str, home: Option<&Path>) -> PathBuf {
    let literal = Path::new(text);
    if literal.exists() {
        return literal.to_owned();
    }
    let unquoted = unquoted(text).unwrap_or_else(|| text.to_owned());
    if let Some(path) = of_file_uri(&unquoted) {
        return path;
    }
    match (unquoted.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => unquoted.into(),
    }
}

/// The text without a shell's quoting; `None` when a quote stays open. On Windows the backslash separates folders.
fn unquoted(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '\\') if !cfg!(windows) => out.push(chars.next()?),
            (Some('"'), '\\') if !cfg!(windows) => match chars.next()? {
                escaped @ ('"' | '\\' | '$' | '`') => out.push(escaped),
                other => out.extend(['\\', other]),
            },
            (_, c) => out.push(c),
        }
    }
    quote.is_none().then_some(out)
}

/// The path of a `file://` address of this machine.
fn of_file_uri(text: &str) -> Option<PathBuf> {
    let (scheme, rest) = text.split_at_checked("file://".len())?;
    let rest = scheme.eq_ignore_ascii_case("file://").then_some(rest)?;
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    path.starts_with('/').then_some(())?;
    // file:///C:/a.png
    let has_drive = cfg!(windows) && path.as_bytes().get(2) == Some(&b':');
    path_of_bytes(percent_decoded(&path[usize::from(has_drive)..]))
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = (byte == b'%').then(|| hex_byte(after.get(..2)?)).flatten();
        out.push(escaped.unwrap_or(byte));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    out
}

fn hex_byte(digits: &[u8]) -> Option<u8> {
    let [high, low] = [digits[0], digits[1]].map(|digit| char::from(digit).to_digit(16));
    u8::try_from(high? * 16 + low?).ok()
}

#[cfg(unix)]
fn path_of_bytes(bytes: Vec<u8>) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    Some(OsString::from_vec(bytes).into())
}

#[cfg(not(unix))]
fn path_of_bytes(bytes: Vec<u8>) -> Option<PathBuf> {
    String::from_utf8(bytes).ok().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_as_they_are_typed() {
        for (text, expected) in [
            ("a.png", "a.png"),
            ("a b.png", "a b.png"),
            ("\"a b.png\"", "a b.png"),
            ("'/x/a b.png'", "/x/a b.png"),
            ("it's.png", "it's.png"),
            ("~/a.png", "/home/me/a.png"),
            ("'~/a b.png'", "/home/me/a b.png"),
            ("~a.png", "~a.png"),
            ("file:///x/a%20b.png", "/x/a b.png"),
            ("FILE://localhost/x/%C3%A9.png", "/x/é.png"),
            ("'file:///x/a%27b.png'", "/x/a'b.png"),
            ("file:///x/100%.png", "/x/100%.png"),
            ("file://elsewhere/a.png", "file://elsewhere/a.png"),
        ] {
            assert_eq!(typed_path(text, Some(Path::new("/home/me"))), PathBuf::from(expected), "{text}");
        }
        assert_eq!(typed_path("~/a.png", None), PathBuf::from("~/a.png"));
    }

    #[cfg(not(windows))]
    #[test]
    fn a_shells_quoting_is_undone() {
        for (text, expected) in [
            (r"/x/a\ b\(1\).png", "/x/a b(1).png"),
            (r"'/x/it'\''s here.png'", "/x/it's here.png"),
            (r#""/x/a\"b\c.png""#, r#"/x/a"b\c.png"#),
            (r"/x/a\\b.png", r"/x/a\b.png"),
            (r"/x/a.png\", r"/x/a.png\"),
        ] {
            assert_eq!(typed_path(text, None), PathBuf::from(expected), "{text}");
        }
    }

    #[test]
    fn a_word_of_the_command_line_may_be_an_address() {
        for (text, expected) in
            [("file:///x/a%20b.png", "/x/a b.png"), ("'a b.png'", "'a b.png'"), ("a%20b.png", "a%20b.png")]
        {
            assert_eq!(path_or_file_uri(text.into()), PathBuf::from(expected), "{text}");
        }
    }
}

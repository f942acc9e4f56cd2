//! Text of models and files on a terminal: what would drive the terminal is shown and not obeyed.
use std::borrow::Cow;
use std::io::IsTerminal;

/// True for a character that a terminal would obey: controls (C0 but for line breaks and tabs, DEL, C1), and those that turn
/// the direction of the text around them.
pub fn is_obeyed(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        _ => c.is_control(),
    }
}

/// The text with such characters as escapes: `\u{1b}`.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match is_obeyed(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown.into()
}

/// The text as it is written to a terminal, or to something else: there it stays as it is.
pub fn shown(is_terminal: bool, text: &str) -> Cow<'_, str> {
    if is_terminal { visible(text) } else { text.into() }
}

/// A line on stderr, for people. It takes the place of the standard macro in this folder, so that no message can bring the
/// text of a file or a model to a terminal unseen.
macro_rules! eprintln {
    ($($arg:tt)*) => {
        $crate::cli::visible::line_on_stderr(format!($($arg)*))
    };
}

/// Writes a line to stderr; nothing is left to do when that is gone.
pub fn line_on_stderr(text: String) {
    use std::io::Write;
    let mut stderr = std::io::stderr().lock();
    let line = format!("{}\n", shown(stderr.is_terminal(), &text));
    let _written = stderr.write_all(line.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_escaped() {
        for (text, shown) in [
            ("\u{1b}[31mred", "\\u{1b}[31mred"),
            ("\u{1b}]52;c;aGk=\u{7}", "\\u{1b}]52;c;aGk=\\u{7}"),
            ("a\r\u{8}\0\u{7f}b", "a\\r\\u{8}\\u{0}\\u{7f}b"),
            ("\u{80}\u{9b}31m\u{9f}", "\\u{80}\\u{9b}31m\\u{9f}"),
            ("\u{202e}cod.exe\u{2069}", "\\u{202e}cod.exe\\u{2069}"),
        ] {
            assert_eq!(visible(text), shown);
        }
    }

    #[test]
    fn text_stays_as_it_is() {
        let text = "tab\tline\né 日本 \u{a0}\u{200d}🙂 \\u{1b} \u{5d0}\u{200f}";
        assert!(matches!(visible(text), Cow::Borrowed(same) if same == text));
    }
}

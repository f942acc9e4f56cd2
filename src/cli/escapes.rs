//! Escapes in arguments, for texts that a shell makes hard to write: `\n`, `\t`, `\r`, `\\`, `\xHH`, `\u{H…}`.

/// The text that an argument stands for.
///
/// # Errors
/// Names the escape that is none.
pub fn unescaped(text: &str) -> Result<String, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.extend_from_slice(before.as_bytes());
        rest = after;
        let end = match rest.chars().next() {
            Some('u') => rest.find('}').map_or(rest.len(), |at| at + 1),
            Some('x') => rest.char_indices().nth(3).map_or(rest.len(), |(at, _)| at),
            other => other.map_or(0, char::len_utf8),
        };
        let (escape, after) = rest.split_at(end);
        let bytes = bytes_of(escape).ok_or_else(|| {
            format!("\\{escape} is no escape: there are \\n, \\t, \\r, \\xHH and \\u{{H..}}, and \\\\ is a backslash")
        })?;
        out.extend(bytes);
        rest = after;
    }
    out.extend_from_slice(rest.as_bytes());
    String::from_utf8(out).map_err(|_| "its \\x escapes are no whole characters in UTF-8".into())
}

/// The bytes that an escape, without its backslash, stands for.
fn bytes_of(escape: &str) -> Option<Vec<u8>> {
    let hexadecimal = |digits: &str| {
        let all = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        all.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
    };
    Some(match escape {
        "n" => b"\n".to_vec(),
        "t" => b"\t".to_vec(),
        "r" => b"\r".to_vec(),
        "\\" => b"\\".to_vec(),
        _ => match escape.split_at_checked(1)? {
            ("x", digits) if digits.len() == 2 => vec![u8::try_from(hexadecimal(digits)?).ok()?],
            ("u", braced) => {
                let digits = braced.strip_prefix('{')?.strip_suffix('}')?;
                char::from_u32(hexadecimal(digits)?)?.to_string().into_bytes()
            }
            _ => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_stand_for_their_characters() {
        for (text, expected) in [
            ("END", "END"),
            (r"\n", "\n"),
            (r"a\n\n\tb\r", "a\n\n\tb\r"),
            (r"\\n", r"\n"),
            (r"\\boxed{\\", r"\boxed{\"),
            (r"\x41\x0a", "A\n"),
            (r"\xe2\x82\xacuro", "€uro"),
            (r"\u{1F642}!\u{a}", "🙂!\n"),
            ("é日\n", "é日\n"),
        ] {
            assert_eq!(unescaped(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_escape_is_named() {
        for (text, named) in [
            (r"a\boxed", r"\b is"),
            ("a\\", r"\ is"),
            (r"\x4", r"\x4 is"),
            (r"\xg0", r"\xg0 is"),
            (r"\x+4", r"\x+4 is"),
            (r"\u{d800}", r"\u{d800} is"),
            (r"\u41", r"\u41 is"),
            (r"\u{}", r"\u{} is"),
            (r"\é", r"\é is"),
        ] {
            let error = unescaped(text).unwrap_err();
            assert!(error.starts_with(named) && error.contains(r"\\ is a backslash"), "{text}: {error}");
        }
        assert!(unescaped(r"\xff").unwrap_err().contains("no whole characters"));
    }
}

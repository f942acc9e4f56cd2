//! Python's text of values: `str()` and `repr()`.

use minijinja::value::{Value, ValueKind};

/// `str(value)`: what `{{ value }}`, `|string` and `join` print.
pub(super) fn str(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.into(),
        None if value.is_undefined() => String::new(),
        None => repr(value),
    }
}

/// `repr(value)`.
pub(super) fn repr(value: &Value) -> String {
    match value.kind() {
        ValueKind::String => repr_str(value.as_str().expect("a string has text")),
        ValueKind::Number if !value.is_integer() => {
            f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float)
        }
        ValueKind::Seq | ValueKind::Iterable if value.len().is_some() => repr_list(value),
        ValueKind::Map => repr_dict(value),
        _ => value.to_string(),
    }
}

fn repr_list(value: &Value) -> String {
    let items: Vec<String> = value.try_iter().into_iter().flatten().map(|item| repr(&item)).collect();
    let body = items.join(", ");
    match (value.is_tuple(), items.len()) {
        (true, 1) => format!("({body},)"),
        (true, _) => format!("({body})"),
        (false, _) => format!("[{body}]"),
    }
}

fn repr_dict(value: &Value) -> String {
    let pair = |key: Value| {
        let item = value.get_item(&key).unwrap_or_default();
        format!("{}: {}", repr(&key), repr(&item))
    };
    let items: Vec<String> = value.try_iter().into_iter().flatten().map(pair).collect();
    format!("{{{}}}", items.join(", "))
}

fn repr_str(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::with_capacity(text.len() + 2);
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if is_unprintable(c) => match c as u32 {
                code @ 0..=0xFF => out.push_str(&format!("\\x{code:02x}")),
                code => out.push_str(&format!("\\u{code:04x}")),
            },
            c => out.push(c),
        }
    }
    out.push(quote);
    out
}

/// Controls, odd spaces and invisible marks, which `repr` escapes. The guard's marks lie beyond and stay as they are.
fn is_unprintable(c: char) -> bool {
    let invisible = ['\u{ad}', '\u{feff}', '\u{2060}'].contains(&c) || ('\u{200b}'..='\u{200f}').contains(&c);
    c.is_control() || (c.is_whitespace() && c != ' ') || invisible
}

/// Shortest text that reads back as the same float, in Python's notation: `1.0`, `1e-07`, `1e+20`, `inf`, `nan`.
pub(super) fn float(x: f64) -> String {
    if x.is_nan() {
        return "nan".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = format!("{x:e}");
    let (digits, exponent) = scientific.split_once('e').expect("`{:e}` writes an exponent");
    let exponent: i32 = exponent.parse().expect("`{:e}` writes a decimal exponent");
    if (-4..16).contains(&exponent) {
        let plain = x.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

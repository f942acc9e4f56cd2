//! Filters and tests whose minijinja versions differ from jinja2's.

use super::python;
use minijinja::value::{Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind};

/// Replaces them in `env`.
pub(super) fn install(env: &mut Environment<'static>) {
    env.add_filter("string", |value: &Value| python::str(value));
    env.add_filter("trim", trim);
    env.add_filter("int", int);
    env.add_filter("float", float);
    env.add_filter(super::source::ITERATE, iterate);
    env.add_test("iterable", is_iterable);
    env.add_test("sequence", is_sequence);
    env.add_test("number", |value: &Value| matches!(value.kind(), ValueKind::Number | ValueKind::Bool));
}

/// Python strips the four separator controls too, which are not Unicode white space.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

fn trim(value: &Value, chars: Option<&str>) -> String {
    let text = python::str(value);
    match chars {
        Some(set) => text.trim_matches(|c| set.contains(c)).into(),
        None => text.trim_matches(is_space).into(),
    }
}

/// jinja2 falls back to the default, 0, where minijinja fails.
fn int(value: &Value, default: Option<Value>) -> Value {
    let default = default.unwrap_or_else(|| Value::from(0));
    let parsed = match value.kind() {
        ValueKind::Bool => Some(i128::from(value.is_true())),
        ValueKind::Number if value.is_integer() => return value.clone(),
        ValueKind::Number => f64::try_from(value.clone()).ok().and_then(truncate),
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            parse_int(text).or_else(|| parse_float(text).and_then(truncate))
        }
        _ => None,
    };
    parsed.map_or(default, Value::from)
}

fn float(value: &Value, default: Option<Value>) -> Value {
    let default = default.unwrap_or_else(|| Value::from(0.0));
    let parsed = match value.kind() {
        ValueKind::Bool => Some(f64::from(u8::from(value.is_true()))),
        ValueKind::Number => f64::try_from(value.clone()).ok(),
        ValueKind::String => parse_float(value.as_str().unwrap_or_default()),
        _ => None,
    };
    parsed.map_or(default, Value::from)
}

fn truncate(x: f64) -> Option<i128> {
    (x.is_finite() && x.abs() < 1e38).then_some(x as i128)
}

/// `int(text)`: surrounding space, a sign, and single underscores between digits are fine.
fn parse_int(text: &str) -> Option<i128> {
    strip_underscores(text)?.parse().ok()
}

fn parse_float(text: &str) -> Option<f64> {
    strip_underscores(text)?.parse().ok()
}

fn strip_underscores(text: &str) -> Option<String> {
    let text = text.trim_matches(is_space);
    let bytes = text.as_bytes();
    let digit = |index: Option<usize>| index.and_then(|i| bytes.get(i)).is_some_and(u8::is_ascii_digit);
    let misplaced = |(i, _): (usize, &u8)| !(digit(i.checked_sub(1)) && digit(Some(i + 1)));
    if bytes.iter().enumerate().filter(|(_, b)| **b == b'_').any(misplaced) {
        return None;
    }
    Some(text.replace('_', ""))
}

/// Python cannot iterate over None or numbers; an undefined value is an empty sequence.
fn is_iterable(value: &Value) -> bool {
    match value.kind() {
        ValueKind::None | ValueKind::Bool | ValueKind::Number => false,
        ValueKind::Undefined => true,
        _ => value.try_iter().is_ok(),
    }
}

/// jinja2 asks for a length and indexing, which strings, dicts and undefined have.
fn is_sequence(value: &Value) -> bool {
    match value.kind() {
        ValueKind::Undefined | ValueKind::String | ValueKind::Seq | ValueKind::Map => true,
        ValueKind::Iterable => value.len().is_some(),
        _ => false,
    }
}

/// The sequence that `for` loops over: refuses what Python refuses.
fn iterate(value: Value) -> Result<Value, Error> {
    if is_iterable(&value) {
        return Ok(value);
    }
    let problem = format!("for: a value of type {} cannot be iterated", value.kind());
    Err(Error::new(ErrorKind::InvalidOperation, problem))
}

//! minijinja set up as Hugging Face sets up jinja2, with Python's behaviour where the two differ.

mod filters;
mod json;
mod python;
mod source;
mod strings;
mod support;

use chrono::NaiveDateTime;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, Error, ErrorKind};
pub(super) use source::rewrite;
use std::fmt::Write as _;
pub(super) use support::{Unsupported, unsupported};

/// Bounds the work of one rendering, so that a hostile file's endless loop is an error. A test renders 2000 messages
/// within it, through mistral-common's v13 template.
const FUEL: u64 = 20_000_000;

/// An environment without templates.
pub(super) fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    env.set_syntax(syntax.expect("the default delimiters are valid"));
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_fuel(Some(FUEL));
    env.set_unknown_method_callback(strings::call_method);
    env.set_formatter(|out, _state, value| out.write_str(&python::str(value)).map_err(Error::from));
    env.add_filter("tojson", json::tojson);
    env.add_function("raise_exception", raise_exception);
    filters::install(&mut env);
    env
}

/// A template's own refusal, carried through minijinja's error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

fn raise_exception(message: &Value) -> Result<Value, Error> {
    let message = python::str(message);
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

/// The text given to `raise_exception`, if that is what stopped the rendering.
pub(super) fn raised_message(error: &Error) -> Option<&str> {
    let mut current: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = current {
        if let Some(Raised(message)) = error.downcast_ref() {
            return Some(message);
        }
        current = error.source();
    }
    None
}

/// A JSON value as templates see it; objects keep the order of their keys.
pub(super) fn value_of(json: &serde_json::Value) -> Value {
    use serde_json::Value as Json;
    match json {
        Json::Null => Value::from(()),
        Json::Bool(b) => Value::from(*b),
        Json::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(i), _) => Value::from(i),
            (None, Some(u)) => Value::from(u),
            (None, None) => Value::from(n.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(s) => Value::from(s.as_str()),
        Json::Array(items) => items.iter().map(value_of).collect(),
        Json::Object(map) => Value::from_pairs(map.iter().map(|(k, v)| (k.as_str(), value_of(v)))),
    }
}

/// `strftime_now(format)` at a fixed time.
pub(super) fn strftime_now(now: NaiveDateTime) -> Value {
    Value::from_function(move |format: &str| -> Result<String, Error> {
        let mut text = String::new();
        write!(text, "{}", now.format(format)).map_err(|_| {
            Error::new(ErrorKind::InvalidOperation, format!("strftime_now: unknown format `{format}`"))
        })?;
        Ok(text)
    })
}

/// The JSON text of a value, as Python's `json.dumps(value, ensure_ascii=False)` writes it.
pub(super) fn json_text(json: &serde_json::Value) -> String {
    json::text(&value_of(json), false)
}

/// The spellings of a text in a rendering: as it is, and inside the quotes of JSON and of Python.
pub(super) fn spellings(text: &str) -> [String; 4] {
    let value = Value::from(text);
    let inside = |quoted: String| quoted[1..quoted.len() - 1].to_owned();
    let json = [false, true].map(|ensure_ascii| inside(json::text(&value, ensure_ascii)));
    let [json, ascii] = json;
    [text.to_owned(), json, ascii, inside(python::repr(&value))]
}

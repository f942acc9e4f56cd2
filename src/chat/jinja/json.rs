//! `tojson` as Hugging Face defines it: Python's `json.dumps(value, ensure_ascii=False, …)`.

use super::python;
use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// Layout of the text, as the arguments of `json.dumps`.
struct Style {
    ensure_ascii: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// The filter: `value|tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)`.
pub(super) fn tojson(value: &Value, positional: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let style = Style::from_args(&positional, &kwargs)?;
    let mut out = String::new();
    style.write(&mut out, value, 0)?;
    Ok(Value::from(out))
}

/// The text of a value, in the default layout.
pub(super) fn text(value: &Value, ensure_ascii: bool) -> String {
    let style = Style {
        ensure_ascii,
        indent: None,
        item_separator: ", ".into(),
        key_separator: ": ".into(),
        sort_keys: false,
    };
    let mut out = String::new();
    style.write(&mut out, value, 0).expect("a value that was JSON has a JSON text");
    out
}

impl Style {
    fn from_args(positional: &[Value], kwargs: &Kwargs) -> Result<Self, Error> {
        let argument = |index: usize, name: &str| -> Result<Option<Value>, Error> {
            match positional.get(index) {
                Some(value) => Ok(Some(value.clone())),
                None => kwargs.get::<Option<Value>>(name),
            }
            .map(|value| value.filter(|v| !v.is_none() && !v.is_undefined()))
        };
        let indent = argument(1, "indent")?.map(|value| match value.as_usize() {
            Some(width) => " ".repeat(width.min(64)),
            None => python::str(&value),
        });
        let separators = argument(2, "separators")?;
        let (item_separator, key_separator) = match separators {
            Some(pair) => {
                (python::str(&pair.get_item_by_index(0)?), python::str(&pair.get_item_by_index(1)?))
            }
            None => (if indent.is_some() { "," } else { ", " }.into(), ": ".into()),
        };
        let flag = |value: Option<Value>| value.is_some_and(|v| v.is_true());
        let style = Self {
            ensure_ascii: flag(argument(0, "ensure_ascii")?),
            indent,
            item_separator,
            key_separator,
            sort_keys: flag(argument(3, "sort_keys")?),
        };
        kwargs.assert_all_used()?;
        Ok(style)
    }

    fn write(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => out.push_str(&number(value)),
            ValueKind::String => self.write_str(out, value.as_str().expect("a string has text")),
            ValueKind::Seq | ValueKind::Iterable => self.write_list(out, value, depth)?,
            ValueKind::Map => self.write_dict(out, value, depth)?,
            kind => {
                let problem = format!("tojson: a value of type {kind} is not JSON serializable");
                return Err(Error::new(ErrorKind::BadSerialization, problem));
            }
        }
        Ok(())
    }

    fn write_list(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        let items: Vec<Value> = value.try_iter()?.collect();
        if items.is_empty() {
            out.push_str("[]");
            return Ok(());
        }
        out.push('[');
        for (index, item) in items.iter().enumerate() {
            self.open_item(out, index, depth + 1);
            self.write(out, item, depth + 1)?;
        }
        self.close(out, ']', depth);
        Ok(())
    }

    fn write_dict(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if keys.is_empty() {
            out.push_str("{}");
            return Ok(());
        }
        if self.sort_keys {
            keys.sort();
        }
        out.push('{');
        for (index, key) in keys.iter().enumerate() {
            self.open_item(out, index, depth + 1);
            self.write_str(out, &key_text(key));
            out.push_str(&self.key_separator);
            self.write(out, &value.get_item(key)?, depth + 1)?;
        }
        self.close(out, '}', depth);
        Ok(())
    }

    fn open_item(&self, out: &mut String, index: usize, depth: usize) {
        if index > 0 {
            out.push_str(&self.item_separator);
        }
        self.line_break(out, depth);
    }

    fn close(&self, out: &mut String, bracket: char, depth: usize) {
        self.line_break(out, depth);
        out.push(bracket);
    }

    fn line_break(&self, out: &mut String, depth: usize) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            out.push_str(&indent.repeat(depth));
        }
    }

    fn write_str(&self, out: &mut String, text: &str) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if c < ' ' || (self.ensure_ascii && c > '~') => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

fn number(value: &Value) -> String {
    match f64::try_from(value.clone()) {
        _ if value.is_integer() => value.to_string(),
        Ok(x) if x.is_nan() => "NaN".into(),
        Ok(x) if x.is_infinite() => if x > 0.0 { "Infinity" } else { "-Infinity" }.into(),
        Ok(x) => python::float(x),
        Err(_) => value.to_string(),
    }
}

/// JSON keys are strings: Python writes the JSON text of other scalars.
fn key_text(key: &Value) -> String {
    match key.kind() {
        ValueKind::None => "null".into(),
        ValueKind::Bool => if key.is_true() { "true" } else { "false" }.into(),
        ValueKind::Number => number(key),
        _ => python::str(key),
    }
}

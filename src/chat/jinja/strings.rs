//! Methods of Python values that minijinja lacks or that behave otherwise there.
//!
//! A string may hold marks of the guard (see `chat::guard`). The methods see the characters that the marks stand for
//! and return the marked text, so a template's logic does not change and the marks survive.

use super::filters::is_space;
use crate::chat::guard::unmarked;
use minijinja::value::{Kwargs, Tuple, Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State};

/// Every method that a template may call: of strings, lists and dicts (here and in `pycompat`) and of `loop`.
pub(super) const METHODS: [&str; 39] = [
    "capitalize",
    "changed",
    "count",
    "cycle",
    "endswith",
    "find",
    "format",
    "get",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "islower",
    "isnumeric",
    "isspace",
    "isupper",
    "items",
    "join",
    "keys",
    "lower",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "title",
    "upper",
    "values",
];

/// Called for every method minijinja does not know.
pub(super) fn call_method(
    state: &mut State,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let own = match (value.as_str(), value.kind()) {
        (Some(text), _) => string_method(text, method, args)?,
        (None, ValueKind::Seq) if method == "index" => Some(list_index(value, args)?),
        _ => None,
    };
    match own {
        Some(result) => Ok(result),
        None => minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args),
    }
}

fn string_method(text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let chars = Chars::of(text);
    let result = match method {
        "strip" | "lstrip" | "rstrip" => chars.strip(method, args)?,
        "split" => chars.split(args, false)?,
        "rsplit" => chars.split(args, true)?,
        "splitlines" => splitlines(text, args)?,
        "startswith" | "endswith" => chars.has_end(method == "startswith", args)?,
        "find" | "index" | "rfind" | "rindex" => chars.find(method, args)?,
        "count" => chars.count(args)?,
        "replace" => chars.replace(args)?,
        "partition" | "rpartition" => chars.partition(method == "rpartition", args)?,
        "removeprefix" | "removesuffix" => chars.remove_end(method == "removeprefix", args)?,
        "isspace" => Value::from(!text.is_empty() && text.chars().all(is_space)),
        // Python also counts the digits of other scripts.
        "isdigit" | "isdecimal" => Value::from(!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())),
        "title" => Value::from(title(text)),
        "join" => join(text, args)?,
        _ => return Ok(None),
    };
    Ok(Some(result))
}

/// A string as Python indexes it, with what its marks stand for.
struct Chars {
    real: Vec<char>,
    seen: Vec<char>,
}

impl Chars {
    fn of(text: &str) -> Self {
        let real: Vec<char> = text.chars().collect();
        let seen = real.iter().map(|c| unmarked(*c)).collect();
        Self { real, seen }
    }

    fn slice(&self, start: usize, end: usize) -> Value {
        Value::from(self.real[start..end].iter().collect::<String>())
    }

    fn len(&self) -> usize {
        self.real.len()
    }

    /// First occurrence of `what` at or after `from`, ending at or before `to`.
    fn next(&self, what: &Chars, from: usize, to: usize) -> Option<usize> {
        let last = to.checked_sub(what.len())?;
        (from..=last).find(|at| self.seen[*at..].starts_with(&what.seen))
    }

    fn previous(&self, what: &Chars, from: usize, to: usize) -> Option<usize> {
        let last = to.checked_sub(what.len())?;
        (from..=last).rev().find(|at| self.seen[*at..].starts_with(&what.seen))
    }

    fn strip(&self, method: &str, args: &[Value]) -> Result<Value, Error> {
        let (set,): (Option<&str>,) = from_args(args)?;
        let strips = |c: &char| set.map_or_else(|| is_space(*c), |set| set.contains(*c));
        let (mut start, mut end) = (0, self.len());
        if method != "rstrip" {
            start = self.seen.iter().take_while(|c| strips(c)).count();
        }
        if method != "lstrip" {
            end -= self.seen[start..].iter().rev().take_while(|c| strips(c)).count();
        }
        Ok(self.slice(start, end))
    }

    /// `split(sep=None, maxsplit=-1)` and `rsplit`.
    fn split(&self, args: &[Value], from_right: bool) -> Result<Value, Error> {
        let (sep, limit, kwargs): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
        let sep = sep.or(kwargs.get::<Option<Value>>("sep")?).filter(|sep| !sep.is_none());
        let limit = limit.or(kwargs.get::<Option<i64>>("maxsplit")?).unwrap_or(-1);
        kwargs.assert_all_used()?;
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut parts = match sep {
            None => self.split_space(limit, from_right),
            Some(sep) => {
                let sep = Chars::of(sep.as_str().ok_or_else(|| must_be_str("split"))?);
                if sep.len() == 0 {
                    return Err(Error::new(ErrorKind::InvalidOperation, "split: empty separator"));
                }
                self.split_at(&sep, limit, from_right)
            }
        };
        if from_right {
            parts.reverse();
        }
        Ok(Value::from(parts))
    }

    fn split_at(&self, sep: &Chars, limit: usize, from_right: bool) -> Vec<Value> {
        let (mut parts, mut start, mut end) = (Vec::new(), 0, self.len());
        while parts.len() < limit {
            let found = if from_right { self.previous(sep, start, end) } else { self.next(sep, start, end) };
            let Some(at) = found else { break };
            if from_right {
                parts.push(self.slice(at + sep.len(), end));
                end = at;
            } else {
                parts.push(self.slice(start, at));
                start = at + sep.len();
            }
        }
        parts.push(self.slice(start, end));
        parts
    }

    /// Runs of white space separate, and those at the ends do not count; the rest after `limit` parts stays whole.
    fn split_space(&self, limit: usize, from_right: bool) -> Vec<Value> {
        let (mut parts, mut start, mut end) = (Vec::new(), 0, self.len());
        loop {
            start += self.seen[start..end].iter().take_while(|c| is_space(**c)).count();
            if from_right || parts.len() < limit {
                end -= self.seen[start..end].iter().rev().take_while(|c| is_space(**c)).count();
            }
            if start == end {
                return parts;
            }
            let word = |c: &&char| !is_space(**c);
            let len = match (parts.len() < limit, from_right) {
                (false, _) => end - start,
                (true, false) => self.seen[start..end].iter().take_while(word).count(),
                (true, true) => self.seen[start..end].iter().rev().take_while(word).count(),
            };
            if from_right {
                parts.push(self.slice(end - len, end));
                end -= len;
            } else {
                // The last part keeps the white space at the end of the string.
                let stop = if parts.len() < limit { start + len } else { self.len() };
                parts.push(self.slice(start, stop));
                start += len;
            }
        }
    }

    /// `startswith` / `endswith` with a string or a tuple, and a range.
    fn has_end(&self, start_of: bool, args: &[Value]) -> Result<Value, Error> {
        let (what, from, to): (&Value, Option<i64>, Option<i64>) = from_args(args)?;
        let (from, to) = self.range(from, to);
        let one = |what: &Value| -> Result<bool, Error> {
            let what = Chars::of(what.as_str().ok_or_else(|| must_be_str("startswith/endswith"))?);
            let text = self.seen.get(from..to);
            Ok(text.is_some_and(|text| {
                if start_of { text.starts_with(&what.seen) } else { text.ends_with(&what.seen) }
            }))
        };
        if !what.is_tuple() {
            return one(what).map(Value::from);
        }
        for option in what.try_iter()? {
            if one(&option)? {
                return Ok(Value::from(true));
            }
        }
        Ok(Value::from(false))
    }

    fn find(&self, method: &str, args: &[Value]) -> Result<Value, Error> {
        let (what, from, to): (&str, Option<i64>, Option<i64>) = from_args(args)?;
        let (what, (from, to)) = (Chars::of(what), self.range(from, to));
        let found =
            if method.starts_with('r') { self.previous(&what, from, to) } else { self.next(&what, from, to) };
        match found {
            Some(at) => Ok(Value::from(at)),
            None if method.ends_with("find") => Ok(Value::from(-1)),
            None => Err(Error::new(ErrorKind::InvalidOperation, format!("{method}: substring not found"))),
        }
    }

    fn count(&self, args: &[Value]) -> Result<Value, Error> {
        let (what, from, to): (&str, Option<i64>, Option<i64>) = from_args(args)?;
        let (what, (mut from, to)) = (Chars::of(what), self.range(from, to));
        let mut count = 0;
        while let Some(at) = self.next(&what, from, to) {
            count += 1;
            from = at + what.len().max(1);
        }
        Ok(Value::from(count))
    }

    fn replace(&self, args: &[Value]) -> Result<Value, Error> {
        let (old, new, count, kwargs): (&str, &str, Option<i64>, Kwargs) = from_args(args)?;
        let count = count.or(kwargs.get::<Option<i64>>("count")?).unwrap_or(-1);
        kwargs.assert_all_used()?;
        let (old, mut left) = (Chars::of(old), usize::try_from(count).unwrap_or(usize::MAX));
        let (mut out, mut at) = (String::new(), 0);
        while left > 0 {
            let Some(found) = self.next(&old, at, self.len()) else { break };
            out.extend(&self.real[at..found]);
            out.push_str(new);
            at = found + old.len();
            left -= 1;
            if old.len() == 0 {
                // Between any two characters, and at both ends.
                let Some(c) = self.real.get(at) else { break };
                out.push(*c);
                at += 1;
            }
        }
        out.extend(&self.real[at.min(self.len())..]);
        Ok(Value::from(out))
    }

    fn partition(&self, from_right: bool, args: &[Value]) -> Result<Value, Error> {
        let (sep,): (&str,) = from_args(args)?;
        let sep = Chars::of(sep);
        let found =
            if from_right { self.previous(&sep, 0, self.len()) } else { self.next(&sep, 0, self.len()) };
        let (empty, whole) = (Value::from(""), self.slice(0, self.len()));
        let parts = match found {
            Some(at) => {
                [self.slice(0, at), self.slice(at, at + sep.len()), self.slice(at + sep.len(), self.len())]
            }
            None if from_right => [empty.clone(), empty, whole],
            None => [whole, empty.clone(), empty],
        };
        Ok(Value::from(Tuple::from(parts)))
    }

    fn remove_end(&self, start: bool, args: &[Value]) -> Result<Value, Error> {
        let (what,): (&str,) = from_args(args)?;
        let what = Chars::of(what);
        Ok(match start {
            true if self.seen.starts_with(&what.seen) => self.slice(what.len(), self.len()),
            false if self.seen.ends_with(&what.seen) => self.slice(0, self.len() - what.len()),
            _ => self.slice(0, self.len()),
        })
    }

    /// Python's `start, end` arguments: negative ones count from the end.
    fn range(&self, from: Option<i64>, to: Option<i64>) -> (usize, usize) {
        let len = self.len() as i64;
        let place = |at: i64| if at < 0 { (at + len).max(0) } else { at };
        (place(from.unwrap_or(0)) as usize, place(to.unwrap_or(len)).min(len) as usize)
    }
}

fn splitlines(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (keep,): (Option<bool>,) = from_args(args)?;
    const BREAKS: [char; 10] =
        ['\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}', '\u{2029}'];
    let (mut lines, mut rest) = (Vec::new(), text);
    while let Some(at) = rest.find(BREAKS) {
        let broken = if rest[at..].starts_with("\r\n") {
            2
        } else {
            rest[at..].chars().next().map_or(1, char::len_utf8)
        };
        lines.push(Value::from(&rest[..if keep == Some(true) { at + broken } else { at }]));
        rest = &rest[at + broken..];
    }
    if !rest.is_empty() {
        lines.push(Value::from(rest));
    }
    Ok(Value::from(lines))
}

/// Every run of letters starts with a capital, also after an apostrophe.
fn title(text: &str) -> String {
    let (mut out, mut in_word) = (String::new(), false);
    for c in text.chars() {
        if in_word {
            out.extend(c.to_lowercase());
        } else {
            let mut upper = c.to_uppercase();
            out.extend(upper.next());
            out.extend(upper.flat_map(char::to_lowercase));
        }
        in_word = c.is_alphabetic();
    }
    out
}

fn join(separator: &str, args: &[Value]) -> Result<Value, Error> {
    let (items,): (&Value,) = from_args(args)?;
    let mut texts = Vec::new();
    for item in items.try_iter()? {
        texts.push(item.as_str().ok_or_else(|| must_be_str("join"))?.to_owned());
    }
    Ok(Value::from(texts.join(separator)))
}

fn list_index(list: &Value, args: &[Value]) -> Result<Value, Error> {
    let (what,): (&Value,) = from_args(args)?;
    let found = list.try_iter()?.position(|item| &item == what);
    found
        .map(Value::from)
        .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, format!("index: {what} is not in list")))
}

fn must_be_str(method: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("{method}: argument must be str"))
}

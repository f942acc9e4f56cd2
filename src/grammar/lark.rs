//! Lark grammars before they are compiled: limits, and the schemas inside.

use super::compile::check_size;
use super::error::GrammarError;
use super::schema;
use serde_json::Value;

/// The name of the kind, for messages.
pub(super) const KIND: &str = "Lark grammar";
/// Longest grammar, in bytes.
const MAX_BYTES: usize = 64 << 10;
/// Deepest nesting of brackets.
const MAX_NESTING: usize = 64;

/// The grammar with white space bounded in each `%json { … }`, as in a schema that stands alone.
pub(super) fn prepare(grammar: &str) -> Result<String, GrammarError> {
    check_size(KIND, "its length in bytes", grammar.len(), MAX_BYTES)?;
    let mut prepared = String::with_capacity(grammar.len());
    let (mut rest, mut nesting) = (grammar, 0_usize);
    while let Some(first) = rest.chars().next() {
        if let Some(json) = rest.strip_prefix("%json") {
            let (schema, len) = inner_schema(json, prepared.lines().count())?;
            prepared += "%json ";
            prepared += &schema;
            rest = &json[len..];
            continue;
        }
        match first {
            '(' | '[' | '{' => nesting += 1,
            ')' | ']' | '}' => nesting = nesting.saturating_sub(1),
            't' if rest
                .strip_prefix("temperature")
                .is_some_and(|rest| rest.trim_start().starts_with('=')) =>
            {
                let problem =
                    "temperature= is not supported: the request's own temperature holds throughout".into();
                return Err(GrammarError::Refused { kind: KIND.into(), problem });
            }
            _ => {}
        }
        check_size(KIND, "the nesting of its brackets", nesting, MAX_NESTING)?;
        let (token, next) = rest.split_at(token_len(rest, first));
        prepared += token;
        rest = next;
    }
    Ok(prepared)
}

/// The length of the comment, string, expression or named token that begins `text`, else of its first character.
fn token_len(text: &str, first: char) -> usize {
    let line = text.find('\n').unwrap_or(text.len());
    match first {
        '#' => line,
        '/' if text.starts_with("//") => line,
        '"' | '/' => quoted_len(text, first),
        '<' => match text[1..].find(|c: char| matches!(c, '<' | '>') || c.is_whitespace()) {
            Some(end) if text[1 + end..].starts_with('>') => end + 2,
            _ => 1,
        },
        _ => first.len_utf8(),
    }
}

/// The length of a text between two `quote`s, escapes among it; all of `text` if it does not end.
fn quoted_len(text: &str, quote: char) -> usize {
    let mut chars = text.char_indices().skip(1);
    while let Some((at, character)) = chars.next() {
        match character {
            '\\' => drop(chars.next()),
            _ if character == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The schema that begins `text`, prepared and with as many lines as it had, and its length there.
fn inner_schema(text: &str, line: usize) -> Result<(String, usize), GrammarError> {
    let kind = format!("{KIND}, %json in line {}", line.max(1));
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let schema = match values.next() {
        Some(Ok(schema)) => schema,
        Some(Err(error)) => return Err(GrammarError::Refused { kind, problem: error.to_string() }),
        None => return Err(GrammarError::Refused { kind, problem: "no schema follows".into() }),
    };
    let len = values.byte_offset();
    let json = schema::prepare(&schema, false).map_err(|error| inside(&kind, error))?.to_string();
    let lines = "\n".repeat(text[..len].matches('\n').count());
    let (open, close) = json.split_at(json.len() - 1);
    Ok((format!("{open}{lines}{close}"), len))
}

/// The error of a schema inside a grammar of `kind`.
fn inside(kind: &str, error: GrammarError) -> GrammarError {
    match error {
        GrammarError::Refused { kind: inner, problem } => {
            GrammarError::Refused { kind: format!("{kind}: {inner}"), problem }
        }
        GrammarError::TooLarge { kind: inner, what, size, limit } => {
            GrammarError::TooLarge { kind: format!("{kind}: {inner}"), what, size, limit }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_schemas_change() {
        let grammar =
            "start: \"%json {}\" /%json {\\/(/ <%json> A // %json ((\n# %json \"\nA: \"\\\"(\" // \"\n";
        assert_eq!(prepare(grammar).as_deref(), Ok(grammar));
    }

    #[test]
    fn a_schema_gets_bounded_white_space_and_keeps_its_lines() {
        let prepared = prepare("start: %json {\n \"type\": \"null\"\n} \"x\"").unwrap();
        assert!(prepared.starts_with("start: %json {\"type\":\"null\",\"x-guidance\":{"), "{prepared}");
        assert!(prepared.contains("whitespace_pattern") && prepared.ends_with("\n\n} \"x\""), "{prepared}");
    }

    #[test]
    fn faults_are_named() {
        let message = |grammar: &str| prepare(grammar).unwrap_err().to_string();
        assert_eq!(
            message("start: a\na: %json {\"not\": {}}"),
            "Lark grammar, %json in line 2: JSON schema at #: the keyword `not` is not supported"
        );
        assert_eq!(
            message("start: %json {\"a\" 1}"),
            "Lark grammar, %json in line 1: expected `:` at line 1 column 7"
        );
        assert!(
            message("start[temperature=0.5]: \"a\"")
                .starts_with("Lark grammar: temperature= is not supported")
        );
        assert_eq!(
            message(&format!("start: {}", "(".repeat(1000))),
            "Lark grammar: the nesting of its brackets is 65, the limit is 64"
        );
        assert_eq!(
            message(&"#".repeat(70_000)),
            "Lark grammar: its length in bytes is 70000, the limit is 65536"
        );
        assert!(prepare("start: temperature\ntemperature: /[0-9]+/").is_ok());
    }
}

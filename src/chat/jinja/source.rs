//! Rewrites the constructs of a template's text that minijinja reads otherwise than Hugging Face's jinja2.
//!
//! * `{% generation %}…{% endgeneration %}` marks the assistant's text for training: a block with a scope of its own.
//! * `{% for x in EXPR %}` fails in Python when EXPR is None or a number: EXPR goes through a filter that checks.
//!
//! Nothing is moved to another line, so errors name the right one.

use std::ops::Range;

/// Filter put around what a `for` loops over.
pub(super) const ITERATE: &str = "__iterate";

/// The text to compile.
pub(crate) fn rewrite(source: &str) -> String {
    let mut out = String::with_capacity(source.len() + 64);
    let mut copied = 0;
    for statement in statements(source) {
        let text = &source[statement.clone()];
        let Some(rewritten) = rewrite_statement(text) else { continue };
        out.push_str(&source[copied..statement.start]);
        out.push_str(&rewritten);
        copied = statement.end;
    }
    out.push_str(&source[copied..]);
    out
}

/// The inside of a `{% … %}`, without the delimiters.
fn rewrite_statement(text: &str) -> Option<String> {
    let start = text.len() - text.trim_start_matches(|c: char| c.is_whitespace() || "-+".contains(c)).len();
    let (lead, body) = text.split_at(start);
    let word_len = body.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(body.len());
    let (word, rest) = body.split_at(word_len);
    match word {
        "generation" => Some(format!("{lead}with{rest}")),
        "endgeneration" => Some(format!("{lead}endwith{rest}")),
        "for" => {
            let iterated = iterated(rest)?;
            let (before, after) = (&rest[..iterated.start], &rest[iterated.end..]);
            Some(format!("{lead}for{before} ({})|{ITERATE} {after}", &rest[iterated]))
        }
        _ => None,
    }
}

/// The range of the iterated expression in the text after `for`: from `in` to a filter, `recursive` or the end.
fn iterated(text: &str) -> Option<Range<usize>> {
    let mut start = None;
    let mut end = text.trim_end_matches(|c: char| c.is_whitespace() || "-+".contains(c)).len();
    for (word, range) in top_level_words(text) {
        match (word, start) {
            ("in", None) => start = Some(range.end),
            ("if" | "recursive", Some(_)) => {
                end = range.start;
                break;
            }
            _ => {}
        }
    }
    start.filter(|start| !text[*start..end].trim().is_empty()).map(|start| start..end)
}

/// Words outside brackets and strings.
fn top_level_words(text: &str) -> Vec<(&str, Range<usize>)> {
    let (mut words, mut depth, mut word_start) = (Vec::new(), 0_usize, None);
    let mut quotes = Quotes::default();
    for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
        let quoted = quotes.step(c);
        let in_word = !quoted && (c.is_alphanumeric() || c == '_');
        match (word_start, in_word) {
            (None, true) => word_start = Some(at),
            (Some(start), false) => {
                if depth == 0 {
                    words.push((&text[start..at], start..at));
                }
                word_start = None;
            }
            _ => {}
        }
        match c {
            '(' | '[' | '{' if !quoted => depth += 1,
            ')' | ']' | '}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    words
}

/// Follows string literals.
#[derive(Default)]
struct Quotes {
    open: Option<char>,
    escaped: bool,
}

impl Quotes {
    /// Takes the next character; whether it belongs to a string literal.
    fn step(&mut self, c: char) -> bool {
        match self.open {
            None => {
                self.open = matches!(c, '\'' | '"').then_some(c);
                self.open.is_some()
            }
            Some(_) if self.escaped => {
                self.escaped = false;
                true
            }
            Some(quote) => {
                self.escaped = c == '\\';
                if c == quote {
                    self.open = None;
                }
                true
            }
        }
    }
}

/// The insides of all `{% … %}` that are not within a comment, an expression or a raw block.
fn statements(source: &str) -> Vec<Range<usize>> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(open) = find_from(source, at, "{").filter(|open| open + 1 < source.len()) {
        let inside = open + 2;
        at = match &source.as_bytes()[open..inside] {
            b"{#" => find_from(source, inside, "#}").map_or(source.len(), |end| end + 2),
            b"{{" => find_unquoted(source, inside, "}}").map_or(source.len(), |end| end + 2),
            b"{%" => {
                let Some(end) = find_unquoted(source, inside, "%}") else { return found };
                let word = source[inside..end].trim_matches(|c: char| c.is_whitespace() || "-+".contains(c));
                if word == "raw" {
                    end_of_raw(source, end + 2)
                } else {
                    found.push(inside..end);
                    end + 2
                }
            }
            _ => open + 1,
        };
    }
    found
}

fn end_of_raw(source: &str, mut at: usize) -> usize {
    while let Some(open) = find_from(source, at, "{%") {
        let rest = source[open + 2..].trim_start_matches(|c: char| c.is_whitespace() || "-+".contains(c));
        at = open + 2;
        if rest.starts_with("endraw") {
            break;
        }
    }
    if at == 0 { source.len() } else { at }
}

fn find_from(source: &str, at: usize, what: &str) -> Option<usize> {
    source[at..].find(what).map(|offset| at + offset)
}

fn find_unquoted(source: &str, at: usize, what: &str) -> Option<usize> {
    let mut quotes = Quotes::default();
    source[at..].char_indices().find_map(|(offset, c)| {
        let quoted = quotes.step(c);
        (!quoted && source[at + offset..].starts_with(what)).then_some(at + offset)
    })
}

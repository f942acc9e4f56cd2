//! Marks what a message could contribute to a control token, so that the rendered prompt shows who wrote each one.
//!
//! A mark replaces one character by its twin in a private-use plane: lengths, slices and the rest of the text stay as
//! they were, and template methods such as `split` treat the twin as the character (see `jinja::strings`).
//! Marked are control texts inside a string, a beginning of one at its end, an end of one at its start, and strings
//! that are the middle of one: whatever the template puts next to a string, no control token with a character of the
//! user's is left unmarked.

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::{Map, Value};
use std::collections::HashSet;

/// Private-use planes whose low 16 bits name the marked character. The one that a conversation does not use is taken.
const PLANES: [u32; 2] = [0x10_0000, 0xF_0000];

/// Field names that templates look up: never marked.
const FIELDS: [&str; 29] = [
    "role",
    "content",
    "reasoning_content",
    "thinking",
    "tool_calls",
    "tool_call_id",
    "call_id",
    "id",
    "type",
    "name",
    "function",
    "arguments",
    "text",
    "image",
    "image_url",
    "url",
    "prefix",
    "description",
    "parameters",
    "properties",
    "required",
    "items",
    "enum",
    "default",
    "additionalProperties",
    "title",
    "format",
    "strict",
    "return",
];

/// Roles that templates compare with: never marked.
const ROLES: [&str; 5] = ["system", "user", "assistant", "tool", "developer"];

/// The extent to which a string is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strength {
    /// Whole control texts only.
    Whole,
    /// Also pieces that neighbours could complete.
    Pieces,
}

/// A stretch of rendered text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stretch {
    /// True if it is a control token that the template wrote.
    pub control: bool,
    pub text: String,
}

/// The control tokens of one vocabulary.
#[derive(Debug)]
pub(super) struct Guard {
    texts: Vec<String>,
    /// Finds every occurrence, also overlapping ones.
    every: AhoCorasick,
    /// Finds the occurrences a tokenizer would take.
    leftmost: AhoCorasick,
    prefixes: HashSet<String>,
    suffixes: HashSet<String>,
    longest: usize,
}

impl Guard {
    /// A guard for these control texts; `None` if there are too many for the search automaton.
    pub fn new(texts: Vec<String>) -> Option<Self> {
        let texts: Vec<String> = texts.into_iter().filter(|t| !t.is_empty()).collect();
        let (mut prefixes, mut suffixes) = (HashSet::new(), HashSet::new());
        for text in &texts {
            for (at, _) in text.char_indices().skip(1) {
                prefixes.insert(text[..at].to_owned());
                suffixes.insert(text[at..].to_owned());
            }
        }
        Some(Self {
            every: AhoCorasick::new(&texts).ok()?,
            leftmost: AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&texts).ok()?,
            longest: texts.iter().map(String::len).max().unwrap_or(0),
            texts,
            prefixes,
            suffixes,
        })
    }

    /// A plane none of whose characters occurs in `values`.
    pub fn free_plane<'a>(values: impl Iterator<Item = &'a Value> + Clone) -> Option<u32> {
        PLANES.into_iter().find(|plane| !values.clone().any(|value| mentions_plane(value, *plane)))
    }

    /// The value with its strings marked, and its keys where templates print them.
    pub fn mark(&self, value: &Value, plane: u32, strength: Strength) -> Value {
        match value {
            Value::String(text) => self.mark_text(text, plane, strength).into(),
            Value::Array(items) => items.iter().map(|item| self.mark(item, plane, strength)).collect(),
            Value::Object(map) => self.mark_map(map, plane, strength).into(),
            other => other.clone(),
        }
    }

    /// [`mark`](Self::mark) for an object.
    pub fn mark_map(&self, map: &Map<String, Value>, plane: u32, strength: Strength) -> Map<String, Value> {
        let entry = |(key, value): (&String, &Value)| {
            let known_role = key == "role" && ROLES.iter().any(|role| value == role);
            // Templates compare types (`text`, which is the middle of `<|endoftext|>`) and do not print them.
            let strength = if key == "type" { Strength::Whole } else { strength };
            let value = if known_role { value.clone() } else { self.mark(value, plane, strength) };
            let field = FIELDS.contains(&key.as_str());
            (if field { key.clone() } else { self.mark_text(key, plane, strength) }, value)
        };
        map.iter().map(entry).collect()
    }

    fn mark_text(&self, text: &str, plane: u32, strength: Strength) -> String {
        let mut marks: Vec<usize> =
            self.every.find_overlapping_iter(text).map(|m| inner_char(text, m.range())).collect();
        if strength == Strength::Pieces {
            marks.extend(self.piece_marks(text));
        }
        if marks.is_empty() {
            return text.into();
        }
        let mark = |(at, c): (usize, char)| if marks.contains(&at) { twin(c, plane) } else { c };
        text.char_indices().map(mark).collect()
    }

    /// The characters to mark where the ends of the text, or the whole, could be part of a control token. Templates
    /// trim, so space around the text does not count.
    fn piece_marks(&self, text: &str) -> Vec<usize> {
        let trimmed = text.trim();
        let (Some(first), Some((last, _))) = (text.find(trimmed), trimmed.char_indices().next_back()) else {
            return Vec::new();
        };
        let near = |at: &usize| *at < self.longest;
        let starts = trimmed.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(near);
        let starts_as_end = starts.into_iter().any(|end| self.suffixes.contains(&trimmed[..end]));
        let tails =
            trimmed.char_indices().rev().map(|(at, _)| at).take_while(|at| trimmed.len() - at < self.longest);
        let ends_as_start = tails.into_iter().any(|at| self.prefixes.contains(&trimmed[at..]));
        let is_middle =
            trimmed.len() < self.longest && self.texts.iter().any(|control| control.contains(trimmed));
        let mut marks = Vec::new();
        if starts_as_end || is_middle {
            marks.push(first);
        }
        if ends_as_start {
            marks.push(first + last);
        }
        marks
    }

    /// Splits rendered text at its unmarked control texts and takes the marks off.
    pub fn split(&self, rendered: &str, plane: u32) -> Vec<Stretch> {
        let (mut stretches, mut at) = (Vec::new(), 0);
        let mut push = |control, text: &str| {
            if !text.is_empty() {
                stretches
                    .push(Stretch { control, text: text.chars().map(|c| untwin_in(c, plane)).collect() });
            }
        };
        for found in self.leftmost.find_iter(rendered) {
            push(false, &rendered[at..found.start()]);
            push(true, &rendered[found.range()]);
            at = found.end();
        }
        push(false, &rendered[at..]);
        stretches
    }
}

/// The second character of a match, or its only one: its brackets stay, since templates look at those.
fn inner_char(text: &str, range: std::ops::Range<usize>) -> usize {
    let (start, matched) = (range.start, &text[range]);
    start + matched.char_indices().nth(1).map_or(0, |(at, _)| at)
}

fn twin(c: char, plane: u32) -> char {
    char::from_u32(plane + (c as u32 & 0xFFFF)).expect("planes 15 and 16 hold 65536 characters each")
}

fn untwin_in(c: char, plane: u32) -> char {
    match (c as u32).checked_sub(plane) {
        Some(low @ 0..=0xFFFF) => char::from_u32(low).unwrap_or(c),
        _ => c,
    }
}

/// The character a template is to see in place of a mark.
pub(super) fn unmarked(c: char) -> char {
    if (c as u32) < PLANES[1] { c } else { char::from_u32(c as u32 & 0xFFFF).unwrap_or(c) }
}

fn mentions_plane(value: &Value, plane: u32) -> bool {
    let in_text = |text: &str| text.chars().any(|c| c as u32 & !0xFFFF == plane);
    match value {
        Value::String(text) => in_text(text),
        Value::Array(items) => items.iter().any(|item| mentions_plane(item, plane)),
        Value::Object(map) => map.iter().any(|(key, item)| in_text(key) || mentions_plane(item, plane)),
        _ => false,
    }
}

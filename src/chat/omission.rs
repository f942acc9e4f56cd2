//! Contents of a conversation that a chat template leaves out of the prompt.
//!
//! A template may pass over a role, a tool or a part of a message without a word. The check renders the conversation a
//! second time with numbered marks in every text, at its first and its last word: a text whose marks are not in the result
//! is not in the prompt, whatever else happens to spell it. If the second rendering without its marks is not the prompt,
//! the template looks into the texts; then each of them must be found in the prompt as it stands as well.

use super::jinja;
use super::template::{ChatTemplate, RenderInput};
use serde_json::Value;
use std::collections::HashSet;
use std::ops::Range;
use thiserror::Error;

/// Tags that end a thought. Templates leave the thoughts of earlier turns out, and what they hold is not missed.
const THOUGHT_ENDS: [&str; 2] = ["</think>", "[/THINK]"];

/// A thing handed in that is not in the prompt.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Omission {
    /// The text of a message, or a part of it.
    #[error("messages[{index}]: this model's chat template leaves out the text of this `{role}` message")]
    Text {
        /// Position of the message.
        index: usize,
        /// Its role.
        role: String,
    },
    /// The text of a message that also calls tools.
    #[error("messages[{index}]: this model's chat template leaves out the text beside the tool calls")]
    TextBesideCalls {
        /// Position of the message.
        index: usize,
    },
    /// A part of a content that is neither text nor an image.
    #[error(
        "messages[{index}].content[{part}]: this model's chat template leaves out content of type `{kind}`"
    )]
    Part {
        /// Position of the message.
        index: usize,
        /// Position of the part.
        part: usize,
        /// The part's `type`.
        kind: String,
    },
    /// A call of a tool.
    #[error(
        "messages[{index}].tool_calls[{call}]: this model's chat template leaves out the call of `{name}`"
    )]
    Call {
        /// Position of the message.
        index: usize,
        /// Position of the call.
        call: usize,
        /// Name of the function.
        name: String,
    },
    /// A tool that the model is to know.
    #[error("tools[{index}]: this model's chat template leaves out the tool `{name}`")]
    Tool {
        /// Position of the tool.
        index: usize,
        /// Name of the function.
        name: String,
    },
}

impl Omission {
    /// True for what agents send all the time and some models were trained without: worth a warning, not a failure.
    pub fn is_tolerable(&self) -> bool {
        matches!(self, Self::TextBesideCalls { .. })
    }
}

/// Everything that `plain`, the rendering of `input`, leaves out.
pub(super) fn find(template: &ChatTemplate, input: &RenderInput, plain: &str) -> Vec<Omission> {
    let mut marker = Marker::new(input, plain);
    let marked = marker.mark(input);
    if marker.texts.is_empty() {
        return Vec::new();
    }
    let (is_exact, numbers) = match template.render(&marked) {
        Ok(rendered) => {
            let (unmarked, numbers) = marker.read(&rendered);
            (unmarked == plain, Some(numbers))
        }
        // Only the prompt itself can tell then.
        Err(_) => (false, None),
    };
    let is_marked = |at: usize| {
        numbers
            .as_ref()
            .is_none_or(|numbers| [2 * at, 2 * at + 1].iter().all(|number| numbers.contains(number)))
    };
    let texts = || marker.texts.iter().enumerate();
    let marked: Vec<&Text> = texts().filter(|(at, _)| is_marked(*at)).map(|(_, text)| text).collect();
    let lower = plain.to_lowercase();
    let is_there = |at, text| is_marked(at) && (is_exact || is_spelled_out(text, &marked, &lower));
    let missing = texts().filter(|&(at, text)| !is_there(at, text));
    let mut omissions: Vec<Omission> = missing.map(|(_, text)| text.what.clone()).collect();
    omissions.dedup();
    omissions
}

/// A text that has to be in the prompt.
struct Text {
    what: Omission,
    /// The text without blanks around it and thoughts before it; empty where only the marks count.
    core: String,
}

/// Puts marks into texts. A mark is made of digits, which go through every change of case, escape and number format.
struct Marker {
    /// Begins every mark, and occurs nowhere else. No end of it is its beginning, so what stands before a mark cannot
    /// shift it.
    start: String,
    /// The texts with marks: number 2 i before the first word of text i, 2 i + 1 behind its last.
    texts: Vec<Text>,
}

/// Digits of a mark's number, which follow its start.
const NUMBER: usize = 7;

impl Marker {
    fn new(input: &RenderInput, plain: &str) -> Self {
        let values = input.messages.iter().chain(input.tools.iter().flatten()).map(Value::to_string);
        let taken: HashSet<usize> =
            values.chain([plain.to_owned()]).flat_map(|text| starts_in(&text)).collect();
        let zeros = (2..).find(|zeros| !taken.contains(zeros)).expect("a text ends");
        Self { start: start_of_mark(zeros), texts: Vec::new() }
    }

    /// The input with marks in all that must not be left out.
    fn mark(&mut self, input: &RenderInput) -> RenderInput {
        let mut marked = input.clone();
        for (index, message) in marked.messages.iter_mut().enumerate() {
            self.mark_message(index, message);
        }
        for (index, tool) in marked.tools.iter_mut().flatten().enumerate() {
            if let Some(name) = tool_name_mut(tool) {
                let what = Omission::Tool { index, name: name.clone() };
                self.mark_text(name, what, 0);
            }
        }
        marked
    }

    fn mark_message(&mut self, index: usize, message: &mut Value) {
        let role = message["role"].as_str().unwrap_or_default().to_owned();
        let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
        let calls_tools = calls.as_ref().is_some_and(|calls| !calls.is_empty());
        for (call, tool_call) in calls.into_iter().flatten().enumerate() {
            if let Some(Value::String(name)) = tool_call.pointer_mut("/function/name") {
                let what = Omission::Call { index, call, name: name.clone() };
                self.mark_text(name, what, 0);
            }
        }
        let is_answer = role == "assistant";
        let what = match calls_tools {
            true => Omission::TextBesideCalls { index },
            false => Omission::Text { index, role },
        };
        match message.get_mut("content") {
            Some(Value::String(text)) => self.mark_content(text, what, is_answer),
            Some(Value::Array(parts)) => {
                for (part, value) in parts.iter_mut().enumerate() {
                    self.mark_part(value, what.clone(), is_answer, (index, part));
                }
            }
            _ => {}
        }
    }

    fn mark_part(
        &mut self,
        value: &mut Value,
        what: Omission,
        is_answer: bool,
        (index, part): (usize, usize),
    ) {
        let kind = value["type"].as_str().unwrap_or_default().to_owned();
        match kind.as_str() {
            "text" => {
                if let Some(Value::String(text)) = value.get_mut("text") {
                    self.mark_content(text, what, is_answer);
                }
            }
            // The places of images are counted in the tokens; thoughts are the template's own.
            "image" | "image_url" | "thinking" => {}
            _ => self.mark_everything(value, Omission::Part { index, part, kind }),
        }
    }

    fn mark_content(&mut self, text: &mut String, what: Omission, is_answer: bool) {
        let ends = THOUGHT_ENDS.iter().filter_map(|tag| text.rfind(tag).map(|at| at + tag.len()));
        let answer_from = ends.max().filter(|_| is_answer).unwrap_or(0);
        self.mark_text(text, what, answer_from);
    }

    /// Marks the text from byte `from` on, unless it is blank.
    fn mark_text(&mut self, text: &mut String, what: Omission, from: usize) {
        let core = text[from..].trim();
        if core.is_empty() {
            return;
        }
        let at = text.len() - text[from..].trim_start().len();
        let words = words(core);
        let [first, last] = self.marks();
        self.texts.push(Text { what, core: core.to_owned() });
        text.insert_str(at + words.end, &last);
        text.insert_str(at + words.start, &first);
    }

    /// Marks every string of a value of unknown make; any of them shows that it is there.
    fn mark_everything(&mut self, value: &mut Value, what: Omission) {
        if mark_strings(value, &self.marks().concat()) {
            self.texts.push(Text { what, core: String::new() });
        }
    }

    fn marks(&self) -> [String; 2] {
        [0, 1].map(|end| format!("{}{:0NUMBER$}", self.start, 2 * self.texts.len() + end))
    }

    /// A rendering without its marks, and the numbers of the marks.
    fn read(&self, rendered: &str) -> (String, HashSet<usize>) {
        let (mut unmarked, mut seen, mut rest) =
            (String::with_capacity(rendered.len()), HashSet::new(), rendered);
        while let Some(at) = rest.find(&self.start) {
            let number = at + self.start.len();
            unmarked.push_str(&rest[..at]);
            // A template that cuts texts may cut a mark; its rest then shows as a difference.
            let end = rest[number..].bytes().take(NUMBER).take_while(u8::is_ascii_digit).count();
            seen.extend(rest[number..number + end].parse::<usize>().ok().filter(|_| end == NUMBER));
            rest = &rest[number + end..];
        }
        unmarked.push_str(rest);
        (unmarked, seen)
    }
}

/// True if the prompt, in lower case, spells the text out, plainly or escaped, as often as it is among `texts`. A template
/// may write `nan` as `NaN`.
fn is_spelled_out(text: &Text, texts: &[&Text], prompt: &str) -> bool {
    let wanted = texts.iter().filter(|other| other.core == text.core).count();
    let is_found = |spelling: String| prompt.matches(&spelling.to_lowercase()).count() >= wanted;
    text.core.is_empty() || jinja::spellings(&text.core).into_iter().any(is_found)
}

/// The beginning of every mark: a 7, zeros, and a 9.
fn start_of_mark(zeros: usize) -> String {
    format!("7{}9", "0".repeat(zeros))
}

/// The numbers of zeros with which a mark's beginning occurs in the text.
fn starts_in(text: &str) -> Vec<usize> {
    let runs = text.split('7').skip(1).map(|rest| (rest, rest.bytes().take_while(|&b| b == b'0').count()));
    runs.filter(|(rest, zeros)| rest[*zeros..].starts_with('9')).map(|(_, zeros)| zeros).collect()
}

/// The name of a tool, in OpenAI's form or as a function alone.
fn tool_name_mut(tool: &mut Value) -> Option<&mut String> {
    let path = if tool["function"]["name"].is_string() { "/function/name" } else { "/name" };
    match tool.pointer_mut(path) {
        Some(Value::String(name)) => Some(name),
        _ => None,
    }
}

/// The position of the first tool without a name.
pub(super) fn nameless_tool(tools: &[Value]) -> Option<usize> {
    tools.iter().position(|tool| {
        let name = tool["function"]["name"].as_str().or(tool["name"].as_str());
        name.is_none_or(|name| name.trim().is_empty())
    })
}

fn mark_strings(value: &mut Value, mark: &str) -> bool {
    match value {
        Value::String(text) => {
            text.push_str(mark);
            true
        }
        Value::Array(items) => items.iter_mut().fold(false, |any, item| mark_strings(item, mark) | any),
        Value::Object(map) => {
            let fields = map.iter_mut().filter(|(key, _)| *key != "type");
            fields.fold(false, |any, (_, item)| mark_strings(item, mark) | any)
        }
        _ => false,
    }
}

/// The range from the first word to the last. Tags such as `<tool_response>` do not count: templates look for them at the
/// ends of a text. A text without a word has its marks behind its first character.
fn words(text: &str) -> Range<usize> {
    let (mut first, mut last, mut at) = (None, None, 0);
    while let Some(c) = text[at..].chars().next() {
        let tag = tag_len(&text[at..]);
        if tag == 0 && c.is_alphanumeric() {
            first = first.or(Some(at));
            last = Some(at + c.len_utf8());
        }
        at += if tag > 0 { tag } else { c.len_utf8() };
    }
    match (first, last) {
        (Some(first), Some(last)) => first..last,
        _ => {
            let second = text.chars().next().map_or(0, char::len_utf8);
            second..second
        }
    }
}

/// The length of the tag in angle or square brackets that the text begins with; 0 if there is none.
fn tag_len(text: &str) -> usize {
    const LONGEST: usize = 64;
    let close = match text.as_bytes() {
        [b'<', ..] => b'>',
        [b'[', ..] => b']',
        _ => return 0,
    };
    let end = text.bytes().take(LONGEST).position(|b| b == close || b.is_ascii_whitespace());
    end.filter(|&end| text.as_bytes()[end] == close).map_or(0, |end| end + 1)
}

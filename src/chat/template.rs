//! The model's own chat template: Jinja as Hugging Face's `apply_chat_template` runs it.

use super::jinja;
use super::message::{Message, MessageError};
use chrono::NaiveDateTime;
use minijinja::{Environment, Value};
use serde_json::{Map, Value as Json, json};
use thiserror::Error;

/// Name under which the template is registered.
const NAME: &str = "chat_template";

/// Text that shows what a template does with the parts of a content.
const PROBE: &str = "ember content probe";

/// The reason a conversation could not be rendered.
#[derive(Debug, Error)]
pub enum TemplateError {
    /// The template cannot be compiled, or names something that is not known here.
    #[error("chat template, line {line}: {problem}{excerpt}")]
    Syntax {
        /// Line of the template, from 1.
        line: usize,
        /// The construct and what is wrong with it.
        problem: String,
        /// The line itself, after a line break; empty when unknown.
        excerpt: String,
    },
    /// The model has no template, and its vocabulary tells no format that is known.
    #[error("this model has no chat template{}, and its vocabulary tells no format that is known", named(.names))]
    Missing {
        /// The templates it has for special uses.
        names: Vec<String>,
    },
    /// The template called `raise_exception`: it refuses this conversation. The client's error, in the template's words.
    #[error("{0}")]
    Refused(String),
    /// The template failed while rendering.
    #[error("chat template, line {line}: {problem}{excerpt}")]
    Render {
        /// Line of the template, from 1; 0 when unknown.
        line: usize,
        /// The construct and what is wrong with it.
        problem: String,
        /// The line itself, after a line break; empty when unknown.
        excerpt: String,
    },
    /// A message no template could render.
    #[error(transparent)]
    Message(#[from] MessageError),
}

/// The input of one rendering.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RenderInput {
    /// Messages as the template sees them: see [`ChatTemplate::prepare`].
    pub messages: Vec<Json>,
    /// Tool definitions; the template sees `none` when absent.
    pub tools: Option<Vec<Json>>,
    /// Ends with the opening of the assistant's turn.
    pub add_generation_prompt: bool,
    /// The template's thinking switch; undefined in the template when `None`.
    pub enable_thinking: Option<bool>,
    /// Further variables (`chat_template_kwargs`).
    pub kwargs: Map<String, Json>,
    /// The time that `strftime_now` prints; the local time when `None`.
    pub now: Option<NaiveDateTime>,
}

/// A compiled chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    env: Environment<'static>,
    source: String,
    bos: String,
    eos: String,
    traits: Traits,
}

/// The properties of the messages that a template takes, found in its text.
#[derive(Debug, Clone, Copy, Default)]
struct Traits {
    /// Prints the text of `content` parts; otherwise wants one string.
    takes_parts: bool,
    /// The separator of the text parts of a tool's result; `None` if the template joins them itself.
    tool_separator: Option<&'static str>,
    /// Mistral's: replayed reasoning is a part of type `thinking`.
    thinking_parts: bool,
    /// Mistral's: tool call ids of nine letters and digits.
    short_call_ids: bool,
    /// Has an `enable_thinking` switch.
    thinking_switch: bool,
    /// Knows the role `developer`; otherwise it is the system's.
    developer_role: bool,
}

impl ChatTemplate {
    /// Compiles a template, all of whose filters, tests and methods must be known; `bos` and `eos` are the texts of
    /// `bos_token` and `eos_token`, empty if the model has none.
    ///
    /// # Errors
    /// [`TemplateError::Syntax`], naming the construct and the line.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, TemplateError> {
        let rewritten = jinja::rewrite(source);
        let mut env = jinja::environment();
        env.add_template_owned(NAME, rewritten).map_err(|e| syntax_error(&e, source))?;
        if let Some(jinja::Unsupported { line, what }) = jinja::unsupported(&env, NAME) {
            return Err(TemplateError::Syntax { line, problem: what, excerpt: excerpt(source, line) });
        }
        let mut template =
            Self { env, source: source.into(), bos: bos.into(), eos: eos.into(), traits: Traits::default() };
        template.traits = template.find_traits();
        Ok(template)
    }

    /// Compiles a template and tries whether any conversation can be rendered with it.
    ///
    /// # Errors
    /// As [`new`](Self::new), and [`TemplateError::Render`] when even a user's first message cannot be rendered, with tools
    /// or without.
    pub fn tried(source: &str, bos: &str, eos: &str) -> Result<Self, TemplateError> {
        let template = Self::new(source, bos, eos)?;
        let function =
            json!({"name": "probe", "description": "", "parameters": {"type": "object", "properties": {}}});
        let tools = vec![json!({"type": "function", "function": function})];
        let mut fault = None;
        for content in [json!(PROBE), json!([{"type": "text", "text": PROBE}])] {
            for tools in [None, Some(tools.clone())] {
                let messages = vec![json!({"role": "user", "content": content})];
                let input =
                    RenderInput { messages, tools, add_generation_prompt: true, ..RenderInput::default() };
                match template.render(&input) {
                    Err(error @ TemplateError::Render { .. }) => fault = fault.or(Some(error)),
                    _ => return Ok(template),
                }
            }
        }
        Err(fault.expect("every conversation failed"))
    }

    /// The template's text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// True if the template reads `enable_thinking`.
    pub fn has_thinking_switch(&self) -> bool {
        self.traits.thinking_switch
    }

    /// Turns messages into what this template reads.
    ///
    /// Arguments become objects, the null content of a message that calls tools the empty string, and a tool's result that
    /// is JSON its text. A `developer` is the system, unless the template knows the role. Where the template prints
    /// `content` as one string, text parts are joined by line breaks (by two in the tool results of Mistral's templates).
    /// Where it is one of Mistral's, replayed reasoning becomes a `thinking` part and call ids become nine letters and
    /// digits (the same id always gives the same nine).
    ///
    /// # Errors
    /// [`MessageError`], naming the field.
    pub fn prepare(&self, messages: &[Message]) -> Result<Vec<Json>, MessageError> {
        if messages.is_empty() {
            return Err(MessageError::Empty);
        }
        messages.iter().enumerate().map(|(index, m)| self.prepare_one(index, m).map(Json::from)).collect()
    }

    fn prepare_one(&self, index: usize, message: &Message) -> Result<Map<String, Json>, MessageError> {
        let mut out = message.to_template(index)?;
        if message.role == "developer" && !self.traits.developer_role {
            out.insert("role".into(), "system".into());
        }
        let separator = match message.role.as_str() {
            "tool" => self.traits.tool_separator,
            _ => (!self.traits.takes_parts).then_some("\n"),
        };
        if let (Some(Json::Array(parts)), Some(separator)) = (out.get("content"), separator) {
            let text = join_text(index, parts, separator)?;
            out.insert("content".into(), text.into());
        }
        if self.traits.thinking_parts {
            reasoning_to_part(&mut out);
        }
        if self.traits.short_call_ids {
            shorten_call_ids(&mut out);
        }
        Ok(out)
    }

    /// Renders the conversation to text.
    ///
    /// # Errors
    /// [`TemplateError::Refused`] when the template rejects the conversation, [`TemplateError::Render`] when it fails.
    pub fn render(&self, input: &RenderInput) -> Result<String, TemplateError> {
        let template = self.env.get_template(NAME).expect("the constructor registered it");
        template.render(self.context(input)).map_err(|e| render_error(&e, &self.source))
    }

    fn context(&self, input: &RenderInput) -> Value {
        let now = input.now.unwrap_or_else(|| chrono::Local::now().naive_local());
        let tools =
            input.tools.as_ref().map_or(Value::from(()), |tools| tools.iter().map(jinja::value_of).collect());
        let mut vars: Vec<(String, Value)> = vec![
            ("bos_token".into(), self.bos.as_str().into()),
            ("eos_token".into(), self.eos.as_str().into()),
            ("messages".into(), input.messages.iter().map(jinja::value_of).collect()),
            ("tools".into(), tools),
            ("documents".into(), Value::from(())),
            ("add_generation_prompt".into(), input.add_generation_prompt.into()),
            ("strftime_now".into(), jinja::strftime_now(now)),
        ];
        if let Some(on) = input.enable_thinking {
            vars.push(("enable_thinking".into(), on.into()));
        }
        vars.extend(input.kwargs.iter().map(|(k, v)| (k.clone(), jinja::value_of(v))));
        Value::from_pairs(vars)
    }

    fn find_traits(&self) -> Traits {
        let mentions = |needles: &[&str]| needles.iter().any(|n| self.source.contains(n));
        let parts = json!([{"type": "text", "text": PROBE}]);
        let asked = json!({"role": "user", "content": "ask"});
        let call =
            json!({"id": "probe0000", "type": "function", "function": {"name": "probe", "arguments": {}}});
        let called = json!({"role": "assistant", "content": "", "tool_calls": [call]});
        let result = json!({"role": "tool", "tool_call_id": "probe0000", "content": parts});
        let takes_parts = self.prints_probe(vec![json!({"role": "user", "content": parts})]);
        let takes_tool_parts = self.prints_probe(vec![asked, called, result]);
        // mistral-common puts an empty line between the parts.
        let separator = if mentions(&["[TOOL_RESULTS]"]) { "\n\n" } else { "\n" };
        Traits {
            takes_parts,
            tool_separator: (!takes_tool_parts).then_some(separator),
            thinking_parts: mentions(&["'thinking'", "\"thinking\""]) && mentions(&["[THINK]"]),
            short_call_ids: mentions(&["length != 9", "length == 9"]),
            thinking_switch: mentions(&["enable_thinking"]),
            developer_role: mentions(&["'developer'", "\"developer\""]),
        }
    }

    /// True if the text of a part is printed; a template that prints the list itself shows it too, but inside quotes.
    fn prints_probe(&self, messages: Vec<Json>) -> bool {
        let input = RenderInput { messages, ..RenderInput::default() };
        let quoted = ["'", "\""].map(|quote| format!("{quote}{PROBE}{quote}"));
        self.render(&input).is_ok_and(|text| text.contains(PROBE) && !quoted.iter().any(|q| text.contains(q)))
    }
}

fn named(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!(" but for special uses ({})", names.join(", ")) }
}

fn join_text(index: usize, parts: &[Json], separator: &str) -> Result<String, MessageError> {
    let texts = parts.iter().enumerate().map(|(part, value)| {
        value["text"].as_str().filter(|_| value["type"] == "text").ok_or_else(|| {
            MessageError::UnsupportedPart {
                index,
                part,
                kind: value["type"].as_str().unwrap_or_default().into(),
            }
        })
    });
    Ok(texts.collect::<Result<Vec<_>, _>>()?.join(separator))
}

fn reasoning_to_part(message: &mut Map<String, Json>) {
    let Some(reasoning) = message.shift_remove("reasoning_content") else { return };
    let mut parts = vec![json!({"type": "thinking", "thinking": reasoning})];
    match message.get_mut("content") {
        Some(Json::String(text)) if !text.is_empty() => parts.push(json!({"type": "text", "text": text})),
        Some(Json::Array(rest)) => parts.append(rest),
        _ => {}
    }
    message.insert("content".into(), parts.into());
}

fn shorten_call_ids(message: &mut Map<String, Json>) {
    if let Some(Json::String(id)) = message.get_mut("tool_call_id") {
        *id = short_call_id(id);
    }
    for call in message.get_mut("tool_calls").and_then(Json::as_array_mut).into_iter().flatten() {
        if let Some(Json::String(id)) = call.get_mut("id") {
            *id = short_call_id(id);
        }
    }
}

/// Nine letters and digits that stand for `id`; `id` itself when it already is that.
pub fn short_call_id(id: &str) -> String {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    if id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return id.into();
    }
    // FNV-1a: fixed for ever, so that a conversation keeps its ids (and its cached prefix) across runs.
    let mut hash =
        id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    let digit = |_| {
        let d = DIGITS[(hash % 62) as usize];
        hash /= 62;
        char::from(d)
    };
    (0..9).map(digit).collect()
}

fn excerpt(source: &str, line: usize) -> String {
    let text = line.checked_sub(1).and_then(|n| source.lines().nth(n)).map(str::trim).unwrap_or_default();
    if text.is_empty() {
        return String::new();
    }
    let cut: String = text.chars().take(160).collect();
    format!("\n    {cut}")
}

fn syntax_error(error: &minijinja::Error, source: &str) -> TemplateError {
    let line = error.line().unwrap_or(1);
    TemplateError::Syntax { line, problem: describe(error), excerpt: excerpt(source, line) }
}

fn render_error(error: &minijinja::Error, source: &str) -> TemplateError {
    if let Some(message) = jinja::raised_message(error) {
        return TemplateError::Refused(message.into());
    }
    let line = error.line().unwrap_or(0);
    TemplateError::Render { line, problem: describe(error), excerpt: excerpt(source, line) }
}

fn describe(error: &minijinja::Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}

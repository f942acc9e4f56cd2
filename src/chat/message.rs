//! Chat messages as OpenAI-style JSON carries them, and the JSON that templates see.

use super::jinja;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use thiserror::Error;

/// A message that no template could render, whoever wrote the template.
#[derive(Debug, Error, PartialEq)]
pub enum MessageError {
    /// The JSON is not an array of message objects.
    #[error("messages: {0}")]
    Json(String),
    /// The conversation has no message.
    #[error("messages: the list is empty; send at least one message")]
    Empty,
    /// The message has an empty role.
    #[error("messages[{index}].role: empty; use system, user, assistant or tool")]
    EmptyRole {
        /// Position of the message.
        index: usize,
    },
    /// A message has no content, and is none that may go without.
    #[error(
        "messages[{index}].content: missing; only an assistant that calls tools or reasons may leave it out"
    )]
    NoContent {
        /// Position of the message.
        index: usize,
    },
    /// The content is neither text nor parts; only a tool's result may be any JSON value.
    #[error("messages[{index}].content: found {found}; a text or an array of parts is needed")]
    ContentKind {
        /// Position of the message.
        index: usize,
        /// The kind of value.
        found: &'static str,
    },
    /// A content part is not an object with a string `type`, or a text part has no text.
    #[error("messages[{index}].content[{part}]: {problem}")]
    Part {
        /// Position of the message.
        index: usize,
        /// Position of the part.
        part: usize,
        /// The fault.
        problem: &'static str,
    },
    /// The arguments of a call are neither a JSON object nor the text of one.
    #[error("messages[{index}].tool_calls[{call}].function.arguments: not a JSON object ({problem})")]
    Arguments {
        /// Position of the message.
        index: usize,
        /// Position of the call.
        call: usize,
        /// The JSON parser's words, or the kind of value found.
        problem: String,
    },
    /// The template prints `content` as one string and the message has a part that is not text.
    #[error(
        "messages[{index}].content[{part}]: this model's chat template takes no content of type `{kind}`"
    )]
    UnsupportedPart {
        /// Position of the message.
        index: usize,
        /// Position of the part.
        part: usize,
        /// The part's `type`.
        kind: String,
    },
}

/// One message of a conversation.
///
/// Fields that are not named here (`prefix`, a vendor's extensions) are kept in [`extra`](Self::extra) and reach the
/// template, as with Hugging Face's `apply_chat_template`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user`, `assistant`, `tool`, or another role that the template knows.
    pub role: String,
    /// The text or the parts, or JSON in a tool's result; absent or null on an assistant turn that only calls tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
    /// The model's thoughts before the answer; also read from `reasoning` and `thinking`.
    #[serde(default, alias = "reasoning", alias = "thinking", skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// Calls the assistant made.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// On a `tool` message: the call it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Name of the author or of the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Every other field, in the order sent.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// The content of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// Plain text.
    Text(String),
    /// Typed parts: `{"type": "text", "text": …}`, `{"type": "image_url", …}`, `{"type": "thinking", …}`. In a tool's
    /// result, any array whose items are not texts and images is JSON.
    Parts(Vec<Value>),
    /// JSON: the result of a tool, which becomes its text.
    Json(Value),
}

/// A call of a tool by the assistant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Identifier that the tool's answer repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Always `function` today.
    #[serde(rename = "type", default = "function_kind")]
    pub kind: String,
    /// The function and its arguments.
    pub function: FunctionCall,
}

/// Name and arguments of a called function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// The function's name.
    pub name: String,
    /// A JSON object, or (OpenAI) the text of one.
    #[serde(default)]
    pub arguments: Value,
}

fn function_kind() -> String {
    "function".into()
}

fn null_as_default<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(
    d: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(d)?.unwrap_or_default())
}

impl Message {
    /// A message that only has a role and text.
    pub fn text(role: &str, text: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            content: Some(Content::Text(text.into())),
            reasoning_content: None,
            tool_calls: Vec::new(),
            tool_call_id: None,
            name: None,
            extra: Map::new(),
        }
    }

    /// A message of images and the text after them. A template sees where the images are; `images` names each, as a path
    /// or URL, for whoever reads the conversation.
    pub fn with_images(
        role: &str,
        images: impl IntoIterator<Item = String>,
        text: impl Into<String>,
    ) -> Self {
        let image = |url| json!({"type": "image_url", "image_url": {"url": url}});
        let parts = images.into_iter().map(image).chain([json!({"type": "text", "text": text.into()})]);
        Self { content: Some(Content::Parts(parts.collect())), ..Self::text(role, "") }
    }

    /// Number of images among the parts of the content.
    pub fn image_count(&self) -> usize {
        let is_image = |part: &&Value| matches!(part["type"].as_str(), Some("image" | "image_url"));
        match &self.content {
            Some(Content::Parts(parts)) if self.json_result().is_none() => {
                parts.iter().filter(is_image).count()
            }
            _ => 0,
        }
    }

    /// Reads a conversation: a JSON array of messages.
    ///
    /// # Errors
    /// Text that is not such an array, an empty list, an empty role, a content that is missing or malformed.
    pub fn list_from_json(json: &str) -> Result<Vec<Self>, MessageError> {
        let messages: Vec<Self> =
            serde_json::from_str(json).map_err(|e| MessageError::Json(e.to_string()))?;
        if messages.is_empty() {
            return Err(MessageError::Empty);
        }
        for (index, message) in messages.iter().enumerate() {
            message.check(index)?;
        }
        Ok(messages)
    }

    fn check(&self, index: usize) -> Result<(), MessageError> {
        if self.role.is_empty() {
            return Err(MessageError::EmptyRole { index });
        }
        let parts = match &self.content {
            None if self.may_lack_content() => return Ok(()),
            None => return Err(MessageError::NoContent { index }),
            Some(Content::Json(value)) if self.role != "tool" => {
                return Err(MessageError::ContentKind { index, found: kind_name(value) });
            }
            Some(Content::Parts(parts)) if self.json_result().is_none() => parts,
            Some(_) => return Ok(()),
        };
        for (part, value) in parts.iter().enumerate() {
            let problem = match value.get("type").and_then(Value::as_str) {
                None => "not an object with a string `type`",
                Some("text") if !value["text"].is_string() => "a part of type `text` needs a string `text`",
                Some(_) => continue,
            };
            return Err(MessageError::Part { index, part, problem });
        }
        Ok(())
    }

    fn may_lack_content(&self) -> bool {
        self.role == "assistant" && (!self.tool_calls.is_empty() || self.reasoning_content.is_some())
    }

    /// The content, if it is a tool's result in JSON.
    fn json_result(&self) -> Option<Value> {
        let is_part = |value: &Value| matches!(value["type"].as_str(), Some("text" | "image" | "image_url"));
        match &self.content {
            _ if self.role != "tool" => None,
            Some(Content::Json(value)) => Some(value.clone()),
            Some(Content::Parts(items)) if items.is_empty() || !items.iter().all(is_part) => {
                Some(items.clone().into())
            }
            _ => None,
        }
    }

    /// The object a template sees: arguments as objects, a null content as the empty string, a tool's result in JSON as
    /// text, no other null.
    ///
    /// # Errors
    /// Arguments that are not a JSON object, a content that is missing or malformed.
    pub fn to_template(&self, index: usize) -> Result<Map<String, Value>, MessageError> {
        self.check(index)?;
        let mut out = Map::new();
        out.insert("role".into(), self.role.clone().into());
        // Templates disagree on null (old Qwen3 raises, Mistral's ask for a string); the empty string suits all of them.
        let content = match (self.json_result(), &self.content) {
            (Some(json), _) => Value::from(jinja::json_text(&json)),
            (None, None) => Value::from(""),
            (None, Some(Content::Text(text))) => Value::from(text.as_str()),
            (None, Some(Content::Parts(parts))) => Value::from(parts.clone()),
            (None, Some(Content::Json(value))) => value.clone(),
        };
        out.insert("content".into(), content);
        if let Some(reasoning) = &self.reasoning_content {
            out.insert("reasoning_content".into(), reasoning.as_str().into());
        }
        if !self.tool_calls.is_empty() {
            let calls = self.tool_calls.iter().enumerate().map(|(call, tool_call)| {
                tool_call.to_template().map_err(|problem| MessageError::Arguments { index, call, problem })
            });
            out.insert("tool_calls".into(), calls.collect::<Result<Vec<_>, _>>()?.into());
        }
        for (key, value) in [("tool_call_id", &self.tool_call_id), ("name", &self.name)] {
            if let Some(value) = value {
                out.insert(key.into(), value.as_str().into());
            }
        }
        out.extend(self.extra.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), v.clone())));
        Ok(out)
    }
}

impl ToolCall {
    fn to_template(&self) -> Result<Value, String> {
        let mut out = Map::new();
        if let Some(id) = &self.id {
            out.insert("id".into(), id.as_str().into());
        }
        out.insert("type".into(), self.kind.as_str().into());
        let arguments = self.function.arguments_object()?;
        out.insert("function".into(), json!({"name": self.function.name, "arguments": arguments}));
        Ok(out.into())
    }
}

impl FunctionCall {
    /// The arguments as an object; empty text and null mean none.
    ///
    /// # Errors
    /// The fault, in words.
    pub fn arguments_object(&self) -> Result<Map<String, Value>, String> {
        let parsed = match &self.arguments {
            Value::String(text) if text.trim().is_empty() => Value::Null,
            Value::String(text) => serde_json::from_str(text).map_err(|e| e.to_string())?,
            other => other.clone(),
        };
        match parsed {
            Value::Object(map) => Ok(map),
            Value::Null => Ok(Map::new()),
            other => Err(format!("found {}", kind_name(&other))),
        }
    }
}

fn kind_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

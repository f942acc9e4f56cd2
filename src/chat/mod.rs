//! Chat: messages, the model's own Jinja template, prompts that user text cannot forge, and streamed answers.

mod builtin;
pub mod guard;
pub mod image;
mod jinja;
pub mod message;
pub mod omission;
pub mod prompt;
pub mod splitter;
pub mod template;

pub(crate) use builtin::for_vocabulary as builtin_template;
pub use image::{ImagePromptError, ImageTokens};
pub use message::{Content, FunctionCall, Message, MessageError, ToolCall};
pub use omission::Omission;
pub use prompt::{Prompt, PromptError, PromptTokenizer, build_prompt};
pub use splitter::{AnswerSplitter, ReasoningTag, ReasoningTags, TextDelta};
pub use template::{ChatTemplate, RenderInput, TemplateError};

//! Chat: messages, the model's own Jinja template, prompts that user text cannot forge, and streamed answers.

pub mod guard;
pub mod image;
mod jinja;
pub mod message;
pub mod prompt;
pub mod splitter;
pub mod template;

pub use image::{ImagePromptError, ImageTokens};
pub use message::{Content, FunctionCall, Message, MessageError, ToolCall};
pub use prompt::{Prompt, PromptError, PromptTokenizer, build_prompt};
pub use splitter::{AnswerSplitter, ReasoningTags, TextDelta};
pub use template::{ChatTemplate, RenderInput, TemplateError};

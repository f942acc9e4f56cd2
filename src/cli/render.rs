//! `ember render`: a conversation as the model reads it.
use super::args::{ModelArg, TemplateArg, ThinkArgs};
use super::text_input::read_text;
use super::visible::shown;
use super::{Outcome, output};
use anyhow::{Context, Result, ensure};
use ember::chat::{Message, Prompt};
use ember::{ChatTokenizer, Conversation};
use serde::Serialize;
use serde_json::Value;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Render messages with the model's chat template
#[derive(clap::Args)]
#[command(after_help = "Examples:
  ember render -m model.gguf messages.json
  ember render -m model.gguf messages.json --tools tools.json --no-think
  ember render -m model.gguf messages.json --chat-template template.jinja
  echo '[{\"role\": \"user\", \"content\": \"Hi\"}]' | ember render -m model.gguf - --json")]
pub struct Args {
    #[command(flatten)]
    model: ModelArg,
    /// JSON array of messages in OpenAI's form; `-` is stdin
    #[arg(value_name = "MESSAGES")]
    messages: PathBuf,
    /// JSON array of tool definitions in OpenAI's form
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    /// Do not open the assistant's turn at the end
    #[arg(long)]
    no_generation_prompt: bool,
    #[command(flatten)]
    template: TemplateArg,
    #[command(flatten)]
    think: ThinkArgs,
    /// Print one JSON object: {"text": rendered, "tokens": [ids]}
    #[arg(long)]
    json: bool,
}

/// Prints the rendered conversation.
pub fn run(args: Args) -> Result<Outcome> {
    let messages = Message::list_from_json(&read_text(&args.messages)?)
        .with_context(|| args.messages.display().to_string())?;
    let tools = args.tools.as_deref().map(read_tools).transpose()?;
    let mut chat = ChatTokenizer::open(&args.model.model)?;
    if let Some(template) = args.template.read()? {
        chat = chat.with_chat_template(&template)?;
    }
    let prompt = chat.render(&Conversation {
        messages,
        tools,
        think: args.think.switch(),
        no_generation_prompt: args.no_generation_prompt,
        ..Conversation::default()
    })?;
    output::warn_of_omissions(&prompt.warnings);
    let mut out = io::stdout().lock();
    if args.json {
        output::json_line(&mut out, &PromptJson::from(&prompt))?;
    } else {
        out.write_all(shown(out.is_terminal(), &prompt.text).as_bytes())?;
    }
    out.flush()?;
    Ok(Outcome::Done)
}

fn read_tools(path: &Path) -> Result<Vec<Value>> {
    let name = || path.display().to_string();
    let tools: Vec<Value> = serde_json::from_str(&read_text(path)?)
        .context("not a JSON array of tool definitions")
        .with_context(name)?;
    let wrong = tools.iter().position(|tool| !tool.is_object());
    ensure!(wrong.is_none(), "{}: tools[{}] is not an object", name(), wrong.unwrap_or_default());
    Ok(tools)
}

/// A prompt with its tokens.
#[derive(Serialize)]
pub struct PromptJson<'a> {
    text: &'a str,
    tokens: &'a [u32],
}

impl<'a> From<&'a Prompt> for PromptJson<'a> {
    fn from(prompt: &'a Prompt) -> Self {
        Self { text: &prompt.text, tokens: &prompt.ids }
    }
}

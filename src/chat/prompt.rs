//! From a conversation to token ids, with control tokens that only the template can write.

use super::guard::{Guard, Strength, Stretch};
use super::message::MessageError;
use super::omission::{self, Omission};
use super::template::{ChatTemplate, RenderInput, TemplateError};
use ember_loaders::tokenizer::{Piece, Tokenizer};
use thiserror::Error;

/// The part of a tokenizer that a prompt needs.
pub trait PromptTokenizer {
    /// Texts of all CONTROL tokens (`<|im_end|>`, `[INST]`); USER_DEFINED ones (`<think>`) are not among them.
    fn control_tokens(&self) -> Vec<String>;
    /// Ids of the pieces: a control piece is its one token, text never becomes a control token. Adds no BOS.
    ///
    /// # Errors
    /// Whatever the tokenizer reports, in words.
    fn encode_pieces(&self, pieces: &[Piece<'_>]) -> Result<Vec<u32>, String>;
    /// The same ids with the model's BOS in front, exactly once, if the model wants one.
    fn with_bos(&self, ids: Vec<u32>) -> Vec<u32>;
}

impl PromptTokenizer for Tokenizer {
    fn control_tokens(&self) -> Vec<String> {
        self.control_tokens().map(|(text, _)| text.to_owned()).collect()
    }

    fn encode_pieces(&self, pieces: &[Piece<'_>]) -> Result<Vec<u32>, String> {
        self.encode_pieces(pieces).map_err(|e| e.to_string())
    }

    fn with_bos(&self, ids: Vec<u32>) -> Vec<u32> {
        self.with_bos(ids)
    }
}

/// A conversation ready for the model.
#[derive(Debug, Clone, PartialEq)]
pub struct Prompt {
    /// The rendered text, as the template printed it (without a BOS that the tokenizer adds).
    pub text: String,
    /// Its token ids, BOS included; each image is one `[IMG]` until [`expand_images`](Self::expand_images).
    pub ids: Vec<u32>,
    /// Index of the first token of each image.
    pub image_starts: Vec<usize>,
    /// True if no chat template was used: the answer is not parted into reasoning and text.
    pub is_raw: bool,
    /// What the template left out, as far as that is no error.
    pub warnings: Vec<Omission>,
}

impl Prompt {
    /// The prompt of a conversation, whose images are not expanded yet.
    pub fn new(text: String, ids: Vec<u32>) -> Self {
        Self { text, ids, image_starts: Vec::new(), is_raw: false, warnings: Vec::new() }
    }

    /// A prompt that is continued as it is, whose images are not expanded yet.
    pub fn raw(text: String, ids: Vec<u32>) -> Self {
        Self { is_raw: true, ..Self::new(text, ids) }
    }
}

/// The reason a conversation gave no prompt.
#[derive(Debug, Error)]
pub enum PromptError {
    /// The template could not render it.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A message no template could render.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The template leaves out something that was handed in.
    #[error(transparent)]
    Omission(#[from] Omission),
    /// A tool without a name, which no model could call.
    #[error("tools[{index}]: has no name (function.name)")]
    NamelessTool {
        /// Position of the tool.
        index: usize,
    },
    /// A message holds the text of a control token where the template acts on it, so that it cannot be kept apart.
    #[error(
        "a message contains (part of) the text of a control token, such as `{token}`, where this model's chat \
         template interprets it; remove it from the message"
    )]
    ControlText {
        /// The first control token in question.
        token: String,
    },
    /// Characters of both private-use planes 15 and 16 occur, which leaves none to mark control texts with.
    #[error(
        "a message contains the text of a control token and private-use characters of both planes 15 and 16"
    )]
    NoFreePlane,
    /// The tokenizer failed.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
}

/// Renders and tokenizes; only the template's own control texts become control tokens, and every text and tool is in the
/// prompt.
///
/// # Errors
/// [`PromptError`], [`PromptError::Omission`] among them for what the template leaves out.
pub fn build_prompt(
    tokenizer: &impl PromptTokenizer,
    template: &ChatTemplate,
    input: &RenderInput,
) -> Result<Prompt, PromptError> {
    let guard = Guard::new(tokenizer.control_tokens());
    let guard =
        guard.ok_or_else(|| PromptError::Tokenizer("too many control tokens to search for".into()))?;
    if let Some(index) = omission::nameless_tool(input.tools.as_deref().unwrap_or_default()) {
        return Err(PromptError::NamelessTool { index });
    }
    // All renderings show the same time.
    let now = input.now.unwrap_or_else(|| chrono::Local::now().naive_local());
    let input = &RenderInput { now: Some(now), ..input.clone() };
    let plain = template.render(input)?;
    let (warnings, errors): (Vec<_>, Vec<_>) =
        omission::find(template, input, &plain).into_iter().partition(Omission::is_tolerable);
    if let Some(error) = errors.into_iter().next() {
        return Err(error.into());
    }
    let stretches = split(&guard, template, input, plain)?;
    let pieces: Vec<Piece<'_>> = stretches.iter().map(Stretch::piece).collect();
    let ids = tokenizer.encode_pieces(&pieces).map_err(PromptError::Tokenizer)?;
    Ok(Prompt { warnings, ..Prompt::new(joined(&stretches), tokenizer.with_bos(ids)) })
}

/// The plain rendering of `input`, split at the control tokens the template wrote.
///
/// It is the truth about the text; renderings of marked messages say whose each control token is.
/// They must agree on the text, so a template that acts on a control text in a message is noticed.
fn split(
    guard: &Guard,
    template: &ChatTemplate,
    input: &RenderInput,
    plain: String,
) -> Result<Vec<Stretch>, PromptError> {
    let strings = input.messages.iter().chain(input.tools.iter().flatten()).chain(input.kwargs.values());
    let plane = Guard::free_plane(strings).ok_or(PromptError::NoFreePlane)?;
    let marked = |strength| {
        let marked = mark_input(guard, input, plane, strength);
        if &marked == input { Some(plain.clone()) } else { template.render(&marked).ok() }
    };
    let pieces = marked(Strength::Pieces).map(|text| guard.split(&text, plane)).unwrap_or_default();
    if joined(&pieces) == plain {
        return Ok(pieces);
    }
    // Some template compares with a string that is part of a control token. Marking whole control texts is enough if
    // it lets the same control tokens through.
    let whole = marked(Strength::Whole).map(|text| guard.split(&text, plane)).unwrap_or_default();
    let controls = |stretches: &[Stretch]| -> Vec<String> {
        stretches.iter().filter(|s| s.control).map(|s| s.text.clone()).collect()
    };
    if joined(&whole) == plain && controls(&whole) == controls(&pieces) {
        return Ok(whole);
    }
    let forged = controls(&guard.split(&plain, plane)).into_iter().next().unwrap_or_default();
    Err(PromptError::ControlText { token: forged })
}

impl Stretch {
    fn piece(&self) -> Piece<'_> {
        if self.control { Piece::Control(&self.text) } else { Piece::Text(&self.text) }
    }
}

fn mark_input(guard: &Guard, input: &RenderInput, plane: u32, strength: Strength) -> RenderInput {
    let mark = |value| guard.mark(value, plane, strength);
    RenderInput {
        messages: input.messages.iter().map(mark).collect(),
        tools: input.tools.as_ref().map(|tools| tools.iter().map(mark).collect()),
        kwargs: input.kwargs.iter().map(|(key, value)| (key.clone(), mark(value))).collect(),
        ..input.clone()
    }
}

fn joined(stretches: &[Stretch]) -> String {
    stretches.iter().map(|s| s.text.as_str()).collect()
}

//! From a conversation to token ids, with control tokens that only the template can write.

use super::message::MessageError;
use super::template::{ChatTemplate, RenderInput, TemplateError};
use thiserror::Error;

/// A stretch of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// The text of one control token.
    Control(&'a str),
    /// Anything else, encoded without looking for control tokens.
    Text(&'a str),
}

/// What a prompt needs of a tokenizer.
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

/// A conversation ready for the model.
#[derive(Debug, Clone, PartialEq)]
pub struct Prompt {
    /// The rendered text.
    pub text: String,
    /// Its token ids.
    pub ids: Vec<u32>,
}

/// Why a conversation gave no prompt.
#[derive(Debug, Error)]
pub enum PromptError {
    /// The template could not render it.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A message no template could render.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The tokenizer failed.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
}

/// Renders and tokenizes.
///
/// # Errors
/// [`PromptError`].
pub fn build_prompt(
    tokenizer: &impl PromptTokenizer,
    template: &ChatTemplate,
    input: &RenderInput,
) -> Result<Prompt, PromptError> {
    let text = template.render(input)?;
    let ids = tokenizer.encode_pieces(&[Piece::Text(&text)]).map_err(PromptError::Tokenizer)?;
    Ok(Prompt { text, ids: tokenizer.with_bos(ids) })
}

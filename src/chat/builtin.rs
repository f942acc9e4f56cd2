//! Templates for models that carry none: the format is told by the control tokens of the vocabulary.

/// The template of the family that the vocabulary belongs to; `None` when its tokens tell no family.
pub fn for_vocabulary(has_token: impl Fn(&str) -> bool) -> Option<&'static str> {
    let has_all = |tokens: &[&str]| tokens.iter().all(|token| has_token(token));
    // A SentencePiece vocabulary writes spaces so; Mistral's formats on it have other spaces around the control tokens.
    let is_sentencepiece = has_token("\u{2581}");
    if has_all(&["<|im_start|>", "<|im_end|>"]) {
        Some(include_str!("builtin/chatml.jinja"))
    } else if is_sentencepiece || !has_all(&["[INST]", "[/INST]"]) {
        None
    } else if has_all(&["[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"]) {
        Some(include_str!("builtin/mistral-v7.jinja"))
    } else {
        Some(include_str!("builtin/mistral-v3.jinja"))
    }
}

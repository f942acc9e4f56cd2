//! The rules that cut text into the pieces that BPE works on: one per tokenizer family.

use fancy_regex::{Regex, RegexBuilder};
use tokenizers::NormalizedString;

use super::TokenizerError;

/// Qwen 2, 2.5 and 3 (their tokenizer.json).
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Llama 3 (its tokenizer.json).
pub(super) const LLAMA_BPE: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Mistral's Tekken (`config.pattern` of tekken.json): words split where lower case turns to upper.
pub(super) const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// GPT-2.
pub(super) const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// SmolLM cuts every digit off before GPT-2's rule.
pub(super) const DIGIT: &str = r"\p{N}";

/// One family's rule and the settings that come with it.
struct Family {
    names: &'static [&'static str],
    stages: &'static [&'static str],
    nfc: bool,
    ignore_merges: bool,
    add_bos: bool,
}

/// The names under which llama.cpp's converter knows these rules. Those of tokenizers that compose characters first, which
/// llama.cpp leaves out, are here only where the rule does so too.
const FAMILIES: &[Family] = &[
    Family {
        names: &["qwen2", "deepseek-r1-qwen", "f2llmv2"],
        stages: &[QWEN2],
        nfc: true,
        ignore_merges: false,
        add_bos: false,
    },
    Family {
        names: &["megrez", "kormo"],
        stages: &[QWEN2],
        nfc: false,
        ignore_merges: false,
        add_bos: false,
    },
    // Pixtral's vocabulary is Tekken (mistral-common, tekken_240911), whatever its converted files call it.
    Family {
        names: &["tekken", "pixtral"],
        stages: &[TEKKEN],
        nfc: false,
        ignore_merges: true,
        add_bos: true,
    },
    Family {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "lfm2",
            "midm-2.0",
            "jina-v5-nano",
        ],
        stages: &[LLAMA_BPE],
        nfc: false,
        ignore_merges: true,
        add_bos: true,
    },
    Family {
        names: &["smollm", "starcoder", "refact", "codeshell", "minerva-7b", "mellum2"],
        stages: &[DIGIT, GPT2],
        nfc: false,
        ignore_merges: false,
        add_bos: false,
    },
    Family {
        names: &["gpt-2", "phi-2", "jais", "trillion", "gigachat", "mellum", "a.x-4.0", "granite-docling"],
        stages: &[GPT2],
        nfc: false,
        ignore_merges: false,
        add_bos: false,
    },
];

/// Normalisation and splitting, and what a family fixes besides.
#[derive(Clone, Debug)]
pub struct PreTokenizer {
    /// Each expression splits the pieces left by the one before it; what it does not match stays a piece.
    stages: Vec<Regex>,
    /// True if text is brought to Unicode's composed form first.
    nfc: bool,
    /// True if a piece that is a token as a whole is taken as it is, without its merges.
    pub(super) ignore_merges: bool,
    /// True if a beginning-of-sequence token is added when the file does not say.
    pub(super) add_bos: bool,
}

impl PreTokenizer {
    /// The family that GGUF files call `name` (`tokenizer.ggml.pre`).
    ///
    /// # Errors
    /// [`TokenizerError::UnknownPreTokenizer`]: a wrong rule would degrade every answer without a sign.
    pub fn from_name(name: &str) -> Result<Self, TokenizerError> {
        let family = FAMILIES.iter().find(|family| family.names.contains(&name)).ok_or_else(|| {
            TokenizerError::UnknownPreTokenizer { found: name.to_owned(), accepted: accepted_names() }
        })?;
        // These expressions only ever step back over one run of characters; the limit would only cut long runs.
        let mut pre = Self::new(family.stages, usize::MAX)?;
        pre.nfc = family.nfc;
        pre.ignore_merges = family.ignore_merges;
        pre.add_bos = family.add_bos;
        Ok(pre)
    }

    /// No rule: a text is one piece.
    pub(super) fn whole_text() -> Self {
        Self { stages: Vec::new(), nfc: false, ignore_merges: false, add_bos: false }
    }

    /// A rule given by its expressions, as in a tokenizer.json; no BOS, merges always applied.
    pub(super) fn from_expressions(expressions: &[&str], nfc: bool) -> Result<Self, TokenizerError> {
        const BACKTRACK_LIMIT: usize = 1_000_000;
        Ok(Self { nfc, ..Self::new(expressions, BACKTRACK_LIMIT)? })
    }

    fn new(expressions: &[&str], backtrack_limit: usize) -> Result<Self, TokenizerError> {
        let compile = |expression: &&str| {
            RegexBuilder::new(expression)
                .backtrack_limit(backtrack_limit)
                .build()
                .map_err(|error| TokenizerError::Regex(error.to_string()))
        };
        let stages = expressions.iter().map(compile).collect::<Result<_, _>>()?;
        Ok(Self { stages, nfc: false, ignore_merges: false, add_bos: false })
    }

    /// Calls `piece` with each piece of `text` in order; together they are the whole (normalised) text.
    ///
    /// # Errors
    /// If an expression backtracks past its limit, or whatever `piece` returns.
    pub(super) fn split(
        &self,
        text: &str,
        piece: &mut impl FnMut(&str) -> Result<(), TokenizerError>,
    ) -> Result<(), TokenizerError> {
        if self.nfc && !text.is_ascii() {
            let mut normalized = NormalizedString::from(text);
            normalized.nfc();
            return split(&self.stages, normalized.get(), piece);
        }
        split(&self.stages, text, piece)
    }
}

fn split(
    stages: &[Regex],
    text: &str,
    piece: &mut impl FnMut(&str) -> Result<(), TokenizerError>,
) -> Result<(), TokenizerError> {
    let Some((first, rest)) = stages.split_first() else { return piece(text) };
    let mut end = 0;
    for found in first.find_iter(text) {
        let found = found.map_err(|error| TokenizerError::Split(error.to_string()))?;
        for part in [&text[end..found.start()], found.as_str()] {
            if !part.is_empty() {
                split(rest, part, piece)?;
            }
        }
        end = found.end();
    }
    if end < text.len() { split(rest, &text[end..], piece) } else { Ok(()) }
}

/// The accepted values of `tokenizer.ggml.pre`, for messages.
pub(super) fn accepted_names() -> String {
    FAMILIES.iter().flat_map(|family| family.names).copied().collect::<Vec<_>>().join(", ")
}

//! Errors of building a tokenizer and of encoding.

use std::path::PathBuf;

use crate::checkpoint::CheckpointError;
use crate::gguf::GgufError;

/// An error of [`Tokenizer`](super::Tokenizer).
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The GGUF metadata lacks a key or holds it with another type.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// generation_config.json of a folder is malformed.
    #[error(transparent)]
    GenerationConfig(#[from] Box<CheckpointError>),
    /// `tokenizer.ggml.model`, or `model.type` of a tokenizer.json, is no kind of BPE that is supported.
    #[error(
        "tokenizer model \"{0}\" is not supported; byte-level BPE is (\"gpt2\" in GGUF files, \"BPE\" in tokenizer.json), \
         and SentencePiece BPE (\"llama\" in GGUF files, the file tokenizer.model in folders)"
    )]
    UnknownModel(String),
    /// `tokenizer.ggml.pre` names no known pre-tokenizer.
    #[error("pre-tokenizer \"{found}\" (tokenizer.ggml.pre) is not known; the accepted ones are {accepted}")]
    UnknownPreTokenizer {
        /// The value found.
        found: String,
        /// The accepted values, separated by commas.
        accepted: String,
    },
    /// The file has no `tokenizer.ggml.pre`.
    #[error(
        "the file does not say how text is split before BPE (tokenizer.ggml.pre is missing: it was converted by a tool from before 2024); convert the model again. The accepted values are {accepted}"
    )]
    MissingPreTokenizer {
        /// The accepted values, separated by commas.
        accepted: String,
    },
    /// A pre-tokenizer's expression does not compile.
    #[error("the pre-tokenizer's regular expression does not compile: {0}")]
    Regex(String),
    /// An array has another length than the token list.
    #[error("{what} has {found} entries, but there are {tokens} tokens")]
    LengthMismatch {
        /// The array.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The number of tokens.
        tokens: usize,
    },
    /// The vocabulary has no tokens at all.
    #[error("the vocabulary is empty")]
    NoTokens,
    /// A token type that the GGUF specification does not have or that the tokenizer model does not use.
    #[error(
        "token {id} (\"{text}\") has type {kind}; there are 1 to 5 (normal, unknown, control, user-defined, unused), and \
         6 for the bytes <0x00> to <0xFF> of a SentencePiece vocabulary"
    )]
    TokenKind {
        /// The token.
        id: usize,
        /// Its text.
        text: String,
        /// The type found.
        kind: i64,
    },
    /// Two tokens have the same text.
    #[error("tokens {first} and {second} have the same text \"{text}\"")]
    DuplicateToken {
        /// The text.
        text: String,
        /// The lower id.
        first: u32,
        /// The higher id.
        second: u32,
    },
    /// A normal token's text has a character that stands for no byte.
    #[error(
        "token {id} (\"{text}\") is not written in the byte-level alphabet: '{character}' stands for no byte"
    )]
    NotByteLevel {
        /// The token.
        id: u32,
        /// Its text.
        text: String,
        /// The first character outside the alphabet.
        character: char,
    },
    /// A byte of ordinary text has no token.
    #[error(
        "the vocabulary has no token for byte {0:#04x}, so ordinary text cannot be encoded: this is not a byte-level vocabulary"
    )]
    MissingByte(u8),
    /// A SentencePiece vocabulary without byte pieces.
    #[error(
        "the SentencePiece vocabulary has no byte piece for {0:#04x}: characters that have no piece could not be encoded"
    )]
    MissingBytePiece(u8),
    /// The scores of a SentencePiece vocabulary say nothing.
    #[error(
        "all pieces of the SentencePiece vocabulary have the same score, which leaves open what they are joined to: \
         convert the model again, with its tokenizer.model"
    )]
    NoScores,
    /// A SentencePiece vocabulary whose normalization is more than escaping spaces.
    #[error("the SentencePiece vocabulary normalizes text, which is not supported: {0}")]
    Normalization(String),
    /// A merge rule that is not two tokens joining into a third.
    #[error("merge {index} (\"{text}\") {fault}")]
    Merge {
        /// Its place in the list.
        index: usize,
        /// The rule as stored.
        text: String,
        /// The fault in it.
        fault: &'static str,
    },
    /// A special token's id is outside the vocabulary.
    #[error("{key} is {id}, but there are only {tokens} tokens")]
    IdOutOfRange {
        /// The metadata key.
        key: &'static str,
        /// The id found.
        id: u32,
        /// The number of tokens.
        tokens: usize,
    },
    /// A text that must be one token is not.
    #[error("\"{0}\" is not a token of this vocabulary")]
    NotAToken(String),
    /// A character cannot be encoded with this vocabulary.
    #[error("the vocabulary has no token for byte {byte:#04x}, which the text holds in {piece:?}")]
    UnencodableByte {
        /// The byte.
        byte: u8,
        /// The piece of text with it.
        piece: String,
    },
    /// The pre-tokenizer gave up: the text makes its expression backtrack without end.
    #[error("the text cannot be split: {0}")]
    Split(String),
    /// The BPE model refused.
    #[error("byte-pair encoding: {0}")]
    Bpe(String),
    /// A folder has no vocabulary of a known kind.
    #[error("{} has no tokenizer.json, tekken.json or tokenizer.model, so there is nothing to tokenize with", folder.display())]
    NoVocabulary {
        /// The folder.
        folder: PathBuf,
    },
    /// A file of a folder cannot be read.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// A file of a folder is not the JSON that is expected.
    #[error("{path}: {source}")]
    Json {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: serde_json::Error,
    },
    /// A tokenizer.json asks for something that is not supported.
    #[error("{path}: {what}")]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The demand of the file, and what is accepted.
        what: String,
    },
}

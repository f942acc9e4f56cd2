//! Errors of GGUF files, said so that the reader of the message knows what to do.

use std::borrow::Cow;
use std::io;

/// The reason a GGUF file could not be read, or a metadata key not be used.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// The operating system refused.
    #[error("{file}: cannot {action}: {source}")]
    Io {
        /// The file concerned.
        file: String,
        /// The verb of the attempt: "open", "map".
        action: &'static str,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The path names a directory, a pipe or a device.
    #[error("{file}: not a regular file; give the path of a .gguf file")]
    NotAFile {
        /// The path as given.
        file: String,
    },
    /// The content breaks the format.
    #[error("{file}: at offset {offset}: {fault}")]
    Malformed {
        /// The file concerned.
        file: String,
        /// Byte offset of the offending field from the start of the file.
        offset: u64,
        /// The fault found there.
        fault: Fault,
    },
    /// A required metadata key is absent.
    #[error("{file}: metadata key `{key}` is missing (expected {expected})")]
    MissingKey {
        /// The file concerned.
        file: String,
        /// The full key.
        key: String,
        /// The type it should have.
        expected: &'static str,
    },
    /// A metadata key holds another type than the caller needs.
    #[error("{file}: metadata key `{key}` is of type {found}, expected {expected}")]
    WrongType {
        /// The file concerned.
        file: String,
        /// The full key.
        key: String,
        /// The type it should have.
        expected: &'static str,
        /// The type it has.
        found: String,
    },
    /// A metadata integer is too large, or negative, for the type the caller needs.
    #[error("{file}: metadata key `{key}` is {value}, out of range for {expected}")]
    OutOfRange {
        /// The file concerned.
        file: String,
        /// The full key.
        key: String,
        /// The type it should fit.
        expected: &'static str,
        /// The stored value.
        value: String,
    },
    /// Some shards of a split model are not beside the one that was given.
    #[error("{file}: the model is split into {count} shards and {missing} not found in the same folder")]
    MissingShards {
        /// The shard that was given.
        file: String,
        /// Number of shards that there should be.
        count: usize,
        /// The missing file names with a verb: "b.gguf and c.gguf were".
        missing: String,
    },
    /// The file is a piece of one that was cut up without regard for its content.
    #[error(
        "{error}. By its name it is {piece} of a file that was cut up, as `split` does it; such pieces are no GGUF files \
         of their own. Join all of them in order, `cat PIECE1 PIECE2 ... > model.gguf`, and open the result"
    )]
    Piece {
        /// Its place: "the first piece", "a later piece".
        piece: &'static str,
        /// The fault that it has as a file of its own.
        error: Box<GgufError>,
    },
    /// The shards, their names and their `split.*` keys do not agree.
    #[error("{file}: {problem}")]
    InconsistentShards {
        /// The shard concerned.
        file: String,
        /// The disagreement, with both values.
        problem: String,
    },
}

/// One way in which the bytes break the format. Displayed inside [`GgufError::Malformed`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages are the documentation; the fields are their values")]
pub enum Fault {
    #[error("bad magic: this is {what}, not a GGUF file")]
    BadMagic { what: &'static str },
    #[error(
        "big-endian GGUF file; only little-endian files are supported (convert it with gguf_convert_endian.py)"
    )]
    BigEndian,
    #[error("GGUF version {0} is not supported (2 and 3 are); convert the model again with current tools")]
    UnsupportedVersion(u32),
    #[error("file ends inside {what}: {needed} more bytes needed, {left} left (interrupted download?)")]
    Truncated { what: String, needed: u64, left: u64 },
    #[error("{what} claims {count} entries, which cannot fit in the {left} bytes left of the file")]
    ImpossibleCount { what: String, count: u64, left: u64 },
    #[error("{what} is not valid UTF-8")]
    BadUtf8 { what: String },
    #[error("{what} has unknown value type {id} (0 to 12 are defined)")]
    UnknownValueType { what: String, id: u32 },
    #[error("{what} is a bool with value {value}; only 0 and 1 are allowed")]
    BadBool { what: String, value: u8 },
    #[error("{what} nests arrays more than {limit} deep")]
    NestedTooDeep { what: String, limit: usize },
    #[error("metadata key `{0}` appears twice")]
    DuplicateKey(String),
    #[error("tensor name `{0}` appears twice")]
    DuplicateTensor(String),
    #[error("general.alignment must be a power of two, but is {0}")]
    BadAlignment(String),
    #[error("tensor `{tensor}` has {n_dims} dimensions; 1 to 4 are allowed")]
    BadDimCount { tensor: String, n_dims: u32 },
    #[error("tensor `{tensor}` has a dimension of size zero: {dims:?}")]
    ZeroDim { tensor: String, dims: Vec<u64> },
    #[error("the size of tensor `{tensor}` overflows: {dims:?}")]
    SizeOverflow { tensor: String, dims: Vec<u64> },
    #[error(
        "rows of tensor `{tensor}` have {cols} weights, not a multiple of the {block_len} of a {ty} block"
    )]
    RaggedRow { tensor: String, ty: Cow<'static, str>, cols: u64, block_len: usize },
    #[error("data offset {start} of tensor `{tensor}` is not a multiple of the alignment {alignment}")]
    Misaligned { tensor: String, start: u64, alignment: u64 },
    #[error(
        "data of tensor `{tensor}` lies outside the file: {len} bytes from offset {start}, but the file has {file_len} (interrupted download, or the first piece of a file that was cut up? join its pieces in order with `cat`)"
    )]
    OutsideFile { tensor: String, start: u64, len: u64, file_len: u64 },
    #[error(
        "another GGUF file begins here: several were joined into one, which cannot be read. Shards of a split model stay \
         files of their own: get the original ones, leave them in one folder and open any of them (or make one file of \
         them with `llama-gguf-split --merge`)"
    )]
    Joined,
    #[error("data of tensors `{first}` and `{second}` overlap")]
    Overlap { first: String, second: String },
}

pub(super) const ZEROS: &str = "a run of zero bytes (unfinished download?)";
pub(super) const UNRECOGNISED: &str =
    "unrecognised data (a later piece of a file that was cut up? join its pieces in order with `cat`)";

/// Says what a file that does not start with the GGUF magic seems to be.
pub(super) fn describe_foreign(start: &[u8]) -> &'static str {
    let text = start.trim_ascii_start();
    let starts_with =
        |tag: &str| text.get(..tag.len()).is_some_and(|t| t.eq_ignore_ascii_case(tag.as_bytes()));
    if starts_with("<!doctype") || starts_with("<html") || starts_with("<head") {
        "an HTML page (failed download?)"
    } else if starts_with("<") {
        "an XML or HTML document (failed download?)"
    } else if starts_with("version https://git-lfs") {
        "a git-lfs pointer (run `git lfs pull` to get the real file)"
    } else if starts_with("{") {
        "JSON text (an error reply saved as a file?)"
    } else if start.starts_with(b"PK\x03\x04") {
        "a zip archive or PyTorch checkpoint"
    } else if start.starts_with(b"\x1f\x8b") {
        "gzip-compressed data"
    } else if [b"lmgg", b"tjgg", b"fmgg", b"algg"].iter().any(|magic| start.starts_with(*magic)) {
        "a model in a ggml format older than GGUF (convert the model again)"
    } else if start.get(8) == Some(&b'{') {
        "a safetensors file"
    } else if start.iter().all(|&byte| byte == 0) {
        ZEROS
    } else {
        UNRECOGNISED
    }
}

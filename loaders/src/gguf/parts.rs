//! Files that are not as they were made: several GGUF files joined into one, or one that was cut into pieces.

use std::path::Path;

use fancy_regex::Regex;

use super::error::{Fault, GgufError, UNRECOGNISED, ZEROS};
use super::parse::{MAGIC, read_metadata_of};
use super::shards::{ShardName, split_count};

/// Names that `split` and its imitators give to the pieces of a file: `model.gguf.part1`, `model.ggufaa`,
/// `model.Q8_0.gguf-split-a`, `model-part-2-of-3.gguf`, `model-00002-of-00003.gguf`, `xaa`.
const PIECE_NAME: &str = r"(?ix)
    (?: \.gguf [._-]? (?: \d{2,5} | a[a-z] )
      | (?: \.gguf | [._-] ) [._-]? (?: part | split | chunk ) [._-]? (?: \d{1,5} | [a-z]{1,2} )
        (?: [_-]? of [_-]? \d{1,5} )? (?: \.gguf )?
      | (?<! -of ) - \d{5} (?: -of- (?! 00001 ) \d{5} )? (?: \.gguf )?
      | ^ x (?: [a-z]{2} | \d{2} )
    ) $";

/// The place of a second GGUF file behind the data of the first, which ends at one of `ends`.
pub(super) fn second_file(bytes: &[u8], ends: [u64; 2]) -> Option<u64> {
    let begins_at = |end: &u64| {
        let rest = usize::try_from(*end).ok().and_then(|end| bytes.get(end..)).unwrap_or_default();
        let version = rest.strip_prefix(MAGIC).and_then(|rest| rest.first_chunk());
        version.is_some_and(|version| matches!(u32::from_le_bytes(*version), 2 | 3))
    };
    ends.into_iter().find(begins_at)
}

/// The error of the file at `path`, said as that of a piece if the content and the name are those of one.
pub(super) fn explain(path: &Path, bytes: &[u8], error: GgufError) -> GgufError {
    let GgufError::Malformed { fault, .. } = &error else { return error };
    let piece = match fault {
        Fault::Truncated { .. } | Fault::ImpossibleCount { .. } | Fault::OutsideFile { .. } => {
            "the first piece"
        }
        Fault::BadMagic { what: UNRECOGNISED | ZEROS } => "a later piece",
        _ => return error,
    };
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let pattern = Regex::new(PIECE_NAME).expect("a constant expression that the tests compile");
    if !pattern.is_match(&name).unwrap_or(false) || is_shard(&name, bytes) {
        return error;
    }
    GgufError::Piece { piece, error: Box::new(error) }
}

/// True for a shard of a split model that ends too early: its metadata says what it is, or else, when not even that is
/// whole, its name.
fn is_shard(name: &str, bytes: &[u8]) -> bool {
    match read_metadata_of(name, bytes) {
        Some(metadata) => split_count(&metadata).is_ok_and(|count| count > 1),
        None => bytes.starts_with(MAGIC) && ShardName::parse(name).is_some(),
    }
}

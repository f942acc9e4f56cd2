//! Split models: finding all shards from any one, and checking that they belong together.

use std::path::{Path, PathBuf};

use super::error::GgufError;
use super::metadata::Metadata;
use super::parse::Header;

const SPLIT_NO: &str = "split.no";
const SPLIT_COUNT: &str = "split.count";
const SPLIT_TENSORS: &str = "split.tensors.count";

/// At most this many missing shards are listed by name.
const MAX_NAMED: usize = 8;

/// The place of a file in a split model, as its name tells: `PREFIX-00002-of-00003.gguf`.
#[derive(Debug, PartialEq)]
pub(super) struct ShardName<'a> {
    prefix: &'a str,
    /// From 1.
    number: usize,
    count: usize,
}

impl<'a> ShardName<'a> {
    pub(super) fn parse(file_name: &'a str) -> Option<Self> {
        let stem = file_name.strip_suffix(".gguf")?;
        let (rest, count) = stem.rsplit_once("-of-")?;
        let (prefix, number) = rest.rsplit_once('-')?;
        let digits = |text: &str| {
            (text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok()).flatten()
        };
        Some(Self { prefix, number: digits(number)?, count: digits(count)? })
    }

    fn sibling(&self, number: usize) -> String {
        format!("{}-{number:05}-of-{:05}.gguf", self.prefix, self.count)
    }
}

/// The number of files of the model that a file with this metadata belongs to; 1 when it is not split.
/// llama.cpp's merge tool leaves `split.count` = 0 behind.
pub(super) fn split_count(metadata: &Metadata) -> Result<usize, GgufError> {
    Ok(metadata.opt_usize(SPLIT_COUNT)?.unwrap_or(1).max(1))
}

/// Refuses a shard that was given without its path, so that the others cannot be found.
pub(super) fn require_whole(metadata: &Metadata) -> Result<(), GgufError> {
    match split_count(metadata)? {
        1 => Ok(()),
        count => Err(inconsistent(
            metadata.file(),
            format!("this is one of {count} shards of a split model; open it by its path to load them all"),
        )),
    }
}

/// The paths of all shards in order, given any one of them and its metadata.
pub(super) fn shard_paths(given: &Path, metadata: &Metadata) -> Result<Vec<PathBuf>, GgufError> {
    let count = split_count(metadata)?;
    let file_name = given.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name = match ShardName::parse(file_name) {
        None if count == 1 => return Ok(vec![given.to_owned()]),
        Some(name) if name.count == count && count == 1 => return Ok(vec![given.to_owned()]),
        Some(name) if name.count == count && (1..=count).contains(&name.number) => name,
        Some(name) => {
            let said = match metadata.get(SPLIT_COUNT) {
                Some(_) => format!("{SPLIT_COUNT} is {count}"),
                None => format!("the metadata has no {SPLIT_COUNT}"),
            };
            let problem = format!("the name says shard {} of {}, but {said}", name.number, name.count);
            return Err(inconsistent(metadata.file(), problem));
        }
        None => {
            let problem = format!(
                "this is one of {count} shards, whose names must end in -00001-of-{count:05}.gguf and so on \
                 for the others to be found"
            );
            return Err(inconsistent(metadata.file(), problem));
        }
    };
    let paths: Vec<PathBuf> = (1..=count).map(|i| given.with_file_name(name.sibling(i))).collect();
    let missing: Vec<&PathBuf> = paths.iter().filter(|path| !path.exists()).collect();
    if missing.is_empty() { Ok(paths) } else { Err(missing_shards(metadata.file(), count, &missing)) }
}

fn missing_shards(file: &str, count: usize, missing: &[&PathBuf]) -> GgufError {
    let named = missing.iter().take(MAX_NAMED).filter_map(|path| path.file_name());
    let mut list = named.map(|name| name.to_string_lossy()).collect::<Vec<_>>().join(", ");
    if missing.len() > MAX_NAMED {
        list += &format!(" and {} more", missing.len() - MAX_NAMED);
    }
    list += if missing.len() == 1 { " was" } else { " were" };
    GgufError::MissingShards { file: file.to_owned(), count, missing: list }
}

/// Checks `split.no`, `split.count` and `split.tensors.count` of all shards in order.
pub(super) fn check_shards(headers: &[Header]) -> Result<(), GgufError> {
    if headers.len() == 1 {
        return Ok(());
    }
    let n_tensors: usize = headers.iter().map(|header| header.tensors.len()).sum();
    // Key by key, so that a shard in the wrong place is told before the wrong total that it causes.
    for key in [SPLIT_NO, SPLIT_COUNT, SPLIT_TENSORS] {
        for (shard, header) in headers.iter().enumerate() {
            let expected = match key {
                SPLIT_NO => shard,
                SPLIT_COUNT => headers.len(),
                _ => n_tensors,
            };
            let found = header.metadata.usize(key)?;
            if found != expected {
                let problem =
                    format!("metadata key `{key}` is {found}, but the shards on disk make it {expected}");
                return Err(inconsistent(header.metadata.file(), problem));
            }
        }
    }
    Ok(())
}

pub(super) fn inconsistent(file: &str, problem: String) -> GgufError {
    GgufError::InconsistentShards { file: file.to_owned(), problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shard_names() {
        let name = ShardName::parse("Qwen3-0.6B-00002-of-00003.gguf").unwrap();
        assert_eq!(name, ShardName { prefix: "Qwen3-0.6B", number: 2, count: 3 });
        assert_eq!(name.sibling(1), "Qwen3-0.6B-00001-of-00003.gguf");
        for other in [
            "model.gguf",
            "m-1-of-3.gguf",
            "m-00001-of-00003.bin",
            "00001-of-00003.gguf",
            "m-+0001-of-00003.gguf",
        ] {
            assert_eq!(ShardName::parse(other), None, "{other}");
        }
    }
}

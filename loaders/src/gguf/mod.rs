//! GGUF files: memory-mapped, checked before use, all shards of a split model as one.
//!
//! Versions 2 and 3, little-endian. The layout is described in ggml's `docs/gguf.md`: a header with the
//! metadata and the tensor descriptions, then the tensor data, each tensor at a multiple of
//! `general.alignment`. Every count, length and offset is checked against the size of the file before
//! anything is allocated or read, so a hostile file gives a [`GgufError`] and nothing worse.
//!
//! ```no_run
//! # fn main() -> Result<(), ember_loaders::gguf::GgufError> {
//! let gguf = ember_loaders::gguf::Gguf::open("model.gguf")?;
//! println!("{}", gguf.metadata().str("general.architecture")?);
//! for tensor in gguf.tensors() {
//!     println!("{} {} {:?}", tensor.name, tensor.ty, tensor.dims);
//! }
//! # Ok(())
//! # }
//! ```

mod cursor;
mod error;
mod mapped;
mod metadata;
mod output;
mod parse;
mod parts;
mod shards;
mod tensor;
mod value;
mod writer;

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

pub use ember_formats::{GgmlType, StoredType, dequantize};

pub use error::{Fault, GgufError};
pub use mapped::MappedBytes;
pub use metadata::Metadata;
pub use output::OutputFile;
pub use tensor::TensorInfo;
pub use value::{Array, Value};
pub use writer::{GgufDataWriter, GgufWriteError, GgufWriter};

use parse::{Header, parse};

/// The name in errors of a model that was not read from a file.
const IN_MEMORY: &str = "GGUF in memory";

/// A model: the metadata and tensors of one file, or of all shards of a split one.
#[derive(Debug)]
pub struct Gguf {
    version: u32,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    by_name: HashMap<String, usize>,
    /// The whole content of each shard.
    shards: Vec<MappedBytes>,
    paths: Vec<PathBuf>,
}

impl Gguf {
    /// Maps and checks the model at `path`; given any shard of a split model, all of them.
    ///
    /// # Errors
    /// If a file cannot be opened or breaks the format, or when shards are missing or do not belong together. Tensors
    /// of types that nothing computes with are no error here.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, GgufError> {
        let given = path.as_ref();
        let (content, header) = read(given, 0)?;
        let paths = shards::shard_paths(given, &header.metadata)?;
        if let [_] = paths.as_slice() {
            return Self::assemble(vec![header], vec![content], paths);
        }
        let mut headers = Vec::new();
        let mut contents = Vec::new();
        for (shard, path) in paths.iter().enumerate() {
            let (content, header) = read(path, shard)?;
            headers.push(header);
            contents.push(content);
        }
        Self::assemble(headers, contents, paths)
    }

    /// Checks a model of one file that is already in memory.
    ///
    /// # Errors
    /// As [`Gguf::open`]; a shard of a split model is refused.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, GgufError> {
        let header = parse(IN_MEMORY, &bytes, 0)?;
        shards::require_whole(&header.metadata)?;
        Self::assemble(vec![header], vec![MappedBytes::from_vec(bytes)], Vec::new())
    }

    fn assemble(
        headers: Vec<Header>,
        shards: Vec<MappedBytes>,
        paths: Vec<PathBuf>,
    ) -> Result<Self, GgufError> {
        shards::check_shards(&headers)?;
        let mut by_name = HashMap::new();
        let mut tensors = Vec::new();
        let mut first = None;
        for header in headers {
            for tensor in header.tensors {
                if by_name.insert(tensor.name.clone(), tensors.len()).is_some() {
                    let problem = format!("tensor `{}` is in an earlier shard too", tensor.name);
                    return Err(shards::inconsistent(header.metadata.file(), problem));
                }
                tensors.push(tensor);
            }
            first.get_or_insert((header.version, header.metadata));
        }
        let (version, metadata) = first.expect("a model has at least one file");
        Ok(Self { version, metadata, tensors, by_name, shards, paths })
    }

    /// The format version, 2 or 3 (of the first shard).
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The metadata (of the first shard; the others repeat at most `split.*`).
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All tensors in file order, shard after shard.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.by_name.get(name).map(|&i| &self.tensors[i])
    }

    /// The data of a tensor of this model, without copying; where the size of its type is not known, everything up to
    /// the next tensor.
    ///
    /// # Panics
    /// If `tensor` belongs to another model and does not fit this one.
    pub fn bytes(&self, tensor: &TensorInfo) -> MappedBytes {
        self.shards[tensor.shard].slice(tensor.range.clone())
    }

    /// The files in shard order; empty for a model in memory.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// The size of all files together.
    pub fn file_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.len() as u64).sum()
    }
}

/// Maps the file at `path`, which is shard `shard` of its model, and parses its header.
fn read(path: &Path, shard: usize) -> Result<(MappedBytes, Header), GgufError> {
    let content = map(path)?;
    match parse(&path.display().to_string(), &content, shard) {
        Ok(header) => Ok((content, header)),
        Err(error) => Err(parts::explain(path, &content, error)),
    }
}

fn map(path: &Path) -> Result<MappedBytes, GgufError> {
    let name = || path.display().to_string();
    let failed = |action| move |source| GgufError::Io { file: path.display().to_string(), action, source };
    // Asked before opening: opening a pipe would wait for its other end.
    let attributes = path.metadata().map_err(failed("open"))?;
    if !attributes.is_file() {
        return Err(GgufError::NotAFile { file: name() });
    }
    if attributes.len() == 0 {
        return Ok(MappedBytes::from_vec(Vec::new()));
    }
    let file = File::open(path).map_err(failed("open"))?;
    MappedBytes::map(&file).map_err(failed("map"))
}

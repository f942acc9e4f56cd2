//! One safetensors file, memory-mapped, its header checked against its length.

use std::fs::File;
use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::Metadata;

use super::error::CheckpointError;
use crate::gguf::{GgmlType, MappedBytes};

/// Largest header that is parsed, the limit of the format's own reader.
const MAX_HEADER_BYTES: usize = 100_000_000;

/// A tensor as a safetensors file stores it.
pub(super) struct Stored {
    /// The element type, or the name of one that cannot be used.
    pub ty: Result<GgmlType, String>,
    /// Sizes, `dims[0]` contiguous: the reverse of the file's order. A scalar is `[1]`.
    pub dims: Vec<usize>,
    pub bytes: MappedBytes,
}

/// Every tensor of the file at `path`, in no particular order.
pub(super) fn open(path: &Path) -> Result<Vec<(String, Stored)>, CheckpointError> {
    let io = |source| CheckpointError::Io { path: path.to_owned(), source };
    let file = File::open(path).map_err(io)?;
    if file.metadata().map_err(io)?.len() == 0 {
        return Err(CheckpointError::Safetensors {
            path: path.to_owned(),
            problem: "the file is empty".into(),
        });
    }
    let content = MappedBytes::map(&file).map_err(io)?;
    parse(&content).map_err(|problem| CheckpointError::Safetensors { path: path.to_owned(), problem })
}

/// The 8-byte length of the header, the header (JSON), the data.
fn parse(content: &MappedBytes) -> Result<Vec<(String, Stored)>, String> {
    let Some((length, rest)) = content.split_first_chunk::<8>() else {
        return Err(format!("only {} bytes long: not a safetensors file", content.len()));
    };
    let length = u64::from_le_bytes(*length);
    let header_len = usize::try_from(length).ok().filter(|length| *length <= MAX_HEADER_BYTES).ok_or_else(|| {
        format!("claims a header of {length} bytes: not a safetensors file (an HTML page or a git-lfs pointer?)")
    })?;
    let header = rest.get(..header_len).ok_or_else(|| {
        format!("the header should be {header_len} bytes long but the file ends after {} of them", rest.len())
    })?;
    // Deserializing checks that the tensors follow each other without a gap and that sizes match shapes.
    let metadata: Metadata =
        serde_json::from_slice(header).map_err(|error| format!("the header is malformed: {error}"))?;
    let data = content.slice(8 + header_len..content.len());
    if metadata.data_len() != data.len() {
        return Err(format!(
            "the tensors should take {} bytes but the file has {} (interrupted download?)",
            metadata.data_len(),
            data.len()
        ));
    }
    let stored = metadata.tensors().into_iter().map(|(name, info)| {
        let dims = if info.shape.is_empty() { vec![1] } else { info.shape.iter().rev().copied().collect() };
        let bytes = data.slice(info.data_offsets.0..info.data_offsets.1);
        (name, Stored { ty: element_type(info.dtype), dims, bytes })
    });
    Ok(stored.collect())
}

fn element_type(dtype: Dtype) -> Result<GgmlType, String> {
    match dtype {
        Dtype::F32 => Ok(GgmlType::F32),
        Dtype::F16 => Ok(GgmlType::F16),
        Dtype::BF16 => Ok(GgmlType::BF16),
        other => Err(other.to_string()),
    }
}

//! The header of one file: metadata and tensor descriptions, each checked before it is believed.

use std::collections::HashSet;
use std::ops::Range;

use ember_formats::StoredType;

use super::cursor::Cursor;
use super::error::{Fault, GgufError, describe_foreign};
use super::metadata::Metadata;
use super::parts::second_file;
use super::tensor::TensorInfo;
use super::value::{Value, read_value};

pub(super) const MAGIC: &[u8; 4] = b"GGUF";
pub(super) const DEFAULT_ALIGNMENT: u64 = 32;
pub(super) const ALIGNMENT_KEY: &str = "general.alignment";
pub(super) const MAX_DIMS: usize = 4;

/// Bytes of the smallest metadata entry: key length, value type, one byte of value.
const MIN_ENTRY_BYTES: usize = 8 + 4 + 1;
/// Bytes of the smallest tensor description: name length, dimension count, one dimension, type, offset.
const MIN_TENSOR_BYTES: usize = 8 + 4 + 8 + 4 + 8;

/// The parsed header of one file.
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) metadata: Metadata,
    /// In file order; all belong to `shard`.
    pub(super) tensors: Vec<TensorInfo>,
}

/// Parses the file `bytes`, called `file` in errors, whose tensors will say that they lie in shard `shard`.
pub(super) fn parse(file: &str, bytes: &[u8], shard: usize) -> Result<Header, GgufError> {
    let mut cursor = Cursor::new(file, bytes);
    let version = read_version(&mut cursor, bytes)?;
    cursor.enter("the tensor count");
    let n_tensors = cursor.count(MIN_TENSOR_BYTES)?;
    cursor.enter("the metadata count");
    let n_entries = cursor.count(MIN_ENTRY_BYTES)?;
    let (metadata, alignment) = read_metadata(&mut cursor, file, n_entries)?;
    let raw_tensors = read_tensors(&mut cursor, n_tensors)?;
    let data = DataRegion {
        file_len: bytes.len() as u64,
        start: align_up(cursor.offset() as u64, alignment),
        alignment,
    };
    let tensors = place_tensors(&cursor, raw_tensors, &data, shard)?;
    let end = tensors.iter().map(|tensor| tensor.range.end as u64).max().unwrap_or(cursor.offset() as u64);
    if let Some(start) = second_file(bytes, [end, align_up(end, alignment).unwrap_or(end)]) {
        return Err(cursor.fault_at(start as usize, Fault::Joined));
    }
    Ok(Header { version, metadata, tensors })
}

/// The metadata of a file whose tensors may be cut off.
pub(super) fn read_metadata_of(file: &str, bytes: &[u8]) -> Option<Metadata> {
    let mut cursor = Cursor::new(file, bytes);
    read_version(&mut cursor, bytes).ok()?;
    cursor.count(MIN_TENSOR_BYTES).ok()?;
    let n_entries = cursor.count(MIN_ENTRY_BYTES).ok()?;
    Some(read_metadata(&mut cursor, file, n_entries).ok()?.0)
}

fn read_version(cursor: &mut Cursor, bytes: &[u8]) -> Result<u32, GgufError> {
    cursor.enter("the magic");
    if bytes.len() < MAGIC.len() || !bytes.starts_with(MAGIC) {
        if bytes.starts_with(b"FUGG") {
            return Err(cursor.fault_at(0, Fault::BigEndian));
        }
        if !bytes.is_empty() && !MAGIC.starts_with(bytes) {
            let what = describe_foreign(&bytes[..bytes.len().min(64)]);
            return Err(cursor.fault_at(0, Fault::BadMagic { what }));
        }
    }
    cursor.take(MAGIC.len() as u64)?;
    cursor.enter("the version");
    let at = cursor.offset();
    match cursor.u32()? {
        version @ (2 | 3) => Ok(version),
        // The magic is written alike by both byte orders; the version shows which one it was.
        version if matches!(version.swap_bytes(), 1..=3) => Err(cursor.fault_at(at, Fault::BigEndian)),
        version => Err(cursor.fault_at(at, Fault::UnsupportedVersion(version))),
    }
}

fn read_metadata(cursor: &mut Cursor, file: &str, n_entries: usize) -> Result<(Metadata, u64), GgufError> {
    let mut metadata = Metadata::new(file);
    let mut alignment = DEFAULT_ALIGNMENT;
    for i in 0..n_entries {
        cursor.enter(format!("the key of metadata entry {}", i + 1));
        let key_at = cursor.offset();
        let key = cursor.string()?;
        cursor.enter(format!("the value of `{key}`"));
        let value_at = cursor.offset();
        let value = read_value(cursor)?;
        if key == ALIGNMENT_KEY {
            alignment = to_alignment(&value)
                .map_err(|found| cursor.fault_at(value_at, Fault::BadAlignment(found)))?;
        }
        if metadata.insert(key, value).is_some() {
            return Err(cursor.fault_at(key_at, Fault::DuplicateKey(key.to_owned())));
        }
    }
    Ok((metadata, alignment))
}

/// A power of two of any integer type; otherwise what it is instead.
fn to_alignment(value: &Value) -> Result<u64, String> {
    let Some(number) = value.as_integer() else {
        return Err(format!("of type {}", value.type_name()));
    };
    u64::try_from(number).ok().filter(|number| number.is_power_of_two()).ok_or_else(|| number.to_string())
}

/// A tensor description as it stands in the file, before its data is looked for.
struct RawTensor {
    name: String,
    ty: StoredType,
    dims: Vec<usize>,
    /// `None` where the size of the type is not known.
    n_bytes: Option<u64>,
    /// From the start of the data region.
    data_offset: u64,
    /// Place in the file of `data_offset` itself.
    offset_at: usize,
}

fn read_tensors(cursor: &mut Cursor, n_tensors: usize) -> Result<Vec<RawTensor>, GgufError> {
    let mut tensors = Vec::new();
    let mut names = HashSet::new();
    for i in 0..n_tensors {
        cursor.enter(format!("the name of tensor {}", i + 1));
        let name_at = cursor.offset();
        let name = cursor.string()?;
        if !names.insert(name) {
            return Err(cursor.fault_at(name_at, Fault::DuplicateTensor(name.to_owned())));
        }
        tensors.push(read_tensor(cursor, name)?);
    }
    Ok(tensors)
}

fn read_tensor(cursor: &mut Cursor, name: &str) -> Result<RawTensor, GgufError> {
    let tensor = name.to_owned();
    cursor.enter(format!("the description of tensor `{name}`"));
    let dims_at = cursor.offset();
    let n_dims = cursor.u32()?;
    if n_dims == 0 || n_dims as usize > MAX_DIMS {
        return Err(cursor.fault_at(dims_at, Fault::BadDimCount { tensor, n_dims }));
    }
    let mut dims = Vec::with_capacity(MAX_DIMS);
    for _ in 0..n_dims {
        dims.push(cursor.u64()?);
    }
    let ty = StoredType::from_id(cursor.u32()?);
    let n_bytes = data_bytes(&tensor, ty, &dims).map_err(|fault| cursor.fault_at(dims_at, fault))?;
    let dims =
        dims.iter().map(|&dim| usize::try_from(dim).expect("data_bytes checked the product")).collect();
    let offset_at = cursor.offset();
    let data_offset = cursor.u64()?;
    Ok(RawTensor { name: tensor, ty, dims, n_bytes, data_offset, offset_at })
}

/// The size of a tensor's data, when its dimensions make sense; `None` when that of its type is not known.
pub(super) fn data_bytes(tensor: &str, ty: StoredType, dims: &[u64]) -> Result<Option<u64>, Fault> {
    if dims.contains(&0) {
        return Err(Fault::ZeroDim { tensor: tensor.to_owned(), dims: dims.to_vec() });
    }
    // isize::MAX bounds every slice in Rust, and what ggml's signed sizes can say on 64 bits.
    let bounded = |n: &u64| *n <= isize::MAX as u64;
    let overflow = || Fault::SizeOverflow { tensor: tensor.to_owned(), dims: dims.to_vec() };
    let n_elements = dims.iter().try_fold(1_u64, |product, &dim| product.checked_mul(dim));
    let n_elements = n_elements.filter(bounded);
    let Some((block_len, block_bytes)) = ty.block() else {
        return n_elements.map(|_| None).ok_or_else(overflow);
    };
    if !dims[0].is_multiple_of(block_len as u64) {
        let (tensor, ty, cols) = (tensor.to_owned(), ty.name(), dims[0]);
        return Err(Fault::RaggedRow { tensor, ty, cols, block_len });
    }
    let n_bytes = n_elements.and_then(|n| (n / block_len as u64).checked_mul(block_bytes as u64));
    n_bytes.filter(bounded).map(Some).ok_or_else(overflow)
}

/// The part of a file that may hold tensor data.
struct DataRegion {
    file_len: u64,
    /// `None` when the aligned start is beyond what 64 bits can say.
    start: Option<u64>,
    alignment: u64,
}

impl DataRegion {
    /// The file range of a tensor's data; empty where its size is not known.
    fn place(&self, tensor: &RawTensor) -> Result<Range<u64>, Fault> {
        let (name, start, len) = (&tensor.name, tensor.data_offset, tensor.n_bytes.unwrap_or(0));
        if !start.is_multiple_of(self.alignment) {
            return Err(Fault::Misaligned { tensor: name.clone(), start, alignment: self.alignment });
        }
        let start_in_file = self.start.and_then(|data| data.checked_add(start));
        let end = start_in_file.and_then(|start| start.checked_add(len));
        match (start_in_file, end) {
            (Some(start), Some(end)) if end <= self.file_len => Ok(start..end),
            _ => Err(Fault::OutsideFile {
                tensor: name.clone(),
                start: start_in_file.unwrap_or(u64::MAX),
                len,
                file_len: self.file_len,
            }),
        }
    }
}

fn align_up(offset: u64, alignment: u64) -> Option<u64> {
    offset.checked_next_multiple_of(alignment)
}

fn place_tensors(
    cursor: &Cursor,
    raw_tensors: Vec<RawTensor>,
    data: &DataRegion,
    shard: usize,
) -> Result<Vec<TensorInfo>, GgufError> {
    let offsets_at: Vec<usize> = raw_tensors.iter().map(|raw| raw.offset_at).collect();
    let mut tensors = Vec::with_capacity(raw_tensors.len());
    for raw in raw_tensors {
        let range = data.place(&raw).map_err(|fault| cursor.fault_at(raw.offset_at, fault))?;
        let within = "a range inside the file fits usize";
        let range = usize::try_from(range.start).expect(within)..usize::try_from(range.end).expect(within);
        tensors.push(TensorInfo { name: raw.name, ty: raw.ty, dims: raw.dims, shard, range });
    }
    let mut by_start: Vec<usize> = (0..tensors.len()).collect();
    by_start.sort_unstable_by_key(|&i| tensors[i].range.start);
    for pair in by_start.windows(2) {
        let (first, second) = (&tensors[pair[0]], &tensors[pair[1]]);
        if second.range.start < first.range.end {
            let fault = Fault::Overlap { first: first.name.clone(), second: second.name.clone() };
            return Err(cursor.fault_at(offsets_at[pair[1]], fault));
        }
    }
    extend_unsized(&mut tensors, &by_start, data.file_len as usize);
    Ok(tensors)
}

/// Gives tensors whose size is not known everything up to the next tensor, or the end of the file.
fn extend_unsized(tensors: &mut [TensorInfo], by_start: &[usize], file_len: usize) {
    let mut end = file_len;
    for &i in by_start.iter().rev() {
        if tensors[i].ty.block().is_none() {
            tensors[i].range.end = end;
        }
        end = tensors[i].range.start;
    }
}

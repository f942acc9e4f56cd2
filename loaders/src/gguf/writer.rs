//! Writing GGUF files in one pass, tensor data in pieces, so that a file may be larger than memory.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::{self, Read, Write};

use ember_formats::StoredType;

use super::error::Fault;
use super::metadata::Metadata;
use super::parse::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC, MAX_DIMS, data_bytes};
use super::value::{Value, write_string, write_value};

/// The reason a GGUF file could not be written.
#[derive(Debug, thiserror::Error)]
pub enum GgufWriteError {
    /// The output refused.
    #[error("cannot write: {0}")]
    Io(#[from] io::Error),
    /// A name, shape or setting that no reader would accept.
    #[error("{0}")]
    Fault(#[from] Fault),
    /// `general.alignment` among the metadata is not what the writer was made with.
    #[error("general.alignment is {found}, but the file is being written with alignment {alignment}")]
    OtherAlignment {
        /// The value given as metadata.
        found: String,
        /// The writer's own.
        alignment: u64,
    },
    /// The size of a tensor's data follows from no table.
    #[error("tensor `{tensor}` is of {ty}, whose size is not known")]
    UnknownSize {
        /// The tensor.
        tensor: String,
        /// Its type.
        ty: Cow<'static, str>,
    },
    /// Data came for another tensor than the one whose turn it is.
    #[error("data for tensor `{given}`, but `{expected}` is next")]
    OutOfOrder {
        /// The tensor whose data was given.
        given: String,
        /// The tensor whose turn it is; "nothing" when all are complete.
        expected: String,
    },
    /// A piece of data runs past the end of its tensor.
    #[error("{given} bytes for tensor `{tensor}`, of which only {left} are still to come")]
    TooLong {
        /// The tensor.
        tensor: String,
        /// Size of the piece.
        given: u64,
        /// Bytes that were missing.
        left: u64,
    },
    /// The file was finished before all data was given.
    #[error("tensor `{tensor}` still lacks {left} bytes")]
    Incomplete {
        /// The first tensor that is not complete.
        tensor: String,
        /// Bytes that are missing of it.
        left: u64,
    },
}

/// First half of writing a file: collects metadata and tensor descriptions.
///
/// ```
/// use ember_loaders::gguf::{GgmlType, Gguf, GgufWriter};
///
/// let mut header = GgufWriter::new(Vec::new(), 3, 32)?;
/// header.metadata("general.architecture", "qwen3")?;
/// header.tensor("output_norm.weight", GgmlType::F32, &[2])?;
/// let mut data = header.start_data()?;
/// data.write("output_norm.weight", &1.0_f32.to_le_bytes())?;
/// data.write("output_norm.weight", &2.0_f32.to_le_bytes())?;
/// let file: Vec<u8> = data.finish()?;
/// assert_eq!(Gguf::from_bytes(file).unwrap().tensors()[0].dims, [2]);
/// # Ok::<(), ember_loaders::gguf::GgufWriteError>(())
/// ```
#[derive(Debug)]
pub struct GgufWriter<W: Write> {
    out: W,
    version: u32,
    alignment: u64,
    metadata: Metadata,
    tensors: Vec<Declared>,
    names: HashSet<String>,
}

/// A tensor announced in the header.
#[derive(Debug)]
struct Declared {
    name: String,
    ty: StoredType,
    dims: Vec<usize>,
    n_bytes: u64,
    /// Of its data from the start of the data region.
    offset: u64,
}

impl Declared {
    /// The offset of the tensor after this one, if it fits.
    fn next_offset(&self, alignment: u64) -> Option<u64> {
        self.offset.checked_add(self.n_bytes)?.checked_next_multiple_of(alignment)
    }
}

impl<W: Write> GgufWriter<W> {
    /// A writer of format `version` (2 or 3), with tensor data at multiples of `alignment` bytes (32 is usual).
    ///
    /// # Errors
    /// For another version, and for an alignment that is not a power of two.
    pub fn new(out: W, version: u32, alignment: u32) -> Result<Self, GgufWriteError> {
        if !matches!(version, 2 | 3) {
            return Err(Fault::UnsupportedVersion(version).into());
        }
        let alignment = u64::from(alignment);
        if !alignment.is_power_of_two() {
            return Err(Fault::BadAlignment(alignment.to_string()).into());
        }
        let mut metadata = Metadata::default();
        if alignment != DEFAULT_ALIGNMENT {
            metadata.insert(ALIGNMENT_KEY, alignment as u32);
        }
        Ok(Self { out, version, alignment, metadata, tensors: Vec::new(), names: HashSet::new() })
    }

    /// Adds a metadata entry. `general.alignment` is written by the writer itself where it is needed, and
    /// accepted here only with that value.
    ///
    /// # Errors
    /// If the key was added before.
    pub fn metadata(&mut self, key: &str, value: impl Into<Value>) -> Result<(), GgufWriteError> {
        let value = value.into();
        if key == ALIGNMENT_KEY {
            let alignment = self.alignment;
            if value.as_integer() == Some(alignment.into()) {
                return Ok(());
            }
            return Err(GgufWriteError::OtherAlignment { found: value.to_string(), alignment });
        }
        match self.metadata.insert(key, value) {
            None => Ok(()),
            Some(_) => Err(Fault::DuplicateKey(key.to_owned()).into()),
        }
    }

    /// Announces a tensor; `dims[0]` is the contiguous dimension. Data follows in the same order.
    ///
    /// # Errors
    /// If the name was announced before, no reader would accept the shape, or the size of the type is not known.
    pub fn tensor(
        &mut self,
        name: &str,
        ty: impl Into<StoredType>,
        dims: &[usize],
    ) -> Result<(), GgufWriteError> {
        let ty = ty.into();
        if dims.is_empty() || dims.len() > MAX_DIMS {
            let n_dims = dims.len().try_into().unwrap_or(u32::MAX);
            return Err(Fault::BadDimCount { tensor: name.to_owned(), n_dims }.into());
        }
        let dims_in_file: Vec<u64> = dims.iter().map(|&dim| dim as u64).collect();
        let n_bytes = data_bytes(name, ty, &dims_in_file)?;
        let n_bytes =
            n_bytes.ok_or_else(|| GgufWriteError::UnknownSize { tensor: name.to_owned(), ty: ty.name() })?;
        if !self.names.insert(name.to_owned()) {
            return Err(Fault::DuplicateTensor(name.to_owned()).into());
        }
        let offset = self.tensors.last().map_or(Some(0), |last| last.next_offset(self.alignment));
        let offset = offset
            .ok_or_else(|| Fault::SizeOverflow { tensor: name.to_owned(), dims: dims_in_file.clone() })?;
        self.tensors.push(Declared { name: name.to_owned(), ty, dims: dims.to_vec(), n_bytes, offset });
        Ok(())
    }

    /// Writes the header; tensor data comes next.
    ///
    /// # Errors
    /// If the output refuses.
    pub fn start_data(mut self) -> Result<GgufDataWriter<W>, GgufWriteError> {
        let header = self.header();
        self.out.write_all(&header)?;
        pad(&mut self.out, header.len() as u64, self.alignment)?;
        let left = self.tensors.first().map_or(0, |tensor| tensor.n_bytes);
        Ok(GgufDataWriter {
            out: self.out,
            alignment: self.alignment,
            tensors: self.tensors,
            current: 0,
            left,
        })
    }

    fn header(&self) -> Vec<u8> {
        let mut header = Vec::new();
        header.extend_from_slice(MAGIC);
        header.extend(self.version.to_le_bytes());
        header.extend((self.tensors.len() as u64).to_le_bytes());
        header.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in self.metadata.iter() {
            write_string(key, &mut header);
            write_value(value, &mut header);
        }
        for tensor in &self.tensors {
            write_string(&tensor.name, &mut header);
            header.extend((tensor.dims.len() as u32).to_le_bytes());
            header.extend(tensor.dims.iter().flat_map(|&dim| (dim as u64).to_le_bytes()));
            header.extend(tensor.ty.id().to_le_bytes());
            header.extend(tensor.offset.to_le_bytes());
        }
        header
    }
}

/// Second half of writing a file: takes the tensors' data in the announced order.
#[derive(Debug)]
pub struct GgufDataWriter<W: Write> {
    out: W,
    alignment: u64,
    tensors: Vec<Declared>,
    /// Index of the tensor whose turn it is.
    current: usize,
    /// Bytes that the current tensor still lacks.
    left: u64,
}

impl<W: Write> GgufDataWriter<W> {
    /// Appends the next piece of the data of `tensor`, whose turn it must be.
    ///
    /// # Errors
    /// If it is another tensor's turn, the piece is longer than what is missing, or the output refuses.
    pub fn write(&mut self, tensor: &str, piece: &[u8]) -> Result<(), GgufWriteError> {
        let Some(current) = self.tensors.get(self.current).filter(|current| current.name == tensor) else {
            let expected = self.tensors.get(self.current).map_or("nothing", |current| &current.name);
            let (given, expected) = (tensor.to_owned(), expected.to_owned());
            return Err(GgufWriteError::OutOfOrder { given, expected });
        };
        let given = piece.len() as u64;
        if given > self.left {
            return Err(GgufWriteError::TooLong { tensor: tensor.to_owned(), given, left: self.left });
        }
        self.out.write_all(piece)?;
        self.left -= given;
        if self.left == 0 {
            pad(&mut self.out, current.n_bytes, self.alignment)?;
            self.current += 1;
            self.left = self.tensors.get(self.current).map_or(0, |next| next.n_bytes);
        }
        Ok(())
    }

    /// Ends the file and gives the output back.
    ///
    /// # Errors
    /// If a tensor's data is not complete, or the output refuses.
    pub fn finish(mut self) -> Result<W, GgufWriteError> {
        if let Some(tensor) = self.tensors.get(self.current) {
            return Err(GgufWriteError::Incomplete { tensor: tensor.name.clone(), left: self.left });
        }
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Writes the zeros that bring `len` bytes up to a multiple of `alignment`.
fn pad(out: &mut impl Write, len: u64, alignment: u64) -> io::Result<()> {
    io::copy(&mut io::repeat(0).take(len.next_multiple_of(alignment) - len), out)?;
    Ok(())
}

//! Bounds-checked little-endian reading of a header, with the offset and the field's name in every error.

use super::error::{Fault, GgufError};

/// A position in the bytes of one file.
pub(super) struct Cursor<'a> {
    file: &'a str,
    bytes: &'a [u8],
    offset: usize,
    /// The field being read, for error messages.
    what: String,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(file: &'a str, bytes: &'a [u8]) -> Self {
        Self { file, bytes, offset: 0, what: String::new() }
    }

    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    fn left(&self) -> usize {
        self.bytes.len() - self.offset
    }

    /// Names the field that the next reads belong to.
    pub(super) fn enter(&mut self, what: impl Into<String>) {
        self.what = what.into();
    }

    pub(super) fn what(&self) -> String {
        self.what.clone()
    }

    /// An error at `offset`.
    pub(super) fn fault_at(&self, offset: usize, fault: Fault) -> GgufError {
        GgufError::Malformed { file: self.file.to_owned(), offset: offset as u64, fault }
    }

    /// The next `len` bytes.
    pub(super) fn take(&mut self, len: u64) -> Result<&'a [u8], GgufError> {
        match usize::try_from(len).ok().filter(|&len| len <= self.left()) {
            Some(len) => {
                let taken = &self.bytes[self.offset..self.offset + len];
                self.offset += len;
                Ok(taken)
            }
            None => {
                let fault = Fault::Truncated { what: self.what(), needed: len, left: self.left() as u64 };
                Err(self.fault_at(self.offset, fault))
            }
        }
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], GgufError> {
        Ok(self.take(N as u64)?.try_into().expect("take returned N bytes"))
    }

    pub(super) fn u32(&mut self) -> Result<u32, GgufError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, GgufError> {
        self.array().map(u64::from_le_bytes)
    }

    /// A count of entries of at least `min_bytes` each: refused when the rest of the file cannot hold them,
    /// so that what is allocated for them is bounded by the size of the file.
    pub(super) fn count(&mut self, min_bytes: usize) -> Result<usize, GgufError> {
        let at = self.offset;
        let count = self.u64()?;
        match usize::try_from(count).ok().filter(|&count| count <= self.left() / min_bytes) {
            Some(count) => Ok(count),
            None => {
                let fault = Fault::ImpossibleCount { what: self.what(), count, left: self.left() as u64 };
                Err(self.fault_at(at, fault))
            }
        }
    }

    /// A length-prefixed UTF-8 string.
    pub(super) fn string(&mut self) -> Result<&'a str, GgufError> {
        let len = self.u64()?;
        let start = self.offset;
        let bytes = self.take(len)?;
        std::str::from_utf8(bytes)
            .map_err(|error| self.fault_at(start + error.valid_up_to(), Fault::BadUtf8 { what: self.what() }))
    }
}

//! Building GGUF files by hand, right or wrong.
#![allow(dead_code, reason = "each test file uses its own part")]

/// The bytes of a file under construction; every field is little-endian and nothing is checked.
#[derive(Clone)]
pub struct Raw(pub Vec<u8>);

impl Raw {
    /// Magic, version 3 and the two counts.
    pub fn header(n_tensors: u64, n_entries: u64) -> Self {
        Self(b"GGUF".to_vec()).u32(3).u64(n_tensors).u64(n_entries)
    }

    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    pub fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    pub fn string(self, text: &[u8]) -> Self {
        self.u64(text.len() as u64).bytes(text)
    }

    /// A metadata key and the number of its value's type.
    pub fn key(self, key: &str, type_id: u32) -> Self {
        self.string(key.as_bytes()).u32(type_id)
    }

    /// A whole tensor description.
    pub fn tensor(self, name: &str, dims: &[u64], type_id: u32, offset: u64) -> Self {
        let mut raw = self.string(name.as_bytes()).u32(dims.len() as u32);
        for &dim in dims {
            raw = raw.u64(dim);
        }
        raw.u32(type_id).u64(offset)
    }

    /// Zeros up to the next multiple of 32, then `len` bytes of data.
    pub fn data(mut self, len: usize) -> Self {
        self.0.resize(self.0.len().next_multiple_of(32) + len, 0);
        self
    }
}

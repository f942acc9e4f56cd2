//! Bytes of a mapped file, or of memory, behind one cheap handle.

use std::fs::File;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::{fmt, io};

use memmap2::Mmap;

/// A range of bytes that keeps the mapped file (or the owned memory) it lies in alive. Cloning is cheap.
///
/// The start has no guaranteed alignment.
///
/// A mapped file must not be truncated or rewritten in place while it is in use, as with every
/// memory-mapped reader; replacing it by a rename is safe.
#[derive(Clone)]
pub struct MappedBytes {
    storage: Arc<Storage>,
    range: Range<usize>,
}

enum Storage {
    Mapped(Mmap),
    Owned(Vec<u8>),
}

impl Storage {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Owned(bytes) => bytes,
        }
    }
}

impl MappedBytes {
    /// Maps the whole of `file`, which must not be empty.
    pub(crate) fn map(file: &File) -> io::Result<Self> {
        // SAFETY: the map is read-only and private to this handle, so no Rust code writes to it. Another
        // process that changes the file in place could still change the bytes: the type's documentation
        // excludes that, and nothing here relies on bytes staying equal between two reads except for the
        // numbers computed from them.
        let map = unsafe { Mmap::map(file)? };
        let range = 0..map.len();
        Ok(Self { storage: Arc::new(Storage::Mapped(map)), range })
    }

    /// Owned bytes behind the same handle.
    pub fn from_vec(bytes: Vec<u8>) -> Self {
        let range = 0..bytes.len();
        Self { storage: Arc::new(Storage::Owned(bytes)), range }
    }

    /// A part of these bytes; `range` counts from their start.
    ///
    /// # Panics
    /// If `range` ends after these bytes or before its own start.
    pub fn slice(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len(), "{range:?} of {} bytes", self.len());
        let start = self.range.start;
        Self { storage: self.storage.clone(), range: start + range.start..start + range.end }
    }

    /// True if the bytes lie in a mapped file (and not in memory of their own).
    pub fn is_mapped(&self) -> bool {
        matches!(*self.storage, Storage::Mapped(_))
    }

    /// Gives the memory of the whole pages inside back to the system (`MADV_DONTNEED`): for weights that have
    /// been repacked. The bytes stay valid and are read from the file again when touched. Owned bytes, and
    /// systems other than Unix, are left alone; it is advice, so failure is not reported.
    pub fn release(&self) {
        #[cfg(unix)]
        if let Storage::Mapped(map) = &*self.storage {
            let page = page_size();
            let first = self.range.start.next_multiple_of(page);
            let end = if self.range.end == map.len() { self.range.end } else { self.range.end / page * page };
            if first < end {
                // SAFETY: the map is a shared read-only map of a file, so dropping its pages loses nothing:
                // the next access reads the same bytes from the file.
                let _advice = unsafe {
                    map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, first, end - first)
                };
            }
        }
    }
}

#[cfg(unix)]
fn page_size() -> usize {
    // SAFETY: sysconf only reads its argument.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).expect("the system has a page size")
}

impl Deref for MappedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.storage.bytes()[self.range.clone()]
    }
}

impl AsRef<[u8]> for MappedBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for MappedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_mapped() { "mapped" } else { "owned" };
        write!(f, "MappedBytes({} bytes, {kind})", self.range.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_share_owned_bytes() {
        let bytes = MappedBytes::from_vec((0..10).collect());
        let part = bytes.slice(2..8).slice(1..3);
        assert_eq!(*part, [3, 4]);
        assert_eq!(part.as_ptr(), bytes[3..].as_ptr());
        assert!(!part.is_mapped());
        part.release();
        assert_eq!(format!("{part:?}"), "MappedBytes(2 bytes, owned)");
    }

    #[test]
    #[should_panic(expected = "0..11 of 10 bytes")]
    fn slice_outside_panics() {
        MappedBytes::from_vec(vec![0; 10]).slice(0..11);
    }
}

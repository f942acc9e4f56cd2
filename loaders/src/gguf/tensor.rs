//! The description of one tensor.

use std::ops::Range;

use ember_formats::StoredType;

/// Name, type, shape and place of a tensor.
#[derive(Clone, Debug)]
pub struct TensorInfo {
    /// The name, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// The element type; not every one can be computed with.
    pub ty: StoredType,
    /// One to four sizes, the contiguous dimension first: a matrix of `rows` x `cols` is `[cols, rows]`.
    pub dims: Vec<usize>,
    pub(super) shard: usize,
    /// Byte range of the data in the shard's file; up to the next tensor where the type's size is not known.
    pub(super) range: Range<usize>,
}

impl TensorInfo {
    /// The row length, `dims[0]`.
    pub fn cols(&self) -> usize {
        self.dims[0]
    }

    /// The number of rows: the product of all dimensions but the first.
    pub fn rows(&self) -> usize {
        self.dims[1..].iter().product()
    }

    /// The number of weights.
    pub fn n_elements(&self) -> usize {
        self.dims.iter().product()
    }

    /// The size of the data in bytes; `None` where that of the type is not known.
    pub fn n_bytes(&self) -> Option<usize> {
        self.ty.block().map(|_| self.range.len())
    }

    /// Byte offset of the data in its file.
    pub fn file_offset(&self) -> usize {
        self.range.start
    }
}

//! The block formats of GGUF tensors, and a borrowed matrix in one of them.

use thiserror::Error;

/// How a matrix's elements are stored: plain floats, or quantized blocks in the GGUF layout.
///
/// The `*_K` types and `IQ4_XS` are superblocks of 256 elements with integer sub-scales; the other quantized types
/// are blocks of 32 with one f16 scale (and, for `Q4_1` and `Q5_1`, one f16 minimum).
#[allow(non_camel_case_types)] // the names GGUF tools print
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each variant is the GGUF type of the same name")]
pub enum BlockType {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    IQ4_NL,
    IQ4_XS,
}

impl BlockType {
    /// Every type, in the order of the declaration.
    pub const ALL: [BlockType; 15] = {
        use BlockType::*;
        [F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS]
    };

    /// Elements per block; a row holds a whole number of blocks.
    pub const fn block_len(self) -> usize {
        use BlockType::*;
        match self {
            F32 | F16 | BF16 => 1,
            Q4_0 | Q4_1 | Q5_0 | Q5_1 | Q8_0 | IQ4_NL => 32,
            Q2_K | Q3_K | Q4_K | Q5_K | Q6_K | IQ4_XS => 256,
        }
    }

    /// Bytes per block.
    pub const fn block_bytes(self) -> usize {
        use BlockType::*;
        match self {
            F32 => 4,
            F16 | BF16 => 2,
            Q4_0 | IQ4_NL => 18,
            Q4_1 => 20,
            Q5_0 => 22,
            Q5_1 => 24,
            Q8_0 => 34,
            Q2_K => 84,
            Q3_K => 110,
            Q4_K => 144,
            Q5_K => 176,
            Q6_K => 210,
            IQ4_XS => 136,
        }
    }

    /// Bytes of a row of `cols` elements; `None` when `cols` is not a whole number of blocks, or on overflow.
    pub const fn row_bytes(self, cols: usize) -> Option<usize> {
        if !cols.is_multiple_of(self.block_len()) {
            return None;
        }
        (cols / self.block_len()).checked_mul(self.block_bytes())
    }
}

/// A row-major matrix that borrows its bytes in the GGUF layout: no copy is ever made of it.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    ty: BlockType,
    rows: usize,
    cols: usize,
    bytes: &'a [u8],
}

/// Why bytes cannot be read as a [`Matrix`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MatrixError {
    /// The row length is not a whole number of blocks.
    #[error("a row of {cols} elements is not a whole number of {ty:?} blocks of {} elements", ty.block_len())]
    Cols {
        /// Type of the blocks.
        ty: BlockType,
        /// Elements per row that were asked for.
        cols: usize,
    },
    /// The slice is not as long as the shape says.
    #[error("{rows} x {cols} of {ty:?} take {expected} bytes, not {actual}")]
    Length {
        /// Type of the blocks.
        ty: BlockType,
        /// Rows that were asked for.
        rows: usize,
        /// Elements per row that were asked for.
        cols: usize,
        /// Bytes the shape takes (saturated when it does not fit in a `usize`).
        expected: usize,
        /// Bytes given.
        actual: usize,
    },
}

impl<'a> Matrix<'a> {
    /// Reads `bytes` as `rows` x `cols` blocks of type `ty`.
    ///
    /// # Errors
    /// [`MatrixError`] when `cols` is not a whole number of blocks or `bytes` has another length than the shape.
    pub fn new(ty: BlockType, rows: usize, cols: usize, bytes: &'a [u8]) -> Result<Self, MatrixError> {
        let row_bytes = ty.row_bytes(cols).ok_or(MatrixError::Cols { ty, cols })?;
        let expected = row_bytes.saturating_mul(rows);
        if bytes.len() != expected {
            return Err(MatrixError::Length { ty, rows, cols, expected, actual: bytes.len() });
        }
        Ok(Self { ty, rows, cols, bytes })
    }

    /// Storage of the elements.
    pub fn ty(&self) -> BlockType {
        self.ty
    }

    /// Number of rows: the outputs of a product with this matrix.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Elements per row: the inputs of a product with this matrix.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// All the rows' bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Bytes from one row to the next.
    pub fn row_bytes(&self) -> usize {
        // `new` has checked that this is a whole number of blocks.
        self.cols / self.ty.block_len() * self.ty.block_bytes()
    }

    /// The bytes of row `index`.
    pub fn row(&self, index: usize) -> &'a [u8] {
        let row_bytes = self.row_bytes();
        &self.bytes[index * row_bytes..][..row_bytes]
    }
}

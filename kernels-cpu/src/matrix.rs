//! A borrowed matrix in a block type of GGUF.

use ember_formats::GgmlType;
use thiserror::Error;

/// A row-major matrix that borrows its bytes in the GGUF layout: no copy is ever made of it.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    ty: GgmlType,
    rows: usize,
    cols: usize,
    bytes: &'a [u8],
}

/// The reason bytes cannot be read as a [`Matrix`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MatrixError {
    /// The row length is not a whole number of blocks.
    #[error("a row of {cols} elements is not a whole number of {ty:?} blocks of {} elements", ty.block_len())]
    Cols {
        /// Type of the blocks.
        ty: GgmlType,
        /// Elements per row that were asked for.
        cols: usize,
    },
    /// The slice is not as long as the shape says.
    #[error("{rows} x {cols} of {ty:?} take {expected} bytes, not {actual}")]
    Length {
        /// Type of the blocks.
        ty: GgmlType,
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
    pub fn new(ty: GgmlType, rows: usize, cols: usize, bytes: &'a [u8]) -> Result<Self, MatrixError> {
        let row_bytes = ty.checked_row_bytes(cols).ok_or(MatrixError::Cols { ty, cols })?;
        let expected = row_bytes.saturating_mul(rows);
        if bytes.len() != expected {
            return Err(MatrixError::Length { ty, rows, cols, expected, actual: bytes.len() });
        }
        Ok(Self { ty, rows, cols, bytes })
    }

    /// Storage of the elements.
    pub fn ty(&self) -> GgmlType {
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
        self.ty.row_bytes(self.cols)
    }

    /// The bytes of row `index`.
    pub fn row(&self, index: usize) -> &'a [u8] {
        let row_bytes = self.row_bytes();
        &self.bytes[index * row_bytes..][..row_bytes]
    }
}

//! Weight matrices that stay in their GGUF block format.
use crate::opaque::Opaque;
use ember_kernels_cpu::Matrix;
use ember_loaders::checkpoint::WeightTensor;
use ember_loaders::gguf::{GgmlType, MappedBytes, dequantize};
use std::fmt;

/// A `[rows, cols]` matrix in GGUF blocks, row-major, each row a whole number of blocks.
///
/// The bytes are a window into the mapped file: cloning is cheap and nothing is ever dequantized as a whole during
/// inference. The type deliberately does not mention a Burn backend, so that `derive(Module)` treats it as plain data
/// and a model over `Autodiff<B>` shares it with the model over `B`.
#[derive(Clone)]
pub struct PackedMatrix {
    ty: GgmlType,
    rows: usize,
    cols: usize,
    bytes: MappedBytes,
    device: Option<DevicePosition>,
}

/// Position of a matrix in device memory.
#[derive(Clone, Debug)]
pub struct DevicePosition {
    /// Matrices of one block type and width on top of each other, as the backend keeps them.
    pub stack: Opaque,
    /// First row of the stack that is the matrix's.
    pub first_row: usize,
}

impl PackedMatrix {
    /// Wraps a checkpoint tensor; `dims[0]` becomes the columns, all others the rows. No bytes are copied.
    pub fn new(tensor: &WeightTensor) -> Self {
        let (rows, cols) = (tensor.rows(), tensor.cols());
        assert_eq!(
            tensor.bytes.len(),
            rows * tensor.ty.row_bytes(cols),
            "{}: checked by the checkpoint",
            tensor.name
        );
        Self { ty: tensor.ty, rows, cols, bytes: tensor.bytes.clone(), device: None }
    }

    /// The same matrix with its position in device memory.
    pub fn on_device(self, device: DevicePosition) -> Self {
        Self { device: Some(device), ..self }
    }

    /// Gives the pages of the mapped file back to the system, once the matrix is read from elsewhere. They are read
    /// again should they be asked for.
    pub fn release(&self) {
        self.bytes.release();
    }

    /// Its position in device memory, if it has one.
    pub fn device(&self) -> Option<&DevicePosition> {
        self.device.as_ref()
    }

    /// The GGUF blocks, row after row.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The GGUF block type.
    pub fn ty(&self) -> GgmlType {
        self.ty
    }

    /// Output features.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Input features.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Size of the packed matrix in bytes.
    pub fn n_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Dequantizes rows `rows` into a row-major `[rows.len(), cols]` buffer.
    pub fn dequantize_rows(&self, rows: std::ops::Range<usize>) -> Vec<f32> {
        let mut out = vec![0.0; rows.len() * self.cols];
        let row_bytes = self.ty.row_bytes(self.cols);
        dequantize(self.ty, &self.bytes[rows.start * row_bytes..rows.end * row_bytes], &mut out);
        out
    }

    /// Dequantizes the given rows in order into a row-major `[ids.len(), cols]` buffer.
    ///
    /// # Panics
    /// If an id is not below [`rows`](Self::rows).
    pub fn gather(&self, ids: &[u32]) -> Vec<f32> {
        let mut out = vec![0.0; ids.len() * self.cols];
        let row_bytes = self.ty.row_bytes(self.cols);
        for (id, row) in ids.iter().zip(out.chunks_exact_mut(self.cols)) {
            let start = *id as usize * row_bytes;
            dequantize(self.ty, &self.bytes[start..start + row_bytes], row);
        }
        out
    }

    /// The matrix as the CPU kernels see it.
    pub fn as_matrix(&self) -> Matrix<'_> {
        Matrix::new(self.ty, self.rows, self.cols, &self.bytes)
            .expect("the constructor compared the byte length with the shape")
    }
}

impl fmt::Debug for PackedMatrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PackedMatrix({} [{}, {}])", self.ty.name(), self.rows, self.cols)
    }
}

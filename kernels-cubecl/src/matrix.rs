//! Packed matrices in device memory.
use crate::format::{Planes, row_bytes};
use crate::pack::pack_rows;
use crate::{Buffer, Gpu, GpuError};
use cubecl::bytes::Bytes;
use cubecl::prelude::*;
use ember_formats::GgmlType;

/// A row-major matrix of packed rows on a device, in as many pieces as its largest buffer demands. Cloning shares it.
#[derive(Clone, Debug)]
pub struct DeviceMatrix {
    ty: GgmlType,
    rows: usize,
    cols: usize,
    planes: Planes,
    shards: Vec<Shard>,
}

/// Consecutive rows in one buffer.
#[derive(Clone, Debug)]
pub(crate) struct Shard {
    /// The packed rows.
    pub(crate) words: Buffer,
    /// The number of the first.
    pub(crate) first: usize,
    /// Their number.
    pub(crate) rows: usize,
}

/// Bytes that are packed and uploaded at a time.
const PIECE: usize = 16 << 20;

/// Bytes that may wait for the device to take them.
const IN_FLIGHT: usize = 256 << 20;

/// Units of a cube of the copy.
const UNITS: u32 = 256;

#[cube(launch_unchecked)]
fn copy_kernel(from: &Array<u32>, to: &mut Array<u32>, start: u32, len: u32) {
    let i = ABSOLUTE_POS as u32;
    if i < len {
        to[(start + i) as usize] = from[i as usize];
    }
}

impl DeviceMatrix {
    /// Uploads matrices of one type and row length, stacked on top of each other; `what` names them in errors.
    ///
    /// `parts` are rows as they are in a GGUF file. `progress` is called with the bytes of `parts` placed since its
    /// last call. Host memory stays bounded: rows are packed and sent a few megabytes at a time.
    ///
    /// # Errors
    /// [`GpuError::Invalid`] when a part is not whole rows, [`GpuError::TooLarge`] when a single row is larger than
    /// the largest buffer, [`GpuError::Device`] when the device failed.
    pub fn upload<R: Runtime>(
        gpu: &Gpu<R>,
        what: &str,
        ty: GgmlType,
        cols: usize,
        parts: &[&[u8]],
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self, GpuError> {
        let row_bytes = row_bytes(ty, cols)?;
        if let Some(part) = parts.iter().find(|part| part.is_empty() || !part.len().is_multiple_of(row_bytes))
        {
            let message = format!("{what}: {} bytes are not whole rows of {row_bytes} bytes", part.len());
            return Err(GpuError::Invalid(message));
        }
        let rows = parts.iter().map(|part| part.len() / row_bytes).sum();
        let planes = Planes::new(ty, cols);
        gpu.guard(|| {
            let matrix = Self { ty, rows, cols, planes, shards: allocate(gpu, what, rows, planes.words)? };
            matrix.fill(gpu, parts, row_bytes, progress)?;
            Ok(matrix)
        })
    }

    /// Row lengths of [`dense`](Self::dense) matrices are multiples of this.
    pub const DENSE_COLS: usize = 8;

    /// A matrix of f32 rows that is on the device already, one after another without gaps.
    ///
    /// # Panics
    /// If `cols` is no multiple of [`DENSE_COLS`](Self::DENSE_COLS).
    pub fn dense(words: Buffer, rows: usize, cols: usize) -> Self {
        let ty = GgmlType::F32;
        let planes = Planes::new(ty, cols);
        assert_eq!(planes.words, cols, "rows of f32 are padded to groups of eight");
        Self { ty, rows, cols, planes, shards: vec![Shard { words, first: 0, rows }] }
    }

    /// Sends the rows of `parts` to their places.
    fn fill<R: Runtime>(
        &self,
        gpu: &Gpu<R>,
        parts: &[&[u8]],
        row_bytes: usize,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), GpuError> {
        let step = (PIECE / row_bytes).max(1);
        let mut row = 0;
        let mut in_flight = 0;
        for mut rest in parts.iter().copied() {
            while !rest.is_empty() {
                // `allocate` covers every row with a shard.
                let shard =
                    self.shards.iter().rfind(|shard| shard.first <= row).expect("the shards cover all rows");
                let rows = step.min(rest.len() / row_bytes).min(shard.first + shard.rows - row);
                let (piece, tail) = rest.split_at(rows * row_bytes);
                let packed = pack_rows(self.ty, self.cols, piece);
                in_flight += 4 * packed.len();
                copy(gpu, packed, shard, (row - shard.first) * self.planes.words);
                if in_flight >= IN_FLIGHT {
                    gpu.wait()?;
                    in_flight = 0;
                }
                progress(piece.len() as u64);
                row += rows;
                rest = tail;
            }
        }
        gpu.wait()
    }

    /// Storage of the elements in the file.
    pub fn ty(&self) -> GgmlType {
        self.ty
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Elements per row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Bytes of device memory.
    pub fn device_bytes(&self) -> u64 {
        4 * (self.rows * self.planes.words) as u64
    }

    pub(crate) fn planes(&self) -> Planes {
        self.planes
    }

    pub(crate) fn shards(&self) -> &[Shard] {
        &self.shards
    }
}

/// Buffers for `rows` rows of `words` words, each no larger than the device allows.
fn allocate<R: Runtime>(gpu: &Gpu<R>, what: &str, rows: usize, words: usize) -> Result<Vec<Shard>, GpuError> {
    let limit = gpu.caps().max_buffer;
    let per_shard = (limit / (4 * words as u64)) as usize;
    if per_shard == 0 {
        return Err(GpuError::TooLarge { what: what.to_owned(), bytes: 4 * words as u64, limit });
    }
    // Of equal size, so that no shard is left with a few rows.
    let per_shard = rows.div_ceil(rows.div_ceil(per_shard));
    let shard = |first: usize| {
        let rows = per_shard.min(rows - first);
        Shard { words: gpu.empty(rows * words), first, rows }
    };
    // Pools would round the sizes up.
    gpu.client
        .memory_persistent_allocation((), |()| (0..rows).step_by(per_shard).map(shard).collect())
        .map_err(|error| GpuError::Device(error.to_string()))
}

/// Sends `words` to word `start` of `shard`: the runtime has no partial write.
fn copy<R: Runtime>(gpu: &Gpu<R>, words: Vec<u32>, shard: &Shard, start: usize) {
    let len = words.len();
    let piece = Buffer::new(gpu.client.create(Bytes::from_elems(words)), len);
    // SAFETY: units past `len` do nothing, and the caller keeps the piece within the shard.
    unsafe {
        copy_kernel::launch_unchecked::<R>(
            gpu.launch(),
            gpu.grid(len.div_ceil(UNITS as usize)),
            CubeDim { x: UNITS, y: 1, z: 1 },
            piece.arg(),
            shard.words.arg(),
            start as u32,
            len as u32,
        );
    }
}

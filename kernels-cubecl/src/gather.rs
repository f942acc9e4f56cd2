//! Rows of a packed matrix as floats: the embedding lookup.
//!
//! `y[i, :] = W[ids[i], :]`. One unit per eight elements of a row. Moved: the packed rows and `4 * n * cols` bytes.
use crate::dequant::{Layout, weights};
use crate::format::Format;
use crate::{Buffer, DeviceMatrix, Gpu};
use cubecl::prelude::*;

/// Units of a cube.
const UNITS: u32 = 128;

#[cube(launch_unchecked)]
fn gather_kernel<W: Size>(
    low: &Array<Vector<u32, W>>,
    words: &Array<u32>,
    ids: &Array<u32>,
    y: &mut Array<f32>,
    layout: Layout,
    count: u32,
    cols: u32,
    first: u32,
    rows: u32,
    #[comptime] format: Format,
) {
    let unit = ABSOLUTE_POS as u32;
    if unit >= count * layout.groups {
        terminate!();
    }
    let (index, group) = (unit / layout.groups, unit % layout.groups);
    // Rows of other shards, and of no shard, wrap around to a large number.
    let row = ids[index as usize] - first;
    if row >= rows {
        terminate!();
    }
    let values = weights::<W>(low, words, row * layout.words, group, &layout, format);
    let at = index * cols + group * 8;
    #[unroll]
    for i in 0..8u32 {
        if group * 8 + i < cols {
            y[(at + i) as usize] = values[i as usize];
        }
    }
}

/// The rows `ids[0..n]` (`u32`) of `matrix`, `[n, cols]`. An id past the last row leaves its row as it was allocated.
pub fn gather<R: Runtime>(gpu: &Gpu<R>, matrix: &DeviceMatrix, ids: &Buffer, n: usize) -> Buffer {
    let y = gpu.empty(n * matrix.cols());
    let format = Format::of(matrix.ty());
    let planes = matrix.planes();
    let units = n * planes.groups;
    for shard in matrix.shards() {
        // SAFETY: a unit reads the words of one group of one row of the shard and writes its elements below `cols`.
        unsafe {
            gather_kernel::launch_unchecked::<R>(
                gpu.launch(),
                gpu.grid(units.div_ceil(UNITS as usize)),
                CubeDim { x: UNITS, y: 1, z: 1 },
                format.load_words(),
                shard.words.arg(),
                shard.words.arg(),
                ids.arg(),
                y.arg(),
                planes.arg(),
                n as u32,
                matrix.cols() as u32,
                shard.first as u32,
                shard.rows as u32,
                format,
            );
        }
    }
    y
}

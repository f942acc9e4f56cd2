//! Grids of any number of cubes: devices allow 65,535 in a dimension.
//!
//! Cubes are counted by one number, [`CUBE_POS`], and spread over as many lines of the device's grid as they take. The
//! last line may have cubes too many, which kernels turn away.
use crate::Gpu;
use cubecl::prelude::*;

/// Cubes that every device allows in a dimension.
pub(crate) const MAX_CUBES: usize = 65_535;

impl<R: Runtime> Gpu<R> {
    /// `cubes` cubes, and fewer too many than there are lines.
    pub(crate) fn grid(&self, cubes: usize) -> CubeCount {
        let lines = cubes.div_ceil(MAX_CUBES).max(1);
        CubeCount::Static(cubes.div_ceil(lines).max(1) as u32, lines as u32, 1)
    }
}

/// Cubes in columns and rows, of which a kernel asks for its own.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(crate) struct Grid {
    /// Cubes of a row.
    pub(crate) columns: u32,
    /// Rows: a cube whose row is not below has nothing to do.
    pub(crate) rows: u32,
}

impl Grid {
    pub(crate) fn of(columns: usize, rows: usize) -> Self {
        Self { columns: columns as u32, rows: rows as u32 }
    }

    pub(crate) fn count<R: Runtime>(&self, gpu: &Gpu<R>) -> CubeCount {
        gpu.grid(self.columns as usize * self.rows as usize)
    }

    pub(crate) fn arg<R: Runtime>(&self) -> GridLaunch<R> {
        GridLaunch::new(self.columns, self.rows)
    }
}

#[cube]
impl Grid {
    /// The column of this cube.
    pub(crate) fn column(&self) -> u32 {
        CUBE_POS as u32 % self.columns
    }

    /// The row of this cube.
    pub(crate) fn row(&self) -> u32 {
        CUBE_POS as u32 / self.columns
    }
}

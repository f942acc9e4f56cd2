//! The gate of a feed-forward network.
//!
//! `y[i] = gate[i] / (1 + exp(-gate[i])) * up[i]`. One unit per element; 12 bytes moved per element.
use crate::{Buffer, Gpu};
use cubecl::prelude::*;

/// Units of a cube.
const UNITS: u32 = 256;

#[cube(launch_unchecked)]
fn swiglu_kernel(gate: &Array<f32>, up: &Array<f32>, y: &mut Array<f32>, len: u32) {
    let i = ABSOLUTE_POS;
    if i < len as usize {
        let x = gate[i];
        y[i] = x / (f32::new(1.0) + f32::exp(-x)) * up[i];
    }
}

/// `silu(gate) * up`, element by element.
pub fn swiglu<R: Runtime>(gpu: &Gpu<R>, gate: &Buffer, up: &Buffer) -> Buffer {
    let y = gpu.empty(gate.len);
    // SAFETY: units past the end do nothing, and all three buffers have `gate.len` words.
    unsafe {
        swiglu_kernel::launch_unchecked::<R>(
            gpu.launch(),
            gpu.grid(gate.len.div_ceil(UNITS as usize)),
            CubeDim { x: UNITS, y: 1, z: 1 },
            gate.arg(),
            up.arg(),
            y.arg(),
            gate.len as u32,
        );
    }
    y
}

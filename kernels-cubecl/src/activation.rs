//! The gates of feed-forward networks.
//!
//! `y[i] = f(gate[i]) * up[i]`, where `f(x)` is `x / (1 + exp(-x))` (SwiGLU) or `x / 2 * (1 + erf(x / sqrt(2)))` (GEGLU).
//! One unit per element; 12 bytes moved per element.
use crate::{Buffer, Gpu};
use cubecl::prelude::*;

/// Units of a cube.
const UNITS: u32 = 256;

/// Named through a type parameter: the standard library may give `f32` an `erf` of its own.
#[cube]
fn erf<F: Float>(x: F) -> F {
    F::erf(x)
}

#[cube(launch_unchecked)]
fn gate_kernel(gate: &Array<f32>, up: &Array<f32>, y: &mut Array<f32>, len: u32, #[comptime] gelu: bool) {
    let i = ABSOLUTE_POS;
    if i < len as usize {
        let x = gate[i];
        if gelu {
            let tails = f32::new(1.0) + erf::<f32>(x * f32::new(core::f32::consts::FRAC_1_SQRT_2));
            y[i] = f32::new(0.5) * x * tails * up[i];
        } else {
            y[i] = x / (f32::new(1.0) + f32::exp(-x)) * up[i];
        }
    }
}

/// `silu(gate) * up`, element by element.
pub fn swiglu<R: Runtime>(gpu: &Gpu<R>, gate: &Buffer, up: &Buffer) -> Buffer {
    launch(gpu, gate, up, false)
}

/// `gelu(gate) * up`, element by element, gelu by the error function.
pub fn geglu<R: Runtime>(gpu: &Gpu<R>, gate: &Buffer, up: &Buffer) -> Buffer {
    launch(gpu, gate, up, true)
}

fn launch<R: Runtime>(gpu: &Gpu<R>, gate: &Buffer, up: &Buffer, gelu: bool) -> Buffer {
    let y = gpu.empty(gate.len);
    // SAFETY: units past the end do nothing, and all three buffers have `gate.len` words.
    unsafe {
        gate_kernel::launch_unchecked::<R>(
            gpu.launch(),
            gpu.grid(gate.len.div_ceil(UNITS as usize)),
            CubeDim { x: UNITS, y: 1, z: 1 },
            gate.arg(),
            up.arg(),
            y.arg(),
            gate.len as u32,
            gelu,
        );
    }
    y
}

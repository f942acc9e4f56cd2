//! Rows of `x` in the f16 that matrix units multiply.
//!
//! `n[t, i] = x[t, i] * 2^k[t]`, with `k` such that the largest magnitude of a row lies in `2^14..2^15`: activations may
//! exceed the 65504 of an f16, and powers of two change no digit. The other factor, `2^-k`, multiplies the row of the
//! result. Work: one cube of 256 units per row. Moved: 8 bytes in (the second time from cache) and 2 out per element.
use super::{load_floats, load_group};
use crate::{Buffer, Gpu};
use cubecl::prelude::*;
use half::f16;

/// Units of a cube.
const UNITS: u32 = 256;

/// Narrow rows, each padded to whole groups of eight elements, and the factors of the results.
pub(super) struct Narrowed {
    pub(super) rows: Buffer,
    pub(super) factors: Buffer,
}

#[cube(launch_unchecked)]
fn narrow_kernel<N: Size, V: Size>(
    x: &Array<Vector<f32, N>>,
    rows: &mut Array<Vector<f16, V>>,
    factors: &mut Array<f32>,
    cols: u32,
    groups: u32,
    tokens: u32,
    #[comptime] floats: u32,
) {
    // Cubes past the last row repeat it, so that the units of every cube meet in its maximum.
    let token = min(CUBE_POS as u32, tokens - 1);
    let exponent = exponent_of_row::<N>(x, token, cols, groups, floats);
    // An f32 of exponent bits `e` is in `2^(e - 127)..2^(e - 126)`.
    let scale = f32::reinterpret((268 - exponent) << 23);
    let mut group = UNIT_POS;
    while group < groups {
        let values = load_group::<N>(x, token, group, cols, floats);
        #[unroll]
        for half in 0..2u32 {
            let mut vector = Vector::<f16, V>::empty();
            #[unroll]
            for i in 0..4usize {
                vector[i] = f16::cast_from(values[comptime!(4 * half as usize + i)] * scale);
            }
            rows[((token * groups + group) * 2 + half) as usize] = vector;
        }
        group += UNITS;
    }
    if UNIT_POS == 0 {
        factors[token as usize] = f32::reinterpret((exponent - 14) << 23);
    }
}

/// The exponent bits of the largest magnitude in a row, but no less than 15, so that both factors are normal.
#[cube]
fn exponent_of_row<N: Size>(
    x: &Array<Vector<f32, N>>,
    token: u32,
    cols: u32,
    groups: u32,
    #[comptime] floats: u32,
) -> u32 {
    // Bits of magnitudes are ordered as the magnitudes are.
    let mut largest = 0u32.runtime();
    let mut group = UNIT_POS;
    while group < groups {
        let values = load_group::<N>(x, token, group, cols, floats);
        #[unroll]
        for i in 0..8usize {
            largest = max(largest, u32::reinterpret(values[i]) & 0x7fff_ffff);
        }
        group += UNITS;
    }
    let mut shared = SharedMemory::<u32>::new(UNITS as usize);
    shared[UNIT_POS as usize] = largest;
    sync_cube();
    #[unroll]
    for step in 0..comptime!(UNITS.ilog2()) {
        let half = comptime!(UNITS >> (step + 1));
        if UNIT_POS < half {
            shared[UNIT_POS as usize] = max(shared[UNIT_POS as usize], shared[(UNIT_POS + half) as usize]);
        }
        sync_cube();
    }
    max(shared[0] >> 23, 15)
}

/// Narrows rows of `cols` floats.
pub(super) fn narrow<R: Runtime>(gpu: &Gpu<R>, x: &Buffer, cols: usize) -> Narrowed {
    let tokens = x.len / cols;
    let floats = load_floats(cols);
    let groups = cols.div_ceil(8);
    // Four words hold eight elements.
    let rows = gpu.empty(4 * groups * tokens);
    let factors = gpu.empty(tokens);
    // SAFETY: tokens and groups stay below their numbers; `rows` has eight two-byte elements for each group.
    unsafe {
        narrow_kernel::launch_unchecked::<R>(
            gpu.launch(),
            gpu.grid(tokens),
            CubeDim { x: UNITS, y: 1, z: 1 },
            floats,
            4,
            x.arg(),
            narrow_arg(&rows),
            factors.arg(),
            cols as u32,
            groups as u32,
            tokens as u32,
            floats as u32,
        );
    }
    Narrowed { rows, factors }
}

/// A buffer of words as one of two-byte elements.
pub(super) fn narrow_arg<R: Runtime>(buffer: &Buffer) -> ArrayArg<R> {
    // SAFETY: a word holds two elements.
    unsafe { ArrayArg::from_raw_parts(buffer.handle.clone(), 2 * buffer.len) }
}

//! The kernels in portable Rust: the definition that other instruction sets repeat bit for bit.

use ember_formats::GgmlType;
use ember_formats::codes::f16_at;
use half::{bf16, f16};

use super::format::*;
use super::{Kernel, PANEL_ROWS, RowsKernel, act_format};
use crate::activations::{ActRow, split_place};

pub(super) fn kernel(ty: GgmlType) -> Kernel {
    use GgmlType as T;
    let rows: RowsKernel = match ty {
        T::F32 => |w, n, _, x| each_row(w, n, |w| dot_float(w, x.x, f32::from_le_bytes)),
        T::F16 => |w, n, _, x| each_row(w, n, |w| dot_float(w, x.x, |b| f16::from_le_bytes(b).to_f32())),
        T::BF16 => |w, n, _, x| each_row(w, n, |w| dot_float(w, x.x, |b| bf16::from_le_bytes(b).to_f32())),
        T::Q4_0 => rows32::<Q4_0>,
        T::Q4_1 => rows32::<Q4_1>,
        T::Q5_0 => rows32::<Q5_0>,
        T::Q5_1 => rows32::<Q5_1>,
        T::Q8_0 => rows32::<Q8_0>,
        T::IQ4_NL => rows32::<Iq4Nl>,
        T::Q2_K => rows256::<Q2K>,
        T::Q3_K => rows256::<Q3K>,
        T::Q4_K => rows256::<Q4K>,
        T::Q5_K => rows256::<Q5K>,
        T::Q6_K => rows256::<Q6K>,
        T::IQ4_XS => rows256::<Iq4Xs>,
    };
    Kernel { format: act_format(ty), rows, panel: None }
}

fn each_row(rows: &[u8], row_count: usize, dot: impl Fn(&[u8]) -> f32) -> [f32; PANEL_ROWS] {
    let mut out = [0.0; PANEL_ROWS];
    // A matrix without columns has rows without bytes; their products are 0.
    for (out, row) in out.iter_mut().zip(rows.chunks_exact((rows.len() / row_count).max(1))) {
        *out = dot(row);
    }
    out
}

fn rows32<F: Block32>(rows: &[u8], row_count: usize, _: &[u8], x: ActRow<'_>) -> [f32; PANEL_ROWS] {
    each_row(rows, row_count, |row| {
        let mut acc = 0.0f32;
        for (i, block) in row.chunks_exact(F::BYTES).enumerate() {
            let dot = dot_i8(&F::unpack(block), &x.q[i * 32..][..32]);
            acc = (dot as f32).mul_add(F::scale(block) * x.d[i], acc);
            if F::HAS_MIN {
                acc = f16_at(block, 2).mul_add(x.d[i] * f32::from(x.sums[i]), acc);
            }
        }
        acc
    })
}

fn rows256<F: Super256>(rows: &[u8], row_count: usize, _: &[u8], x: ActRow<'_>) -> [f32; PANEL_ROWS] {
    each_row(rows, row_count, |row| {
        let mut acc = 0.0f32;
        for (i, block) in row.chunks_exact(F::BYTES).enumerate() {
            let (q, (scales, mins)) = (F::unpack(block), F::scales(block));
            let (x_q, x_sums) = (&x.q[i * 256..][..256], &x.sums[i * 16..][..16]);
            let groups = q.chunks_exact(16).zip(x_q.chunks_exact(16));
            let dot: i32 = groups.zip(scales).map(|((q, x), scale)| i32::from(scale) * dot_i8(q, x)).sum();
            acc = (dot as f32).mul_add(f16_at(block, F::D_AT) * x.d[i], acc);
            if F::HAS_MIN {
                let min: i32 = (0..16).map(|j| i32::from(mins[j]) * i32::from(x_sums[split_place(j)])).sum();
                acc = (-(f16_at(block, F::D_AT + 2) * x.d[i])).mul_add(min as f32, acc);
            }
        }
        acc
    })
}

fn dot_i8(a: &[i8], b: &[i8]) -> i32 {
    a.iter().zip(b).map(|(&a, &b)| i32::from(a) * i32::from(b)).sum()
}

fn dot_float<const BYTES: usize>(row: &[u8], x: &[f32], to_f32: impl Fn([u8; BYTES]) -> f32) -> f32 {
    let (row, _) = row.as_chunks::<BYTES>();
    let mut lanes = [0.0f32; 8];
    for (w, x) in row.chunks(8).zip(x.chunks(8)) {
        for (i, lane) in lanes.iter_mut().enumerate() {
            let w = w.get(i).map_or(0.0, |&w| to_f32(w));
            *lane = w.mul_add(x.get(i).copied().unwrap_or(0.0), *lane);
        }
    }
    let [l0, l1, l2, l3, l4, l5, l6, l7] = lanes;
    ((l0 + l1) + (l2 + l3)) + ((l4 + l5) + (l6 + l7))
}

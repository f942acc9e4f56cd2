//! Pages of keys and values, written in place. Elements are in native byte order.

use ember_formats::GgmlType;
pub use ember_formats::{KvLayout, KvLayoutError, KvType};
use half::{bf16, f16};

use crate::float::dispatch;
use crate::float::lanes::{Kernel, Simd, larger};
use crate::float::pieces::Pieces;
use crate::isa::Isa;
use crate::pool::{self, ThreadPool};

/// Elements of a q8_0 block.
pub(crate) const Q8_0_LEN: usize = GgmlType::Q8_0.block_len();
/// Bytes of a q8_0 block: the step as f16, then the elements as signed bytes.
pub(crate) const Q8_0_BYTES: usize = GgmlType::Q8_0.block_bytes();

/// The fields of a layout are public, so the kernels do not rely on [`KvLayout::new`].
pub(crate) fn check_layout(layout: &KvLayout) {
    if let Err(error) = layout.check() {
        panic!("{error}");
    }
}

/// Writes the keys and values of `slots.len()` tokens into the pools of one layer, in place.
///
/// `k`, `v`: `[tokens, n_kv_heads, head_dim]`; `slots[t]` is block number x `block_len` + position in the block.
/// Rounding is to nearest even for f16 and bf16; for q8_0 it is that of GGUF's reference quantizer. A q8_0 block that holds a
/// NaN or an infinity reads back as NaN.
///
/// # Panics
/// If the lengths do not fit together or a slot lies outside of a pool.
pub fn kv_write(
    layout: &KvLayout,
    k_pool: &mut [u8],
    v_pool: &mut [u8],
    k: &[f32],
    v: &[f32],
    slots: &[u32],
) {
    kv_write_with(Isa::best(), pool::global(), layout, [k_pool, v_pool], [k, v], slots);
}

/// [`kv_write`] with a given instruction set and pool; `pools` and `rows` are those of keys and of values.
pub fn kv_write_with(
    isa: Isa,
    pool: &ThreadPool,
    layout: &KvLayout,
    pools: [&mut [u8]; 2],
    rows: [&[f32]; 2],
    slots: &[u32],
) {
    check_layout(layout);
    let len = slots.len() * layout.n_kv_heads * layout.head_dim;
    assert!(rows.iter().all(|rows| rows.len() == len), "keys and values of {} tokens", slots.len());
    let pools = pools.map(Pieces::new);
    let write = |part: usize, kv_head: usize| {
        let write = WriteHead { layout, kv_head, rows: rows[part], slots, pool: &pools[part] };
        dispatch(isa, write);
    };
    // A task owns the pages of one head, so two tokens that share a slot never meet in two threads.
    if len < PARALLEL_LEN {
        (0..2).for_each(|part| (0..layout.n_kv_heads).for_each(|head| write(part, head)));
    } else {
        pool.parallel(2 * layout.n_kv_heads, &|task| write(task % 2, task / 2));
    }
}

/// Elements from which several threads write faster than one.
const PARALLEL_LEN: usize = 16 * 1024;

struct WriteHead<'a> {
    layout: &'a KvLayout,
    kv_head: usize,
    rows: &'a [f32],
    slots: &'a [u32],
    pool: &'a Pieces<'a, u8>,
}

impl Kernel for WriteHead<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let KvLayout { ty, block_len, n_kv_heads, head_dim } = *self.layout;
        let row_bytes = self.layout.row_bytes();
        let heads = self.rows.chunks_exact(head_dim).skip(self.kv_head).step_by(n_kv_heads);
        for (row, &slot) in heads.zip(self.slots) {
            let (block, offset) = (slot as usize / block_len, slot as usize % block_len);
            let start = ((block * n_kv_heads + self.kv_head) * block_len + offset) * row_bytes;
            // SAFETY: only this call has this head's rows, and it holds one at a time.
            let to = unsafe { self.pool.piece(start..start + row_bytes) };
            match ty {
                KvType::F32 => write_f32(row, to),
                KvType::F16 => write_f16(s, row, to),
                KvType::BF16 => write_bf16(row, to),
                KvType::Q8_0 => write_q8_0(row, to),
            }
        }
    }
}

#[inline(always)]
fn write_f32(row: &[f32], to: &mut [u8]) {
    for (x, to) in row.iter().zip(to.as_chunks_mut::<4>().0) {
        *to = x.to_ne_bytes();
    }
}

#[inline(always)]
fn write_f16<S: Simd>(s: S, row: &[f32], to: &mut [u8]) {
    let (octets, tail) = row.as_chunks::<8>();
    let (to, to_tail) = to.as_chunks_mut::<16>();
    for (x, to) in octets.iter().zip(to) {
        s.store_f16(s.load(x), to);
    }
    for (x, to) in tail.iter().zip(to_tail.as_chunks_mut::<2>().0) {
        *to = f16::from_f32(*x).to_ne_bytes();
    }
}

#[inline(always)]
fn write_bf16(row: &[f32], to: &mut [u8]) {
    for (x, to) in row.iter().zip(to.as_chunks_mut::<2>().0) {
        *to = bf16::from_f32(*x).to_ne_bytes();
    }
}

#[inline(always)]
fn write_q8_0(row: &[f32], to: &mut [u8]) {
    for (x, to) in row.as_chunks::<Q8_0_LEN>().0.iter().zip(to.as_chunks_mut::<Q8_0_BYTES>().0) {
        let mut largest = [0f32; 8];
        for octet in x.as_chunks::<8>().0 {
            for (largest, x) in largest.iter_mut().zip(octet) {
                *largest = larger(x.abs(), *largest);
            }
        }
        let step = largest.into_iter().fold(0.0, larger) / 127.0;
        let (stored, inverse) = if x.iter().any(|x| x.is_nan()) {
            (f16::NAN, 0.0)
        } else {
            (f16::from_f32(step), if step == 0.0 { 0.0 } else { 1.0 / step })
        };
        let (head, bytes) = to.split_at_mut(2);
        head.copy_from_slice(&stored.to_ne_bytes());
        for (to, x) in bytes.iter_mut().zip(x) {
            *to = (x * inverse).round() as i32 as i8 as u8;
        }
    }
}

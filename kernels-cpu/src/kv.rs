//! Pages of keys and values: their layout, and writing them in place.

use half::{bf16, f16};
use thiserror::Error;

use crate::float::dispatch;
use crate::float::lanes::{Kernel, Simd, larger};
use crate::float::pieces::Pieces;
use crate::isa::Isa;
use crate::pool::{self, ThreadPool};

/// Elements of a q8_0 block.
pub(crate) const Q8_0_LEN: usize = 32;
/// Bytes of a q8_0 block: the step as f16, then the elements as signed bytes.
pub(crate) const Q8_0_BYTES: usize = 2 + Q8_0_LEN;

/// How one element of a key or value is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KvType {
    /// 32-bit float.
    F32,
    /// 16-bit float.
    #[default]
    F16,
    /// The upper half of a 32-bit float: the range of f32, three digits less precise than f16.
    BF16,
    /// GGUF's blocks of 32 signed bytes and one f16 step: 8.5 bits per element.
    Q8_0,
}

/// The layout of one layer's pool of keys, and equally of its values:
/// `[n_blocks, n_kv_heads, block_len, head_dim]` elements of `ty`, in native byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvLayout {
    /// How an element is stored.
    pub ty: KvType,
    /// Positions per block.
    pub block_len: usize,
    /// Heads of keys and of values.
    pub n_kv_heads: usize,
    /// Elements of one head.
    pub head_dim: usize,
}

/// A layout that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KvLayoutError {
    /// A dimension is zero.
    #[error("a KV cache of {n_kv_heads} heads x {head_dim} in blocks of {block_len} positions holds nothing")]
    Empty {
        /// Positions per block.
        block_len: usize,
        /// Heads.
        n_kv_heads: usize,
        /// Elements of one head.
        head_dim: usize,
    },
    /// The head does not divide into q8_0 blocks.
    #[error("a q8_0 KV cache needs a head size that is a multiple of 32, this model's is {0}: use f16")]
    Q8HeadDim(usize),
}

impl KvLayout {
    /// Positions per block unless there is a reason for another number: the blocks of an 8192-token context are
    /// few enough to list, and a sequence wastes 16 positions on average.
    pub const DEFAULT_BLOCK_LEN: usize = 32;

    /// A layout whose sizes fit together.
    ///
    /// # Errors
    /// [`KvLayoutError`] when a size is zero or a head does not divide into blocks of `ty`.
    pub fn new(
        ty: KvType,
        block_len: usize,
        n_kv_heads: usize,
        head_dim: usize,
    ) -> Result<Self, KvLayoutError> {
        if block_len == 0 || n_kv_heads == 0 || head_dim == 0 {
            return Err(KvLayoutError::Empty { block_len, n_kv_heads, head_dim });
        }
        if ty == KvType::Q8_0 && !head_dim.is_multiple_of(Q8_0_LEN) {
            return Err(KvLayoutError::Q8HeadDim(head_dim));
        }
        Ok(Self { ty, block_len, n_kv_heads, head_dim })
    }

    /// Bytes of one head at one position.
    pub fn row_bytes(&self) -> usize {
        match self.ty {
            KvType::F32 => 4 * self.head_dim,
            KvType::F16 | KvType::BF16 => 2 * self.head_dim,
            KvType::Q8_0 => self.head_dim / Q8_0_LEN * Q8_0_BYTES,
        }
    }

    /// Bytes of one block of keys (or of values) of one layer.
    pub fn block_bytes(&self) -> usize {
        self.n_kv_heads * self.block_len * self.row_bytes()
    }

    /// The fields are public, so the kernels do not rely on [`KvLayout::new`].
    pub(crate) fn check(&self) {
        if let Err(error) = Self::new(self.ty, self.block_len, self.n_kv_heads, self.head_dim) {
            panic!("{error}");
        }
    }
}

/// Writes the keys and values of `slots.len()` tokens into the pools of one layer, in place.
///
/// `k`, `v`: `[tokens, n_kv_heads, head_dim]`; `slots[t]` is block number x `block_len` + position in the block.
/// Rounding is to nearest even for f16 and bf16; for q8_0 it is that of GGUF's reference quantizer. A q8_0 block that holds a
/// NaN reads back as NaN.
///
/// # Panics
/// When the lengths do not fit together or a slot lies outside of a pool.
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
    layout.check();
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
        let inverse = if step == 0.0 { 0.0 } else { 1.0 / step };
        let stored = if x.iter().any(|x| x.is_nan()) { f16::NAN } else { f16::from_f32(step) };
        let (head, bytes) = to.split_at_mut(2);
        head.copy_from_slice(&stored.to_ne_bytes());
        for (to, x) in bytes.iter_mut().zip(x) {
            *to = (x * inverse).round() as i32 as i8 as u8;
        }
    }
}

//! Pages of keys and values, and how their elements are stored.
//!
//! Layout: `[n_blocks][n_kv_heads][block_len]` rows of `row_words` words for the keys of a layer, then the same for its
//! values, in one allocation. A row holds one head at one position:
//! - f32: an element per word;
//! - f16, bf16: two per word, the lower half first;
//! - q8_0: four signed bytes per word, lowest first, then the f16 steps of the blocks of 32 elements, two per word.
use crate::halves::{float_to_bf16, float_to_half, half_to_float};
use crate::{Buffer, Gpu, GpuError};
use cubecl::prelude::*;
use ember_formats::GgmlType;
pub use ember_formats::{KvLayout, KvType};

/// Elements of a q8_0 block.
const Q8_0_LEN: usize = GgmlType::Q8_0.block_len();
/// The bits of infinity: those of NaN, without the sign, are larger.
const INFINITY: u32 = 0x7f80_0000;

/// Elements in a word.
pub(crate) const fn per_word(ty: KvType) -> usize {
    match ty {
        KvType::F32 => 1,
        KvType::F16 | KvType::BF16 => 2,
        KvType::Q8_0 => 4,
    }
}

/// Words that hold the elements of a row; the steps of q8_0 follow them.
pub(crate) const fn data_words(layout: KvLayout) -> usize {
    layout.head_dim / per_word(layout.ty)
}

/// Checks that kernels can read and write rows of `layout`.
fn check(layout: KvLayout) -> Result<(), GpuError> {
    let KvLayout { ty, block_len, n_kv_heads, head_dim } = layout;
    if layout.check().is_err() || head_dim > 256 || head_dim % 2 != 0 {
        let message =
            format!("no pages of {ty} for {n_kv_heads} heads of {head_dim} in blocks of {block_len}");
        return Err(GpuError::Invalid(message));
    }
    Ok(())
}

/// The pages of one layer.
#[derive(Clone, Debug)]
pub struct KvPages {
    /// Keys.
    pub k: Buffer,
    /// Values.
    pub v: Buffer,
    /// Of both.
    pub layout: KvLayout,
    /// The allocation behind both, and the word where the values start. Kernels that write bind it as one buffer:
    /// some devices allow eight per kernel.
    pub(crate) pool: Option<(Buffer, usize)>,
}

impl KvPages {
    /// Zeroed pages.
    ///
    /// # Errors
    /// [`GpuError::TooLarge`] when the device binds no buffer for both keys and values, [`GpuError::Invalid`] when
    /// there is no such layout, [`GpuError::Device`] when the device failed.
    pub fn new<R: Runtime>(gpu: &Gpu<R>, layout: KvLayout, n_blocks: usize) -> Result<Self, GpuError> {
        check(layout)?;
        let words = n_blocks.saturating_mul(layout.block_words()).min(u32::MAX as usize);
        let v_start = words.next_multiple_of(gpu.caps().alignment.div_ceil(4) as usize);
        let (bytes, limit) = (4 * (v_start + words) as u64, gpu.caps().max_buffer);
        if bytes > limit {
            let what = format!("a layer's KV cache of {n_blocks} blocks");
            return Err(GpuError::TooLarge { what, bytes, limit });
        }
        let pool = gpu.guard(|| zeroed(gpu, v_start + words))?;
        let (k, v) = (pool.slice(0, words), pool.slice(v_start, words));
        Ok(Self { k, v, layout, pool: Some((pool, v_start)) })
    }

    /// Contiguous keys and values `[positions, n_kv_heads, head_dim]` as pages to read: blocks of one position each.
    pub fn dense(k: &Buffer, v: &Buffer, n_kv_heads: usize, head_dim: usize) -> Self {
        let layout = KvLayout { ty: KvType::F32, block_len: 1, n_kv_heads, head_dim };
        Self { k: k.clone(), v: v.clone(), layout, pool: None }
    }

    /// Blocks of keys, and as many of values.
    pub fn n_blocks(&self) -> usize {
        self.k.len / self.layout.block_words()
    }
}

/// Memory of zeros that lasts; the device has made them.
fn zeroed<R: Runtime>(gpu: &Gpu<R>, words: usize) -> Result<Buffer, GpuError> {
    let pool = gpu
        .client
        .memory_persistent_allocation((), |()| gpu.empty(words))
        .map_err(|error| GpuError::Device(error.to_string()))?;
    // SAFETY: units past the end do nothing.
    unsafe {
        zero_kernel::launch_unchecked::<R>(
            gpu.launch(),
            gpu.grid(words.div_ceil(ZERO_UNITS as usize)),
            CubeDim { x: ZERO_UNITS, y: 1, z: 1 },
            pool.arg(),
            words as u32,
        );
    }
    gpu.wait()?;
    Ok(pool)
}

/// Units of a cube that zeroes.
const ZERO_UNITS: u32 = 256;

#[cube(launch_unchecked)]
fn zero_kernel(pool: &mut Array<u32>, len: u32) {
    if ABSOLUTE_POS < len as usize {
        pool[ABSOLUTE_POS] = 0;
    }
}

/// Element `k` of a word; for q8_0 in steps of its block.
#[cube]
pub(crate) fn element(word: u32, #[comptime] k: usize, #[comptime] ty: KvType) -> f32 {
    match comptime!(ty) {
        KvType::F32 => f32::reinterpret(word),
        KvType::F16 => half_to_float(word >> comptime!(16 * k as u32)),
        KvType::BF16 => {
            if comptime!(k == 0) {
                f32::reinterpret(word << 16)
            } else {
                f32::reinterpret(word & 0xffff_0000u32)
            }
        }
        KvType::Q8_0 => f32::cast_from(i32::cast_from(word << comptime!(24 - 8 * k as u32)) >> 24),
    }
}

/// The step of the elements in word `word` of the row that starts at `row`: 1 unless q8_0.
#[cube]
pub(crate) fn step(pages: &Array<u32>, row: usize, word: usize, #[comptime] layout: KvLayout) -> f32 {
    if comptime!(layout.ty == KvType::Q8_0) {
        let block = word / 8;
        let pair = pages[row + comptime!(data_words(layout)) + block / 2];
        half_to_float(pair >> (16 * (block % 2) as u32))
    } else {
        f32::new(1.0)
    }
}

/// Stores a head into the row that starts at `row`, by all units of the cube.
#[cube]
pub(crate) fn store_row(
    head: &SharedMemory<f32>,
    pages: &mut Array<u32>,
    row: usize,
    #[comptime] layout: KvLayout,
    #[comptime] units: usize,
) {
    let data = comptime!(data_words(layout));
    let mut word = UNIT_POS as usize;
    while word < data {
        pages[row + word] = match comptime!(layout.ty) {
            KvType::F32 => u32::reinterpret(head[word]),
            KvType::F16 => float_to_half(head[2 * word]) | (float_to_half(head[2 * word + 1]) << 16),
            KvType::BF16 => float_to_bf16(head[2 * word]) | (float_to_bf16(head[2 * word + 1]) << 16),
            KvType::Q8_0 => q8_0_word(head, word),
        };
        word += units;
    }
    if comptime!(layout.ty == KvType::Q8_0) {
        let blocks = comptime!(layout.head_dim / Q8_0_LEN);
        let mut pair = UNIT_POS as usize;
        while pair < comptime!(blocks.div_ceil(2)) {
            let mut steps = q8_0_step_bits(head, 2 * pair);
            if 2 * pair + 1 < blocks {
                steps |= q8_0_step_bits(head, 2 * pair + 1) << 16;
            }
            pages[row + data + pair] = steps;
            pair += units;
        }
    }
}

/// The bits of the largest magnitude in a block of 32 elements. As integers: magnitudes compare like their bits, and
/// NaN is larger than all.
#[cube]
fn largest_bits(head: &SharedMemory<f32>, block: usize) -> u32 {
    let mut largest = 0u32;
    for i in 0..comptime!(Q8_0_LEN) {
        let bits = u32::reinterpret(head[block * comptime!(Q8_0_LEN) + i]) & 0x7fff_ffff;
        largest = select(bits > largest, bits, largest);
    }
    largest
}

/// The f16 step of a block: NaN where an element is.
#[cube]
fn q8_0_step_bits(head: &SharedMemory<f32>, block: usize) -> u32 {
    let largest = largest_bits(head, block);
    let step = float_to_half(f32::reinterpret(largest) / f32::new(127.0));
    select(largest > INFINITY, 0x7e00, step)
}

/// Four elements in steps of their block, as bytes: zeros in a block that is not finite, whose step says so.
#[cube]
fn q8_0_word(head: &SharedMemory<f32>, word: usize) -> u32 {
    let largest = largest_bits(head, word / 8);
    let step = f32::reinterpret(largest) / f32::new(127.0);
    let mut packed = 0u32;
    if step > f32::new(0.0) && largest < INFINITY {
        let inverse = f32::new(1.0) / step;
        #[unroll]
        for k in 0..4usize {
            let x = head[4 * word + k] * inverse;
            // Halves away from zero; adding a half first would round 0.49999997 up.
            let whole = f32::floor(f32::abs(x));
            let up = select(f32::abs(x) - whole >= f32::new(0.5), 1, 0);
            let magnitude = i32::cast_from(whole) + up;
            let signed = select(x < f32::new(0.0), -magnitude, magnitude);
            packed |= (u32::cast_from(signed) & 0xff) << comptime!(8 * k as u32);
        }
    }
    packed
}

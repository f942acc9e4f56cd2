//! The block types in portable Rust, as marker types for kernels to be generic over.

use std::array::from_fn;

use ember_formats::GgmlType;
use ember_formats::codes::{self, IQ4_VALUES, f16_at};

/// A type of blocks of 32 elements: `w = d * q + m`.
pub(crate) trait Block32 {
    /// The type in files.
    const TYPE: GgmlType;
    /// Bytes per block.
    const BYTES: usize = Self::TYPE.block_bytes();
    /// True for blocks that have a minimum `m` (at bytes 2..4, as f16).
    const HAS_MIN: bool = Self::TYPE.scale_offsets().len() > 1;

    /// The integers of a block, offset applied.
    fn unpack(block: &[u8]) -> [i8; 32];

    /// The scale `d`.
    fn scale(block: &[u8]) -> f32 {
        f16_at(block, 0)
    }
}

/// A type of superblocks of 256 elements in 16 groups of 16: `w = d * scale[j] * q - dmin * min[j]`.
pub(crate) trait Super256 {
    /// The type in files.
    const TYPE: GgmlType;
    /// Bytes per superblock.
    const BYTES: usize = Self::TYPE.block_bytes();
    /// True for superblocks whose groups have minima.
    const HAS_MIN: bool = Self::TYPE.scale_offsets().len() > 1;
    /// Byte offset of the f16 `d`; `dmin` follows it in types that have minima.
    const D_AT: usize = Self::TYPE.scale_offsets()[0];

    /// The integers of a superblock, offset applied.
    fn unpack(block: &[u8]) -> [i8; 256];

    /// The integer scales of the groups, offset applied, and their minima (0 where the type has none).
    fn scales(block: &[u8]) -> ([i16; 16], [i16; 16]);
}

pub(crate) struct Q4_0;
pub(crate) struct Q4_1;
pub(crate) struct Q5_0;
pub(crate) struct Q5_1;
pub(crate) struct Q8_0;
pub(crate) struct Iq4Nl;
pub(crate) struct Q2K;
pub(crate) struct Q3K;
pub(crate) struct Q4K;
pub(crate) struct Q5K;
pub(crate) struct Q6K;
pub(crate) struct Iq4Xs;

impl Block32 for Q4_0 {
    const TYPE: GgmlType = GgmlType::Q4_0;
    fn unpack(block: &[u8]) -> [i8; 32] {
        from_fn(|i| codes::q4_0(block, i) as i8 - 8)
    }
}

impl Block32 for Q4_1 {
    const TYPE: GgmlType = GgmlType::Q4_1;
    fn unpack(block: &[u8]) -> [i8; 32] {
        from_fn(|i| codes::q4_1(block, i) as i8)
    }
}

impl Block32 for Q5_0 {
    const TYPE: GgmlType = GgmlType::Q5_0;
    fn unpack(block: &[u8]) -> [i8; 32] {
        from_fn(|i| codes::q5_0(block, i) as i8 - 16)
    }
}

impl Block32 for Q5_1 {
    const TYPE: GgmlType = GgmlType::Q5_1;
    fn unpack(block: &[u8]) -> [i8; 32] {
        from_fn(|i| codes::q5_1(block, i) as i8)
    }
}

impl Block32 for Q8_0 {
    const TYPE: GgmlType = GgmlType::Q8_0;
    fn unpack(block: &[u8]) -> [i8; 32] {
        from_fn(|i| codes::q8_0(block, i) as i8)
    }
}

impl Block32 for Iq4Nl {
    const TYPE: GgmlType = GgmlType::IQ4_NL;
    fn unpack(block: &[u8]) -> [i8; 32] {
        from_fn(|i| IQ4_VALUES[codes::iq4_nl(block, i) as usize])
    }
}

impl Super256 for Q2K {
    const TYPE: GgmlType = GgmlType::Q2_K;
    fn unpack(block: &[u8]) -> [i8; 256] {
        from_fn(|i| codes::q2_k(block, i) as i8)
    }
    fn scales(block: &[u8]) -> ([i16; 16], [i16; 16]) {
        with_minima(|j| codes::q2_k_scale_and_min(block, j))
    }
}

impl Super256 for Q3K {
    const TYPE: GgmlType = GgmlType::Q3_K;
    fn unpack(block: &[u8]) -> [i8; 256] {
        from_fn(|i| codes::q3_k(block, i) as i8 - 4)
    }
    fn scales(block: &[u8]) -> ([i16; 16], [i16; 16]) {
        (from_fn(|j| i16::from(codes::q3_k_scale(block, j)) - 32), [0; 16])
    }
}

impl Super256 for Q4K {
    const TYPE: GgmlType = GgmlType::Q4_K;
    fn unpack(block: &[u8]) -> [i8; 256] {
        from_fn(|i| codes::q4_k(block, i) as i8)
    }
    fn scales(block: &[u8]) -> ([i16; 16], [i16; 16]) {
        with_minima(|j| codes::q4_k_scale_and_min(block, j / 2))
    }
}

impl Super256 for Q5K {
    const TYPE: GgmlType = GgmlType::Q5_K;
    fn unpack(block: &[u8]) -> [i8; 256] {
        from_fn(|i| codes::q5_k(block, i) as i8)
    }
    fn scales(block: &[u8]) -> ([i16; 16], [i16; 16]) {
        with_minima(|j| codes::q4_k_scale_and_min(block, j / 2))
    }
}

impl Super256 for Q6K {
    const TYPE: GgmlType = GgmlType::Q6_K;
    fn unpack(block: &[u8]) -> [i8; 256] {
        from_fn(|i| codes::q6_k(block, i) as i8 - 32)
    }
    fn scales(block: &[u8]) -> ([i16; 16], [i16; 16]) {
        (from_fn(|j| i16::from(codes::q6_k_scale(block, j))), [0; 16])
    }
}

impl Super256 for Iq4Xs {
    const TYPE: GgmlType = GgmlType::IQ4_XS;
    fn unpack(block: &[u8]) -> [i8; 256] {
        from_fn(|i| IQ4_VALUES[codes::iq4_xs(block, i) as usize])
    }
    fn scales(block: &[u8]) -> ([i16; 16], [i16; 16]) {
        // For 32 elements: two groups share one.
        (from_fn(|j| i16::from(codes::iq4_xs_scale(block, j / 2)) - 32), [0; 16])
    }
}

/// The scales and minima of 16 groups.
fn with_minima(pair: impl Fn(usize) -> (u8, u8)) -> ([i16; 16], [i16; 16]) {
    (from_fn(|j| i16::from(pair(j).0)), from_fn(|j| i16::from(pair(j).1)))
}

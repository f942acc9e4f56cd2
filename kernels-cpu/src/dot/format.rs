//! The block formats in portable Rust: where each keeps its integers and scales.
//!
//! Source of the layouts: ggml's `ggml-common.h` and the reference dequantizers of gguf-py.

use half::f16;

/// A format of blocks of 32 elements: `w = d * q + m`.
pub(crate) trait Block32 {
    /// Bytes per block.
    const BYTES: usize;
    /// Whether blocks have a minimum `m` (at bytes 2..4, as f16).
    const HAS_MIN: bool = false;

    /// The integers of a block, offset applied.
    fn unpack(block: &[u8]) -> [i8; 32];

    /// The scale `d`.
    fn scale(block: &[u8]) -> f32 {
        f16_at(block, 0)
    }
}

/// A format of superblocks of 256 elements in 16 groups of 16: `w = d * scale[j] * q - dmin * min[j]`.
pub(crate) trait Super256 {
    /// Bytes per superblock.
    const BYTES: usize;
    /// Whether groups have minima.
    const HAS_MIN: bool = false;
    /// Where the f16 `d` is; `dmin` follows it in formats that have minima.
    const D_AT: usize;

    /// The integers of a superblock, offset applied.
    fn unpack(block: &[u8]) -> [i8; 256];

    /// The integer scales of the groups, offset applied, and their minima (0 where the format has none).
    fn scales(block: &[u8]) -> ([i16; 16], [i16; 16]);
}

/// The f16 at byte `at`, widened.
pub(crate) fn f16_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
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

/// The 16 values that the 4-bit codes of `IQ4_NL` and `IQ4_XS` stand for.
pub(crate) const IQ4_VALUES: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Codes of 16 bytes: the low halves, then the high halves.
fn nibbles(bytes: &[u8]) -> [u8; 32] {
    std::array::from_fn(|i| if i < 16 { bytes[i] & 15 } else { bytes[i - 16] >> 4 })
}

/// [`nibbles`] with a fifth bit from bit `i` of the four bytes `high`.
fn five_bits(bytes: &[u8], high: &[u8]) -> [u8; 32] {
    let low = nibbles(bytes);
    std::array::from_fn(|i| low[i] | (high[i / 8] >> (i % 8) & 1) << 4)
}

impl Block32 for Q4_0 {
    const BYTES: usize = 18;
    fn unpack(block: &[u8]) -> [i8; 32] {
        nibbles(&block[2..18]).map(|q| q as i8 - 8)
    }
}

impl Block32 for Q4_1 {
    const BYTES: usize = 20;
    const HAS_MIN: bool = true;
    fn unpack(block: &[u8]) -> [i8; 32] {
        nibbles(&block[4..20]).map(|q| q as i8)
    }
}

impl Block32 for Q5_0 {
    const BYTES: usize = 22;
    fn unpack(block: &[u8]) -> [i8; 32] {
        five_bits(&block[6..22], &block[2..6]).map(|q| q as i8 - 16)
    }
}

impl Block32 for Q5_1 {
    const BYTES: usize = 24;
    const HAS_MIN: bool = true;
    fn unpack(block: &[u8]) -> [i8; 32] {
        five_bits(&block[8..24], &block[4..8]).map(|q| q as i8)
    }
}

impl Block32 for Q8_0 {
    const BYTES: usize = 34;
    fn unpack(block: &[u8]) -> [i8; 32] {
        std::array::from_fn(|i| block[2 + i] as i8)
    }
}

impl Block32 for Iq4Nl {
    const BYTES: usize = 18;
    fn unpack(block: &[u8]) -> [i8; 32] {
        nibbles(&block[2..18]).map(|q| IQ4_VALUES[q as usize])
    }
}

impl Super256 for Q2K {
    const BYTES: usize = 84;
    const HAS_MIN: bool = true;
    const D_AT: usize = 80;

    fn unpack(block: &[u8]) -> [i8; 256] {
        two_bits(&block[16..80]).map(|q| q as i8)
    }

    fn scales(block: &[u8]) -> ([i16; 16], [i16; 16]) {
        let byte = |j: usize| i16::from(block[j]);
        (std::array::from_fn(|j| byte(j) & 15), std::array::from_fn(|j| byte(j) >> 4))
    }
}

impl Super256 for Q3K {
    const BYTES: usize = 110;
    const D_AT: usize = 108;

    fn unpack(block: &[u8]) -> [i8; 256] {
        let low = two_bits(&block[32..96]);
        // A set mask bit means that the third bit is there: without it, 4 is taken off.
        std::array::from_fn(|i| low[i] as i8 - if block[i % 32] >> (i / 32) & 1 == 1 { 0 } else { 4 })
    }

    fn scales(block: &[u8]) -> ([i16; 16], [i16; 16]) {
        let packed = &block[96..108];
        let scale = |j: usize| {
            let low = packed[j % 8] >> (j / 8 * 4) & 15;
            let high = packed[8 + j % 4] >> (j / 4 * 2) & 3;
            i16::from(low | high << 4) - 32
        };
        (std::array::from_fn(scale), [0; 16])
    }
}

impl Super256 for Q4K {
    const BYTES: usize = 144;
    const HAS_MIN: bool = true;
    const D_AT: usize = 0;

    fn unpack(block: &[u8]) -> [i8; 256] {
        four_bits(&block[16..144]).map(|q| q as i8)
    }

    fn scales(block: &[u8]) -> ([i16; 16], [i16; 16]) {
        six_bit_pairs(&block[4..16])
    }
}

impl Super256 for Q5K {
    const BYTES: usize = 176;
    const HAS_MIN: bool = true;
    const D_AT: usize = 0;

    fn unpack(block: &[u8]) -> [i8; 256] {
        let low = four_bits(&block[48..176]);
        std::array::from_fn(|i| (low[i] | (block[16 + i % 32] >> (i / 32) & 1) << 4) as i8)
    }

    fn scales(block: &[u8]) -> ([i16; 16], [i16; 16]) {
        six_bit_pairs(&block[4..16])
    }
}

impl Super256 for Q6K {
    const BYTES: usize = 210;
    const D_AT: usize = 208;

    fn unpack(block: &[u8]) -> [i8; 256] {
        let (low, high) = (&block[..128], &block[128..192]);
        std::array::from_fn(|i| {
            // Halves of 128 elements; within a half, runs of 32 share bytes: 0 and 2, 1 and 3 in `low`, all in `high`.
            let (half, run, l) = (i / 128, i / 32 % 4, i % 32);
            let low = low[half * 64 + run % 2 * 32 + l] >> (run / 2 * 4) & 15;
            let high = high[half * 32 + l] >> (run * 2) & 3;
            (low | high << 4) as i8 - 32
        })
    }

    fn scales(block: &[u8]) -> ([i16; 16], [i16; 16]) {
        (std::array::from_fn(|j| i16::from(block[192 + j] as i8)), [0; 16])
    }
}

impl Super256 for Iq4Xs {
    const BYTES: usize = 136;
    const D_AT: usize = 0;

    fn unpack(block: &[u8]) -> [i8; 256] {
        std::array::from_fn(|i| {
            let code = block[8 + i / 32 * 16 + i % 16] >> (i / 16 % 2 * 4) & 15;
            IQ4_VALUES[code as usize]
        })
    }

    fn scales(block: &[u8]) -> ([i16; 16], [i16; 16]) {
        let high = u16::from_le_bytes([block[2], block[3]]);
        let scale = |j: usize| {
            let run = j / 2; // of 32 elements
            let low = block[4 + run / 2] >> (run % 2 * 4) & 15;
            i16::from(low) + ((high >> (run * 2) & 3) << 4) as i16 - 32
        };
        (std::array::from_fn(scale), [0; 16])
    }
}

/// 64 bytes of four 2-bit codes: halves of 128 elements, runs of 32 elements in them at shifts 0, 2, 4, 6.
fn two_bits(bytes: &[u8]) -> [u8; 256] {
    std::array::from_fn(|i| bytes[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3)
}

/// 128 bytes of two 4-bit codes: of every 32 bytes the low halves make one run of 32 elements, the high ones the next.
fn four_bits(bytes: &[u8]) -> [u8; 256] {
    std::array::from_fn(|i| bytes[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15)
}

/// The 12 bytes of eight 6-bit scales and eight 6-bit minima of `Q4_K` and `Q5_K`, each for 32 elements.
fn six_bit_pairs(packed: &[u8]) -> ([i16; 16], [i16; 16]) {
    let scale = |j: usize| match j / 2 {
        run @ 0..4 => packed[run] & 63,
        run => packed[run + 4] & 15 | packed[run - 4] >> 6 << 4,
    };
    let min = |j: usize| match j / 2 {
        run @ 0..4 => packed[run + 4] & 63,
        run => packed[run + 4] >> 4 | packed[run] >> 6 << 4,
    };
    (std::array::from_fn(|j| i16::from(scale(j))), std::array::from_fn(|j| i16::from(min(j))))
}

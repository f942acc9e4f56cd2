//! The block formats of GGUF tensors, and the row-planar words they are repacked into for the device.
//!
//! A packed row is `[low bits | high bits | sub-scales | block scales]`, each plane in the plain order of the
//! elements, the row padded to whole groups of four words. Units that decode neighbouring groups of eight elements
//! then read neighbouring words, whatever the format.
//!
//! | type         | low | high | offset | sub-scales                     | block scales         | growth |
//! |--------------|-----|------|--------|--------------------------------|----------------------|--------|
//! | F32          | 32  |      |        |                                |                      |        |
//! | F16, BF16    | 16  |      |        |                                |                      |        |
//! | Q4_0, IQ4_NL | 4   |      | 8, -   |                                | f16 d per 32         |        |
//! | Q4_1         | 4   |      | 0      |                                | f16 d, m per 32      |        |
//! | Q5_0         | 4   | 1    | 16     |                                | f16 d per 32         |        |
//! | Q5_1         | 4   | 1    | 0      |                                | f16 d, m per 32      |        |
//! | Q8_0         | 8   |      | 128    |                                | f16 d per 32         |        |
//! | Q2_K         | 2   |      | 0      | scale, min nibbles per 16      | f16 d, dmin per 256  |        |
//! | Q3_K         | 2   | 1    | 4      | byte, offset 128, per 16       | f16 d per 256        | 3.6 %  |
//! | Q4_K         | 4   |      | 0      | scale, min bytes per 32        | f16 d, dmin per 256  | 2.8 %  |
//! | Q5_K         | 4   | 1    | 0      | scale, min bytes per 32        | f16 d, dmin per 256  | 2.3 %  |
//! | Q6_K         | 4   | 2    | 32     | byte, offset 128, per 16       | f16 d per 256        |        |
//! | IQ4_XS       | 4   |      | code   | byte, offset 128, per 32       | f16 d per 256        | 1.5 %  |
//!
//! Padding adds at most 12 bytes to a row (28 to a row of plain floats); with it, rows of 1024 elements or more stay
//! within 5.5 % of their size in the file.
use crate::GpuError;

/// How a matrix's elements are stored in a GGUF file.
#[allow(non_camel_case_types)] // the names GGUF tools print
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each variant is the GGUF type of the same name")]
pub enum BlockType {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    IQ4_NL,
    IQ4_XS,
}

use BlockType::*;

impl BlockType {
    /// Every type, in the order of the declaration.
    pub const ALL: [BlockType; 15] =
        [F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS];

    /// Elements per block; a row holds a whole number of blocks.
    pub const fn block_len(self) -> usize {
        match self {
            F32 | F16 | BF16 => 1,
            Q4_0 | Q4_1 | Q5_0 | Q5_1 | Q8_0 | IQ4_NL => 32,
            Q2_K | Q3_K | Q4_K | Q5_K | Q6_K | IQ4_XS => 256,
        }
    }

    /// Bytes per block in a GGUF file.
    pub const fn block_bytes(self) -> usize {
        match self {
            F32 => 4,
            F16 | BF16 => 2,
            Q4_0 | IQ4_NL => 18,
            Q4_1 => 20,
            Q5_0 => 22,
            Q5_1 => 24,
            Q8_0 => 34,
            Q2_K => 84,
            Q3_K => 110,
            Q4_K => 144,
            Q5_K => 176,
            Q6_K => 210,
            IQ4_XS => 136,
        }
    }

    /// Bytes of a row of `cols` elements in a GGUF file.
    ///
    /// # Errors
    /// [`GpuError::Invalid`] when `cols` is not a whole number of blocks.
    pub fn row_bytes(self, cols: usize) -> Result<usize, GpuError> {
        if cols == 0 || !cols.is_multiple_of(self.block_len()) {
            let len = self.block_len();
            let message =
                format!("a row of {cols} elements is not a whole number of {self:?} blocks of {len}");
            return Err(GpuError::Invalid(message));
        }
        Ok(cols / self.block_len() * self.block_bytes())
    }

    /// The decoding of the packed words.
    pub(crate) const fn format(self) -> Format {
        let (codes, scales) = match self {
            F32 => (Codes::F32, Scales::One),
            F16 => (Codes::F16, Scales::One),
            BF16 => (Codes::BF16, Scales::One),
            Q4_0 => (integers(4, 0, 8), Scales::D32),
            Q4_1 => (integers(4, 0, 0), Scales::Dm32),
            Q5_0 => (integers(4, 1, 16), Scales::D32),
            Q5_1 => (integers(4, 1, 0), Scales::Dm32),
            Q8_0 => (integers(8, 0, 128), Scales::D32),
            Q2_K => (integers(2, 0, 0), Scales::Nibbles16),
            Q3_K => (integers(2, 1, 4), Scales::Byte { len: 16 }),
            Q4_K => (integers(4, 0, 0), Scales::Bytes32),
            Q5_K => (integers(4, 1, 0), Scales::Bytes32),
            Q6_K => (integers(4, 2, 32), Scales::Byte { len: 16 }),
            IQ4_NL => (Codes::Iq4, Scales::D32),
            IQ4_XS => (Codes::Iq4, Scales::Byte { len: 32 }),
        };
        Format { codes, scales }
    }
}

const fn integers(low: u32, high: u32, offset: u32) -> Codes {
    Codes::Integers { low, high, offset }
}

/// The decoding of a packed row: known when a kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Format {
    pub(crate) codes: Codes,
    pub(crate) scales: Scales,
}

/// Codes of elements before they are scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Codes {
    F32,
    F16,
    BF16,
    /// `low | high << low_bits`, less the offset.
    Integers {
        low: u32,
        high: u32,
        offset: u32,
    },
    /// An index into the code book of IQ4.
    Iq4,
}

/// Scales of elements, `w = d * q + m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Scales {
    /// Nothing.
    One,
    /// One f16 per 32 elements.
    D32,
    /// Two f16, `d` and `m`, per 32 elements.
    Dm32,
    /// A byte (offset 128) per `len` elements, times one f16 per 256.
    Byte { len: u32 },
    /// Two bytes per 32 elements, times two f16 per 256: `d * scale`, `-dmin * min`.
    Bytes32,
    /// Two nibbles per 16 elements, times two f16 per 256.
    Nibbles16,
}

impl Scales {
    /// True when there is an `m`.
    pub(crate) const fn has_min(self) -> bool {
        matches!(self, Scales::Dm32 | Scales::Bytes32 | Scales::Nibbles16)
    }
}

impl Format {
    /// Bits of an element in the plane of low bits.
    pub(crate) const fn low_bits(self) -> u32 {
        match self.codes {
            Codes::F32 => 32,
            Codes::F16 | Codes::BF16 => 16,
            Codes::Integers { low, .. } => low,
            Codes::Iq4 => 4,
        }
    }

    /// Bits of an element in the plane of high bits.
    pub(crate) const fn high_bits(self) -> u32 {
        match self.codes {
            Codes::Integers { high, .. } => high,
            _ => 0,
        }
    }

    /// Words of the low bits of eight elements that one load takes; half words count as one.
    pub(crate) const fn load_words(self) -> usize {
        match self.low_bits() {
            32 | 16 => 4,
            8 => 2,
            _ => 1,
        }
    }
}

/// Starts of the planes of a row, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Planes {
    /// Groups of eight elements, the last one padded with zeros.
    pub(crate) groups: usize,
    pub(crate) high: usize,
    pub(crate) sub: usize,
    pub(crate) block: usize,
    /// Words of the row.
    pub(crate) words: usize,
}

impl Planes {
    pub(crate) fn new(ty: BlockType, cols: usize) -> Self {
        let format = ty.format();
        let groups = cols.div_ceil(8);
        let plane = |bits: u32| groups * bits as usize / 4;
        let high = plane(format.low_bits());
        let sub = high + plane(format.high_bits());
        // Elements that share one word of sub-scales, and of block scales.
        let (sub_len, block_len) = match format.scales {
            Scales::One => (None, None),
            Scales::D32 => (None, Some(64)),
            Scales::Dm32 => (None, Some(32)),
            Scales::Byte { len } => (Some(4 * len as usize), Some(512)),
            Scales::Bytes32 | Scales::Nibbles16 => (Some(64), Some(256)),
        };
        let block = sub + sub_len.map_or(0, |len| cols.div_ceil(len));
        let words = block + block_len.map_or(0, |len| cols.div_ceil(len));
        Self { groups, high, sub, block, words: words.next_multiple_of(4) }
    }
}

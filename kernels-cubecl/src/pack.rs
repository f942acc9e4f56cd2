//! GGUF blocks into row-planar words, on the host. The layout is that of [`crate::format`].
use crate::format::{BlockType, Planes};

/// Packs `gguf`, a whole number of rows of `cols` elements, row after row.
///
/// # Panics
/// When `cols` is not a whole number of blocks or `gguf` not a whole number of rows.
pub fn pack_rows(ty: BlockType, cols: usize, gguf: &[u8]) -> Vec<u32> {
    let row_bytes = ty.row_bytes(cols).expect("whole blocks");
    assert!(gguf.len().is_multiple_of(row_bytes), "{} bytes in rows of {row_bytes}", gguf.len());
    let planes = Planes::new(ty, cols);
    let mut words = vec![0; gguf.len() / row_bytes * planes.words];
    for (bytes, words) in gguf.chunks_exact(row_bytes).zip(words.chunks_exact_mut(planes.words)) {
        let mut row = Row::new(ty, &planes, words);
        for (index, block) in bytes.chunks_exact(ty.block_bytes()).enumerate() {
            row.block(ty, index, block);
        }
    }
    words
}

/// The planes of a packed row, to be filled.
struct Row<'a> {
    low: &'a mut [u32],
    high: &'a mut [u32],
    sub: &'a mut [u32],
    block: &'a mut [u32],
    low_bits: u32,
    high_bits: u32,
}

/// ORs `value`, of `bits` bits, into place `index` of a plane of such values.
fn put(plane: &mut [u32], bits: u32, index: usize, value: u32) {
    let per_word = 32 / bits as usize;
    plane[index / per_word] |= value << (index % per_word * bits as usize);
}

fn half(block: &[u8], at: usize) -> u32 {
    u32::from(block[at]) | u32::from(block[at + 1]) << 8
}

impl<'a> Row<'a> {
    fn new(ty: BlockType, planes: &Planes, words: &'a mut [u32]) -> Self {
        let (words, block) = words.split_at_mut(planes.block);
        let (words, sub) = words.split_at_mut(planes.sub);
        let (low, high) = words.split_at_mut(planes.high);
        let format = ty.format();
        Self { low, high, sub, block, low_bits: format.low_bits(), high_bits: format.high_bits() }
    }

    /// Stores block `index` of the row.
    fn block(&mut self, ty: BlockType, index: usize, b: &[u8]) {
        use BlockType::*;
        match ty {
            F32 => self.low[index] = u32::from_le_bytes([b[0], b[1], b[2], b[3]]),
            F16 | BF16 => put(self.low, 16, index, half(b, 0)),
            Q4_0 | IQ4_NL => self.block_32(index, false, b, |i| nibble(&b[2..], i)),
            Q4_1 => self.block_32(index, true, b, |i| nibble(&b[4..], i)),
            Q5_0 => self.block_32(index, false, b, |i| five_bits(&b[2..], i)),
            Q5_1 => self.block_32(index, true, b, |i| five_bits(&b[4..], i)),
            Q8_0 => self.block_32(index, false, b, |i| u32::from(b[2 + i] ^ 0x80)),
            Q2_K => {
                self.codes(index, 256, |i| two_bits(&b[16..80], i));
                self.sub_scales(index, 16, |j| b[j]);
                self.block[index] = half(b, 80) | half(b, 82) << 16;
            }
            Q3_K => {
                self.codes(index, 256, |i| {
                    two_bits(&b[32..96], i) | u32::from(b[i % 32] >> (i / 32) & 1) << 2
                });
                self.sub_scales(index, 16, |j| q3_scale(&b[96..108], j) + 96);
                put(self.block, 16, index, half(b, 108));
            }
            Q4_K => {
                self.codes(index, 256, |i| four_bits(&b[16..], i));
                self.bytes_32(index, b);
            }
            Q5_K => {
                let high = |i: usize| u32::from(b[16 + i % 32] >> (i / 32) & 1);
                self.codes(index, 256, |i| four_bits(&b[48..], i) | high(i) << 4);
                self.bytes_32(index, b);
            }
            Q6_K => {
                self.codes(index, 256, |i| {
                    let low = b[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 0xF;
                    u32::from(low) | two_bits(&b[128..192], i) << 4
                });
                self.sub_scales(index, 16, |j| b[192 + j] ^ 0x80);
                put(self.block, 16, index, half(b, 208));
            }
            IQ4_XS => {
                self.codes(index, 256, |i| nibble(&b[8 + i / 32 * 16..], i % 32));
                self.sub_scales(index, 8, |j| iq4_xs_scale(b, j) + 96);
                put(self.block, 16, index, half(b, 0));
            }
        }
    }

    /// Codes `0..len` of block `index`: their low bits and what is above them.
    fn codes(&mut self, index: usize, len: usize, code: impl Fn(usize) -> u32) {
        for i in 0..len {
            let code = code(i);
            put(self.low, self.low_bits, index * len + i, code & ((1 << self.low_bits) - 1));
            if self.high_bits > 0 {
                put(self.high, self.high_bits, index * len + i, code >> self.low_bits);
            }
        }
    }

    /// Sub-scale bytes `0..count` of block `index`.
    fn sub_scales(&mut self, index: usize, count: usize, byte: impl Fn(usize) -> u8) {
        for j in 0..count {
            put(self.sub, 8, index * count + j, u32::from(byte(j)));
        }
    }

    /// A block of 32 that starts with `d`, and `m` where there is one.
    fn block_32(&mut self, index: usize, has_min: bool, b: &[u8], code: impl Fn(usize) -> u32) {
        self.codes(index, 32, code);
        if has_min {
            self.block[index] = half(b, 0) | half(b, 2) << 16;
        } else {
            put(self.block, 16, index, half(b, 0));
        }
    }

    /// The scales and minima that Q4_K and Q5_K share.
    fn bytes_32(&mut self, index: usize, b: &[u8]) {
        self.sub_scales(index, 16, |j| {
            let (scale, min) = scale_and_min(&b[4..16], j / 2);
            if j % 2 == 0 { scale } else { min }
        });
        self.block[index] = half(b, 0) | half(b, 2) << 16;
    }
}

/// Code `i` of 32: in the low half of byte `i`, or the high half of byte `i - 16`.
fn nibble(codes: &[u8], i: usize) -> u32 {
    u32::from(codes[i % 16] >> (i / 16 * 4) & 0xF)
}

/// Code `i` of `[fifth bits: 4][low: 16]`.
fn five_bits(codes: &[u8], i: usize) -> u32 {
    nibble(&codes[4..], i) | u32::from(codes[i / 8] >> (i % 8) & 1) << 4
}

/// Code `i` of 256: each 32 bytes hold 128, four runs of 32 in ascending bit positions.
fn two_bits(codes: &[u8], i: usize) -> u32 {
    u32::from(codes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3)
}

/// Code `i` of 256: each 32 bytes hold 64, first the low halves, then the high ones.
fn four_bits(codes: &[u8], i: usize) -> u32 {
    u32::from(codes[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 0xF)
}

/// The 6-bit scale `j` of 16 of Q3_K, offset 32.
fn q3_scale(scales: &[u8], j: usize) -> u8 {
    let low = scales[j % 8] >> (j / 8 * 4) & 0xF;
    let high = scales[8 + j % 4] >> (j / 4 * 2) & 3;
    low | high << 4
}

/// The 6-bit scale `j` of 8 of IQ4_XS, offset 32.
fn iq4_xs_scale(block: &[u8], j: usize) -> u8 {
    let low = block[4 + j / 2] >> (j % 2 * 4) & 0xF;
    let high = block[2 + j / 4] >> (j % 4 * 2) & 3;
    low | high << 4
}

/// The 6-bit scale and minimum `j` of 8 from the 12 bytes of Q4_K and Q5_K: the first four whole, the last four with
/// their high bits above the first.
fn scale_and_min(scales: &[u8], j: usize) -> (u8, u8) {
    if j < 4 {
        return (scales[j] & 0x3F, scales[j + 4] & 0x3F);
    }
    let low = scales[j + 4];
    (low & 0xF | scales[j - 4] >> 6 << 4, low >> 4 | scales[j] >> 6 << 4)
}

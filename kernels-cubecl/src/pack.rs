//! GGUF blocks into row-planar words, on the host. The layout is that of [`crate::format`].
use crate::format::{BlockType, Planes};
use std::array;
use std::thread::{self, available_parallelism};

/// Bytes that are worth starting threads for.
const MIN_PARALLEL: usize = 1 << 20;

/// Packs `gguf`, a whole number of rows of `cols` elements, row after row.
///
/// # Panics
/// When `cols` is not a whole number of blocks or `gguf` not a whole number of rows.
pub fn pack_rows(ty: BlockType, cols: usize, gguf: &[u8]) -> Vec<u32> {
    let row_bytes = ty.row_bytes(cols).expect("whole blocks");
    assert!(gguf.len().is_multiple_of(row_bytes), "{} bytes in rows of {row_bytes}", gguf.len());
    let planes = Planes::new(ty, cols);
    let rows = gguf.len() / row_bytes;
    let mut words = vec![0; rows * planes.words];
    let pack = |gguf: &[u8], words: &mut [u32]| {
        for (bytes, words) in gguf.chunks_exact(row_bytes).zip(words.chunks_exact_mut(planes.words)) {
            pack_row(ty, &planes, bytes, words);
        }
    };
    if gguf.len() < MIN_PARALLEL {
        pack(gguf, &mut words);
        return words;
    }
    let share = rows.div_ceil(available_parallelism().map_or(1, usize::from));
    thread::scope(|scope| {
        for (gguf, words) in gguf.chunks(share * row_bytes).zip(words.chunks_mut(share * planes.words)) {
            scope.spawn(|| pack(gguf, words));
        }
    });
    words
}

fn pack_row(ty: BlockType, planes: &Planes, bytes: &[u8], words: &mut [u32]) {
    match ty {
        BlockType::F32 => {
            for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
                *word = u32::from_le_bytes(*bytes);
            }
        }
        BlockType::F16 | BlockType::BF16 => {
            for (word, pair) in words.iter_mut().zip(bytes.chunks(4)) {
                *word = half(pair, 0) | if pair.len() == 4 { half(pair, 2) << 16 } else { 0 };
            }
        }
        _ => {
            let mut row = Row::new(ty, planes, words);
            for (index, block) in bytes.chunks_exact(ty.block_bytes()).enumerate() {
                row.block(ty, index, block);
            }
        }
    }
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

/// ORs `value`, of `BITS` bits, into place `index` of a plane of such values.
fn put<const BITS: usize>(plane: &mut [u32], index: usize, value: u32) {
    plane[index * BITS / 32] |= value << (index * BITS % 32);
}

/// Stores bits `shift..shift + bits` of `codes` from place `start` of a plane of such values, which starts a word.
fn fill(plane: &mut [u32], bits: u32, start: usize, codes: &[u8], shift: u32) {
    let plane = &mut plane[start * bits as usize / 32..];
    match bits {
        1 => fill_words::<1>(plane, codes, shift),
        2 => fill_words::<2>(plane, codes, shift),
        4 => fill_words::<4>(plane, codes, shift),
        _ => fill_words::<8>(plane, codes, shift),
    }
}

fn fill_words<const BITS: usize>(plane: &mut [u32], codes: &[u8], shift: u32) {
    let mask = (1 << BITS) - 1;
    for (word, codes) in plane.iter_mut().zip(codes.chunks_exact(32 / BITS)) {
        let bits = |(i, &code): (usize, &u8)| (u32::from(code) >> shift & mask) << (i * BITS);
        *word = codes.iter().enumerate().map(bits).sum();
    }
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
            F32 | F16 | BF16 => unreachable!("plain floats have no blocks"),
            Q4_0 | IQ4_NL => self.block_32(index, false, b, |i| nibble(&b[2..], i)),
            Q4_1 => self.block_32(index, true, b, |i| nibble(&b[4..], i)),
            Q5_0 => self.block_32(index, false, b, |i| five_bits(&b[2..], i)),
            Q5_1 => self.block_32(index, true, b, |i| five_bits(&b[4..], i)),
            Q8_0 => self.block_32(index, false, b, |i| b[2 + i] ^ 0x80),
            Q2_K => {
                self.codes::<256>(index, |i| two_bits(&b[16..80], i));
                self.sub_scales(index, 16, |j| b[j]);
                self.block[index] = half(b, 80) | half(b, 82) << 16;
            }
            Q3_K => {
                self.codes::<256>(index, |i| two_bits(&b[32..96], i) | (b[i % 32] >> (i / 32) & 1) << 2);
                self.sub_scales(index, 16, |j| q3_scale(&b[96..108], j) + 96);
                put::<16>(self.block, index, half(b, 108));
            }
            Q4_K => {
                self.codes::<256>(index, |i| four_bits(&b[16..], i));
                self.bytes_32(index, b);
            }
            Q5_K => {
                let high = |i: usize| b[16 + i % 32] >> (i / 32) & 1;
                self.codes::<256>(index, |i| four_bits(&b[48..], i) | high(i) << 4);
                self.bytes_32(index, b);
            }
            Q6_K => {
                self.codes::<256>(index, |i| {
                    let low = b[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 0xF;
                    low | two_bits(&b[128..192], i) << 4
                });
                self.sub_scales(index, 16, |j| b[192 + j] ^ 0x80);
                put::<16>(self.block, index, half(b, 208));
            }
            IQ4_XS => {
                self.codes::<256>(index, |i| nibble(&b[8 + i / 32 * 16..], i % 32));
                self.sub_scales(index, 8, |j| iq4_xs_scale(b, j) + 96);
                put::<16>(self.block, index, half(b, 0));
            }
        }
    }

    /// The `LEN` codes of block `index`.
    fn codes<const LEN: usize>(&mut self, index: usize, code: impl Fn(usize) -> u8) {
        let codes: [u8; LEN] = array::from_fn(code);
        fill(self.low, self.low_bits, index * LEN, &codes, 0);
        if self.high_bits > 0 {
            fill(self.high, self.high_bits, index * LEN, &codes, self.low_bits);
        }
    }

    /// Sub-scale bytes `0..count` of block `index`.
    fn sub_scales(&mut self, index: usize, count: usize, byte: impl Fn(usize) -> u8) {
        for j in 0..count {
            put::<8>(self.sub, index * count + j, u32::from(byte(j)));
        }
    }

    /// A block of 32 that starts with `d`, and `m` where there is one.
    fn block_32(&mut self, index: usize, has_min: bool, b: &[u8], code: impl Fn(usize) -> u8) {
        self.codes::<32>(index, code);
        if has_min {
            self.block[index] = half(b, 0) | half(b, 2) << 16;
        } else {
            put::<16>(self.block, index, half(b, 0));
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
fn nibble(codes: &[u8], i: usize) -> u8 {
    codes[i % 16] >> (i / 16 * 4) & 0xF
}

/// Code `i` of `[fifth bits: 4][low: 16]`.
fn five_bits(codes: &[u8], i: usize) -> u8 {
    nibble(&codes[4..], i) | (codes[i / 8] >> (i % 8) & 1) << 4
}

/// Code `i` of 256: each 32 bytes hold 128, four runs of 32 in ascending bit positions.
fn two_bits(codes: &[u8], i: usize) -> u8 {
    codes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3
}

/// Code `i` of 256: each 32 bytes hold 64, first the low halves, then the high ones.
fn four_bits(codes: &[u8], i: usize) -> u8 {
    codes[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 0xF
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

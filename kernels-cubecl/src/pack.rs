//! GGUF blocks into row-planar words, on the host. The layout is that of [`crate::format`].
use crate::format::{Format, Planes, row_bytes};
use ember_formats::{GgmlType, codes};
use std::array;
use std::thread::{self, available_parallelism};

/// Bytes that are worth starting threads for.
const MIN_PARALLEL: usize = 1 << 20;

/// Packs `gguf`, a whole number of rows of `cols` elements, row after row.
///
/// # Panics
/// If `cols` is not a whole number of blocks or `gguf` not a whole number of rows.
pub fn pack_rows(ty: GgmlType, cols: usize, gguf: &[u8]) -> Vec<u32> {
    let row_bytes = row_bytes(ty, cols).expect("whole blocks");
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

fn pack_row(ty: GgmlType, planes: &Planes, bytes: &[u8], words: &mut [u32]) {
    match ty {
        GgmlType::F32 => {
            for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
                *word = u32::from_le_bytes(*bytes);
            }
        }
        GgmlType::F16 | GgmlType::BF16 => {
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
    fn new(ty: GgmlType, planes: &Planes, words: &'a mut [u32]) -> Self {
        let (words, block) = words.split_at_mut(planes.block);
        let (words, sub) = words.split_at_mut(planes.sub);
        let (low, high) = words.split_at_mut(planes.high);
        let format = Format::of(ty);
        Self { low, high, sub, block, low_bits: format.low_bits(), high_bits: format.high_bits() }
    }

    /// Stores block `index` of the row.
    fn block(&mut self, ty: GgmlType, index: usize, b: &[u8]) {
        use GgmlType::*;
        match ty {
            F32 | F16 | BF16 => unreachable!("plain floats have no blocks"),
            Q4_0 => self.codes::<32>(index, |i| codes::q4_0(b, i)),
            Q4_1 => self.codes::<32>(index, |i| codes::q4_1(b, i)),
            Q5_0 => self.codes::<32>(index, |i| codes::q5_0(b, i)),
            Q5_1 => self.codes::<32>(index, |i| codes::q5_1(b, i)),
            Q8_0 => self.codes::<32>(index, |i| codes::q8_0(b, i) ^ 0x80),
            IQ4_NL => self.codes::<32>(index, |i| codes::iq4_nl(b, i)),
            Q2_K => {
                self.codes::<256>(index, |i| codes::q2_k(b, i));
                self.sub_scales(index, 16, |j| b[j]);
            }
            Q3_K => {
                self.codes::<256>(index, |i| codes::q3_k(b, i));
                self.sub_scales(index, 16, |j| codes::q3_k_scale(b, j) + 96);
            }
            Q4_K => {
                self.codes::<256>(index, |i| codes::q4_k(b, i));
                self.scales_and_minima(index, b);
            }
            Q5_K => {
                self.codes::<256>(index, |i| codes::q5_k(b, i));
                self.scales_and_minima(index, b);
            }
            Q6_K => {
                self.codes::<256>(index, |i| codes::q6_k(b, i));
                self.sub_scales(index, 16, |j| codes::q6_k_scale(b, j) as u8 ^ 0x80);
            }
            IQ4_XS => {
                self.codes::<256>(index, |i| codes::iq4_xs(b, i));
                self.sub_scales(index, 8, |j| codes::iq4_xs_scale(b, j) + 96);
            }
        }
        match *ty.scale_offsets() {
            [d, m] => self.block[index] = half(b, d) | half(b, m) << 16,
            [d] => put::<16>(self.block, index, half(b, d)),
            _ => unreachable!("a block has one f16 scale or two"),
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

    /// The scales and minima that Q4_K and Q5_K share.
    fn scales_and_minima(&mut self, index: usize, b: &[u8]) {
        self.sub_scales(index, 16, |j| {
            let (scale, min) = codes::q4_k_scale_and_min(b, j / 2);
            if j % 2 == 0 { scale } else { min }
        });
    }
}

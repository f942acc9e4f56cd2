//! Packed words into floats, eight consecutive elements of a row at a time.
//!
//! No integer is converted (slow on some devices): `0x4B000000 | u` is the float `2^23 + u` for `u < 2^23`, and taking
//! off `2^23 + offset` is exact. Nor is any half type used: see [`halves`](crate::halves).
use crate::format::{Codes, Format, Planes, Scales};
use crate::halves::half_to_float;
use cubecl::prelude::*;
use ember_formats::codes::IQ4_VALUES;

/// Offsets of the planes of a row (see [`Planes`]).
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(crate) struct Layout {
    /// Groups of eight elements in a row.
    pub(crate) groups: u32,
    pub(crate) high: u32,
    pub(crate) sub: u32,
    pub(crate) block: u32,
    /// Words of a row.
    pub(crate) words: u32,
}

impl Planes {
    pub(crate) fn arg<R: Runtime>(&self) -> LayoutLaunch<R> {
        let Self { groups, high, sub, block, words } = *self;
        LayoutLaunch::new(groups as u32, high as u32, sub as u32, block as u32, words as u32)
    }
}

/// `w = d * q + m`, for the elements of a group.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Scale {
    pub(crate) d: f32,
    /// Zero where the format has none.
    pub(crate) m: f32,
}

/// `value - offset` as a float; `value` is below 2^23.
#[cube]
fn integer(value: u32, #[comptime] offset: u32) -> f32 {
    f32::reinterpret(value | 0x4b00_0000) - f32::new(comptime!(8_388_608.0 + offset as f32))
}

/// Byte `index` of a word.
#[cube]
fn byte(word: u32, index: u32) -> u32 {
    (word >> (8 * index)) & 0xff
}

/// Half word `index` of a word.
#[cube]
fn half_word(word: u32, index: u32) -> u32 {
    (word >> (16 * index)) & 0xffff
}

/// The values of the codes of IQ4 with an offset of 128, as the bytes of four words.
const IQ4_BOOK: [u32; 4] = {
    let mut words = [0; 4];
    let mut code = 0;
    while code < 16 {
        words[code / 4] |= ((IQ4_VALUES[code] as i32 + 128) as u32) << (8 * (code % 4));
        code += 1;
    }
    words
};

/// The value of a code of IQ4.
#[cube]
fn iq4_value(code: u32) -> f32 {
    let low = select(code & 4 == 0, comptime!(IQ4_BOOK[0]), comptime!(IQ4_BOOK[1]));
    let high = select(code & 4 == 0, comptime!(IQ4_BOOK[2]), comptime!(IQ4_BOOK[3]));
    integer(byte(select(code & 8 == 0, low, high), code & 3), 128u32)
}

/// The eight elements of `group` before they are scaled. `row` is the first word of the row.
#[cube]
pub(crate) fn codes<W: Size>(
    low: &Array<Vector<u32, W>>,
    words: &Array<u32>,
    row: u32,
    group: u32,
    layout: &Layout,
    #[comptime] codes: Codes,
) -> Sequence<f32> {
    let mut values = Sequence::<f32>::new();
    match comptime!(codes) {
        Codes::F32 => {
            let at = (row / 4 + 2 * group) as usize;
            let (first, second) = (low[at], low[at + 1]);
            #[unroll]
            for i in 0..4usize {
                values.push(f32::reinterpret(first[i]));
            }
            #[unroll]
            for i in 0..4usize {
                values.push(f32::reinterpret(second[i]));
            }
        }
        Codes::F16 => {
            let pairs = low[(row / 4 + group) as usize];
            #[unroll]
            for i in 0..8usize {
                values.push(half_to_float(half_word(pairs[comptime!(i / 2)], comptime!(i as u32 % 2))));
            }
        }
        Codes::BF16 => {
            let pairs = low[(row / 4 + group) as usize];
            #[unroll]
            for i in 0..8usize {
                values.push(f32::reinterpret(
                    half_word(pairs[comptime!(i / 2)], comptime!(i as u32 % 2)) << 16,
                ));
            }
        }
        Codes::Integers { low: 8, offset, .. } => {
            let fours = low[(row / 2 + group) as usize];
            #[unroll]
            for i in 0..8usize {
                values.push(integer(byte(fours[comptime!(i / 4)], comptime!(i as u32 % 4)), offset));
            }
        }
        Codes::Integers { low: bits, high, offset } => {
            let word = if comptime!(bits == 4) {
                low[(row + group) as usize][0]
            } else {
                half_word(low[(row + group / 2) as usize][0], group % 2)
            };
            let above = high_bits(words, row + layout.high, group, high);
            #[unroll]
            for i in 0..8u32 {
                let value = (word >> comptime!(bits * i)) & comptime!((1 << bits) - 1);
                if comptime!(high == 0) {
                    values.push(integer(value, offset));
                } else {
                    let above = (above >> comptime!(high * i)) & comptime!((1 << high) - 1);
                    values.push(integer(value | (above << bits), offset));
                }
            }
        }
        Codes::Iq4 => {
            let word = low[(row + group) as usize][0];
            #[unroll]
            for i in 0..8u32 {
                values.push(iq4_value((word >> comptime!(4 * i)) & 15));
            }
        }
    }
    values
}

/// The high bits of a group, those of its first element lowest.
#[cube]
fn high_bits(words: &Array<u32>, plane: u32, group: u32, #[comptime] bits: u32) -> u32 {
    if comptime!(bits == 0) {
        0u32.runtime()
    } else if comptime!(bits == 1) {
        byte(words[(plane + group / 4) as usize], group % 4)
    } else {
        half_word(words[(plane + group / 2) as usize], group % 2)
    }
}

/// The scale of the elements of `group`.
#[cube]
pub(crate) fn scale(
    words: &Array<u32>,
    row: u32,
    group: u32,
    layout: &Layout,
    #[comptime] scales: Scales,
) -> Scale {
    let sub = row + layout.sub;
    let block = row + layout.block;
    let zero = f32::new(0.0);
    match comptime!(scales) {
        Scales::One => Scale { d: f32::new(1.0), m: zero },
        Scales::D32 => {
            let d = half_to_float(half_word(words[(block + group / 8) as usize], (group / 4) % 2));
            Scale { d, m: zero }
        }
        Scales::Dm32 => {
            let pair = words[(block + group / 4) as usize];
            Scale { d: half_to_float(pair), m: half_to_float(pair >> 16) }
        }
        Scales::Byte { len } => {
            let index = group / comptime!(len / 8);
            let d = half_to_float(half_word(words[(block + group / 64) as usize], (group / 32) % 2));
            let factor = integer(byte(words[(sub + index / 4) as usize], index % 4), 128u32);
            Scale { d: d * factor, m: zero }
        }
        Scales::Bytes32 => {
            let pair = words[(block + group / 32) as usize];
            let factors = half_word(words[(sub + group / 8) as usize], (group / 4) % 2);
            let min = half_to_float(pair >> 16) * integer(byte(factors, 1), 0u32);
            Scale { d: half_to_float(pair) * integer(byte(factors, 0), 0u32), m: -min }
        }
        Scales::Nibbles16 => {
            let pair = words[(block + group / 32) as usize];
            let factors = byte(words[(sub + group / 8) as usize], (group / 2) % 4);
            let min = half_to_float(pair >> 16) * integer(factors >> 4, 0u32);
            Scale { d: half_to_float(pair) * integer(factors & 15, 0u32), m: -min }
        }
    }
}

/// The eight elements of `group`, as the reference rounds them.
#[cube]
pub(crate) fn weights<W: Size>(
    low: &Array<Vector<u32, W>>,
    words: &Array<u32>,
    row: u32,
    group: u32,
    layout: &Layout,
    #[comptime] format: Format,
) -> Sequence<f32> {
    let codes = codes::<W>(low, words, row, group, layout, comptime!(format.codes));
    let scale = scale(words, row, group, layout, comptime!(format.scales));
    let mut values = Sequence::<f32>::new();
    #[unroll]
    for i in 0..8usize {
        if comptime!(format.scales == Scales::One) {
            values.push(codes[i]);
        } else if comptime!(format.scales.has_min()) {
            values.push(codes[i] * scale.d + scale.m);
        } else {
            values.push(codes[i] * scale.d);
        }
    }
    values
}

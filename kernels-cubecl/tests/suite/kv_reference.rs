//! What a stored key or value reads back as, and pages as the host sees them.
use ember_kernels_cubecl::kv::{KvLayout, KvType};
use ember_test_support::definition;
use half::{bf16, f16};

/// Words of a row of `layout` that stores `head`.
pub fn stored_words(head: &[f32], layout: KvLayout) -> Vec<u32> {
    let pairs = |bits: Vec<u16>| -> Vec<u32> {
        bits.chunks(2).map(|pair| u32::from(pair[0]) | u32::from(*pair.get(1).unwrap_or(&0)) << 16).collect()
    };
    match layout.ty {
        KvType::F32 => head.iter().map(|x| x.to_bits()).collect(),
        KvType::F16 => pairs(head.iter().map(|&x| f16::from_f32(x).to_bits()).collect()),
        KvType::BF16 => pairs(head.iter().map(|&x| bf16::from_f32(x).to_bits()).collect()),
        KvType::Q8_0 => {
            let (steps, codes): (Vec<f16>, Vec<[i8; 32]>) = definition::q8_0(head).into_iter().unzip();
            let bytes = codes.as_flattened().as_chunks().0.iter();
            let words = bytes.map(|word: &[i8; 4]| u32::from_le_bytes(word.map(|code| code as u8)));
            words.chain(pairs(steps.into_iter().map(f16::to_bits).collect())).collect()
        }
    }
}

/// The head that a row of words holds.
pub fn read_row(words: &[u32], layout: KvLayout) -> Vec<f32> {
    let halves = |words: &[u32]| -> Vec<u16> {
        words.iter().flat_map(|&word| [word as u16, (word >> 16) as u16]).collect()
    };
    let dim = layout.head_dim;
    match layout.ty {
        KvType::F32 => words.iter().map(|&word| f32::from_bits(word)).collect(),
        KvType::F16 => halves(words).into_iter().map(|bits| f16::from_bits(bits).to_f32()).collect(),
        KvType::BF16 => halves(words).into_iter().map(|bits| bf16::from_bits(bits).to_f32()).collect(),
        KvType::Q8_0 => {
            let steps = halves(&words[dim / 4..]);
            let bytes = words[..dim / 4].iter().flat_map(|word| word.to_le_bytes());
            let value =
                |(i, byte): (usize, u8)| f32::from(byte as i8) * f16::from_bits(steps[i / 32]).to_f32();
            bytes.enumerate().map(value).collect()
        }
    }
}

/// The first word of a head's row at a slot.
pub fn row_start(slot: u32, head: usize, layout: KvLayout) -> usize {
    let (block, offset) = (slot as usize / layout.block_len, slot as usize % layout.block_len);
    ((block * layout.n_kv_heads + head) * layout.block_len + offset) * layout.row_words()
}

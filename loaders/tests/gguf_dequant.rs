//! Dequantization against gguf-py, to the last bit (fixture by reference/gguf_dequant.py).

use std::path::PathBuf;

use ember_loaders::gguf::{GgmlType, Gguf, dequantize};

fn fixture() -> Gguf {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gguf/dequant.gguf");
    Gguf::open(path).unwrap()
}

/// The bits of our values of `blocks`, and of gguf-py's.
fn both(gguf: &Gguf, ty: GgmlType, blocks: &[u8]) -> (Vec<u32>, Vec<u32>) {
    let expected = gguf.tensor(&format!("{ty}.expected")).unwrap();
    let mut ours = vec![f32::NAN; expected.n_elements()];
    dequantize(ty, blocks, &mut ours);
    let expected_bytes = gguf.bytes(expected);
    let expected = expected_bytes.as_chunks().0.iter().map(|&b| u32::from_le_bytes(b)).collect();
    (ours.into_iter().map(f32::to_bits).collect(), expected)
}

#[test]
fn every_type_equals_gguf_py_to_the_last_bit() {
    let gguf = fixture();
    for ty in GgmlType::ALL {
        let blocks = gguf.tensor(&format!("{ty}.blocks")).unwrap();
        assert_eq!(blocks.ty, ty);
        let (ours, expected) = both(&gguf, ty, &gguf.bytes(blocks));
        assert!(ours.len() >= 64, "{ty}: {} weights", ours.len());
        assert_eq!(ours.len(), expected.len());
        for (i, (ours, expected)) in ours.iter().zip(&expected).enumerate() {
            assert_eq!(ours, expected, "{ty}: weight {i} is {}", f32::from_bits(*ours));
        }
    }
}

/// The control of the test above: each bit of a block matters to the comparison.
#[test]
fn every_bit_of_a_block_is_read() {
    let gguf = fixture();
    for ty in GgmlType::ALL {
        let blocks = gguf.bytes(gguf.tensor(&format!("{ty}.blocks")).unwrap()).to_vec();
        for bit in 0..8 * ty.block_bytes() {
            let mut changed = blocks.clone();
            // In all blocks at once: under a zero scale of one block, some of its codes mean nothing.
            changed.chunks_exact_mut(ty.block_bytes()).for_each(|block| block[bit / 8] ^= 1 << (bit % 8));
            let (ours, expected) = both(&gguf, ty, &changed);
            assert!(ours != expected, "{ty}: bit {bit} has no effect");
        }
    }
}

#[test]
#[should_panic(expected = "not a whole number of Q8_0 blocks")]
fn part_of_a_block_panics() {
    dequantize(GgmlType::Q8_0, &[0; 33], &mut [0.0; 32]);
}

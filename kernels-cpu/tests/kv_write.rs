//! What a cache holds after a write.

mod attention_support;

use attention_support::KV_TYPES;
use ember_kernels_cpu::kv::{KvLayout, KvLayoutError, KvType, kv_write, kv_write_with};
use ember_kernels_cpu::{Isa, ThreadPool};
use ember_test_support::Random;
use half::{bf16, f16};

/// Every f16, the midpoints between neighbours, and a step to either side of those.
fn f16_borders() -> Vec<f32> {
    let mut x = Vec::new();
    for bits in 0..0x7c00u16 {
        let (low, high) = (f16::from_bits(bits).to_f32(), f16::from_bits(bits + 1).to_f32());
        let high = if high.is_finite() { high } else { 65536.0 };
        let middle = (low + high) / 2.0;
        x.extend(
            [low, middle, middle.next_down(), middle.next_up()].map(|x| if bits % 2 == 0 { x } else { -x }),
        );
    }
    x.extend([f32::INFINITY, f32::NEG_INFINITY, 1e9, -1e9, 1e-30, -0.0, 0.0, f32::MIN_POSITIVE]);
    x.truncate(x.len() / 64 * 64);
    x
}

/// Rows of 64 written to slots 0.. on every instruction set.
fn written(ty: KvType, head_dim: usize, k: &[f32]) -> Vec<Vec<u8>> {
    let layout = KvLayout::new(ty, 16, 1, head_dim).unwrap();
    let tokens = k.len() / head_dim;
    let size = tokens.div_ceil(16) * layout.block_bytes();
    let slots: Vec<u32> = (0..tokens as u32).collect();
    let isas = Isa::ALL.into_iter().filter(|isa| isa.is_available());
    isas.map(|isa| {
        let (mut k_pool, mut v_pool) = (vec![0; size], vec![0; size]);
        let pool = ThreadPool::new(2);
        kv_write_with(isa, &pool, &layout, [&mut k_pool, &mut v_pool], [k, k], &slots);
        assert_eq!(k_pool, v_pool);
        k_pool.truncate(tokens * layout.row_bytes());
        k_pool
    })
    .collect()
}

#[test]
fn f16_is_rounded_to_nearest_even() {
    let x = f16_borders();
    let expected: Vec<u8> = x.iter().flat_map(|x| f16::from_f32(*x).to_ne_bytes()).collect();
    for pool in written(KvType::F16, 64, &x) {
        assert!(pool == expected);
    }
    let odd: Vec<f32> = x[..20 * 99].to_vec();
    for pool in written(KvType::F16, 20, &odd) {
        assert!(pool == expected[..2 * odd.len()]);
    }
}

#[test]
fn bf16_is_rounded_to_nearest_even() {
    // Numbers on both sides of every border, the borders themselves, and what is not finite.
    let bits = (0..0x300u32).map(|i| 0x3f7f_fe80 + 0x7f * i).chain([
        0x3f80_8000,
        0x3f81_8000,
        0x7f80_0000,
        0x7f7f_ffff,
    ]);
    let mut x: Vec<f32> = bits.map(f32::from_bits).collect();
    x.extend(Random::new(3).bell(64 * 20 - x.len() % 64));
    x.truncate(x.len() / 64 * 64);
    let expected: Vec<u8> = x.iter().flat_map(|x| bf16::from_f32(*x).to_ne_bytes()).collect();
    for pool in written(KvType::BF16, 64, &x) {
        assert!(pool == expected);
    }
}

#[test]
fn f32_is_kept() {
    let x = Random::new(1).bell(64 * 10);
    let expected: Vec<u8> = x.iter().flat_map(|x| x.to_ne_bytes()).collect();
    for pool in written(KvType::F32, 64, &x) {
        assert_eq!(pool, expected);
    }
}

/// Blocks and their quantization by gguf-py: `tests/reference/q8_0_blocks.py`.
#[test]
fn q8_0_equals_gguf_py() {
    let fixture = include_bytes!("fixtures/q8_0_blocks.bin");
    let blocks = fixture.len() / (128 + 34);
    assert!(blocks >= 64 && fixture.len() == blocks * (128 + 34));
    let (floats, expected) = fixture.split_at(128 * blocks);
    let x: Vec<f32> = floats.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x)).collect();
    for pool in written(KvType::Q8_0, 64, &x) {
        for (index, (actual, expected)) in pool.chunks(34).zip(expected.chunks(34)).enumerate() {
            assert_eq!(actual, expected, "block {index}");
        }
    }
}

/// Only the slots named change, each head in its own place.
#[test]
fn rows_land_in_their_slots() {
    let mut random = Random::new(2);
    for ty in KV_TYPES {
        let layout = KvLayout::new(ty, 4, 3, 32).unwrap();
        let row = layout.row_bytes();
        let blocks = 5;
        for tokens in [1, 7, 200] {
            let (k, v) = (random.bell(tokens * 96), random.bell(tokens * 96));
            // The last token to write a slot wins.
            let slots: Vec<u32> = (0..tokens).map(|t| ((t * 7 + 3) % 20) as u32).collect();
            let mut pools =
                [vec![0xaa; blocks * layout.block_bytes()], vec![0xaa; blocks * layout.block_bytes()]];
            let mut expected = pools.clone();
            for (expected, x) in expected.iter_mut().zip([&k, &v]) {
                for (t, slot) in slots.iter().enumerate() {
                    for head in 0..3 {
                        let x = &x[(t * 3 + head) * 32..][..32];
                        let place = ((*slot as usize / 4 * 3 + head) * 4 + *slot as usize % 4) * row;
                        expected[place..place + row].copy_from_slice(&written(ty, 32, x)[0]);
                    }
                }
            }
            let [k_pool, v_pool] = &mut pools;
            kv_write(&layout, k_pool, v_pool, &k, &v, &slots);
            assert!(pools == expected, "{ty:?}, {tokens} tokens");
        }
    }
}

#[test]
fn impossible_layouts_are_refused() {
    assert_eq!(KvLayout::new(KvType::Q8_0, 32, 8, 80), Err(KvLayoutError::Q8HeadDim(80)));
    let message = KvLayoutError::Q8HeadDim(80).to_string();
    assert!(message.contains("80") && message.contains("f16"), "{message}");
    for [block_len, n_kv_heads, head_dim] in [[0, 1, 32], [32, 0, 32], [32, 1, 0]] {
        let error = KvLayout::new(KvType::F16, block_len, n_kv_heads, head_dim);
        assert_eq!(error, Err(KvLayoutError::Empty { block_len, n_kv_heads, head_dim }));
    }
}

#[test]
#[should_panic(expected = "piece")]
fn a_slot_outside_of_the_pool_panics() {
    let layout = KvLayout::new(KvType::F32, 4, 1, 8).unwrap();
    let (mut k, mut v) = (vec![0; layout.block_bytes()], vec![0; layout.block_bytes()]);
    kv_write(&layout, &mut k, &mut v, &[0.0; 8], &[0.0; 8], &[4]);
}

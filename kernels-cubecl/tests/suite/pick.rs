//! The largest logits of a row, against a sort on the host.
use crate::device::{gpu, upload};
use ember_kernels_cubecl::pick::{NO_TOKEN, top_k};
use ember_test_support::random;

/// The (token, bits) pairs that a sort finds: NaN first, then descending, the lower token among equals.
fn expected(row: &[f32], k: usize) -> Vec<(u32, u32)> {
    let mut tokens: Vec<u32> = (0..row.len() as u32).collect();
    let rank = |&token: &u32| {
        let logit = row[token as usize];
        // A positive NaN is the largest of the total order.
        if logit.is_nan() { f32::NAN.abs() } else { logit }
    };
    // The sort is stable: equal logits stay in the order of their tokens.
    tokens.sort_by(|a, b| rank(b).total_cmp(&rank(a)));
    let mut pairs: Vec<_> = tokens.iter().map(|&token| (token, row[token as usize].to_bits())).collect();
    pairs.resize(row.len().max(k), (NO_TOKEN, f32::NEG_INFINITY.to_bits()));
    pairs.truncate(k);
    pairs
}

fn check(rows: &[Vec<f32>], k: usize) {
    let gpu = gpu();
    let picked = top_k(&gpu, &upload(&gpu, &rows.concat()), rows.len(), k);
    assert_eq!(picked.len, rows.len() * k * 2);
    let words = gpu.read(&picked).unwrap();
    for (row, found) in rows.iter().zip(words.chunks_exact(2 * k)) {
        let found: Vec<_> = found.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        assert_eq!(found, expected(row, k), "vocabulary {}, k {k}", row.len());
    }
}

#[test]
fn the_largest_logits_come_sorted() {
    for k in [1, 2, 40, 64] {
        for (vocab, rows) in [(1, 1), (7, 3), (1000, 2), (2047, 1), (2048, 1), (151_936, 3)] {
            let rows: Vec<_> = (0..rows).map(|row| random(row, vocab)).collect();
            check(&rows, k);
        }
    }
    check(&[random(9, 262_144)], 64);
}

#[test]
fn equal_logits_come_in_the_order_of_their_tokens() {
    for k in [1, 2, 40, 64] {
        // Five values; one value; two candidates far apart.
        let mut apart = vec![-1.0; 100_000];
        apart[77_000] = 3.5;
        apart[99_999] = 3.5;
        // The sum turns -0 into 0.
        let coarse = random(3, 100_000).iter().map(|x| (2.0 * x).round() + 0.0).collect();
        check(&[coarse, vec![0.25; 100_000], apart], k);
    }
}

#[test]
fn minus_infinity_ranks_last_and_fills_up() {
    let mut sparse = vec![f32::NEG_INFINITY; 5000];
    sparse[4321] = -3e38;
    sparse[12] = -1e-40;
    check(&[sparse, vec![f32::NEG_INFINITY; 5000]], 40);
    check(&[vec![f32::NEG_INFINITY, 1.0, f32::NEG_INFINITY]], 64);
}

#[test]
fn what_is_not_a_number_comes_first() {
    let gpu = gpu();
    for (at, bits) in [(0, 0x7fc0_0000), (4999, 0xffc0_0000u32), (2500, 0xff80_0001)] {
        let mut row = random(5, 5000);
        row[17] = f32::INFINITY;
        row[at] = f32::from_bits(bits);
        for k in [1, 3] {
            let words = gpu.read(&top_k(&gpu, &upload(&gpu, &row), 1, k)).unwrap();
            assert_eq!(words[0], at as u32);
            assert!(f32::from_bits(words[1]).is_nan());
            if k == 3 {
                assert_eq!((words[2], words[3]), (17, f32::INFINITY.to_bits()));
            }
        }
    }
}

#[test]
fn zeros_of_either_sign_are_equal() {
    let gpu = gpu();
    let words = gpu.read(&top_k(&gpu, &upload(&gpu, &[-1.0, -0.0, 0.0]), 1, 3)).unwrap();
    assert_eq!(words, [1, 0, 2, 0, 0, (-1f32).to_bits()]);
}

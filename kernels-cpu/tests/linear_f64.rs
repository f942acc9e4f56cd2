//! Products against f64: GGUF's own dequantized weights times the rounded activations.

mod linear_support;

use ember_formats::dequantize;
use ember_kernels_cpu::{GgmlType, Isa, Matrix, ThreadPool, linear_with};
use ember_test_support::{Random, definition, distance};
use linear_support::activations;

/// Largest L2 distance from f64, relative to the length of the result.
const TOLERANCE: f64 = 1e-5;

/// Activations as the kernels round them: int8 in blocks as long as the weights', ties to even, none for floats.
fn rounded(ty: GgmlType, x: &[f32]) -> Vec<f64> {
    if ty.block_len() == 1 {
        return x.iter().map(|&x| f64::from(x)).collect();
    }
    let round = |block: &[f32]| {
        let max = block.iter().fold(0f32, |max, x| max.max(x.abs()));
        let (scale, inverse) = (max / 127.0, 127.0 / max);
        block
            .iter()
            .map(|x| f64::from((x * inverse).round_ties_even()) * f64::from(scale))
            .collect::<Vec<_>>()
    };
    x.chunks(ty.block_len()).flat_map(round).collect()
}

#[test]
fn products_equal_f64() {
    let pool = ThreadPool::new(1);
    let mut random = Random::new(5);
    for ty in GgmlType::ALL {
        for (rows, cols) in [(16, 256), (24, 1024), (8, 9728)] {
            let bytes = linear_support::matrix(&mut random, ty, rows, cols);
            let matrix = Matrix::new(ty, rows, cols, &bytes).unwrap();
            let mut weights = vec![0f32; rows * cols];
            dequantize(ty, &bytes, &mut weights);
            let x = activations(&mut random, cols);
            let x_rounded = rounded(ty, &x);
            let expected = definition::product(&x_rounded, &weights, cols);
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                let mut out = vec![0.0; rows];
                linear_with(isa, &pool, &x, 1, &[matrix], &mut [&mut out]);
                let distance = distance(&out, &expected);
                assert!(distance < TOLERANCE, "{isa:?} {ty:?} {rows}x{cols}: {distance:e}");
            }
        }
    }
}

/// The comparison above can fail: one code off by one is far outside of it.
#[test]
fn a_changed_weight_is_seen() {
    let (pool, ty, cols) = (ThreadPool::new(1), GgmlType::Q4_0, 256);
    let mut random = Random::new(6);
    let mut bytes = linear_support::matrix(&mut random, ty, 8, cols);
    let mut weights = vec![0f32; 8 * cols];
    dequantize(ty, &bytes, &mut weights);
    bytes[2 + 18 * 3] ^= 1;
    let x = activations(&mut random, cols);
    let x_rounded = rounded(ty, &x);
    let expected = definition::product(&x_rounded, &weights, cols);
    let mut out = vec![0.0; 8];
    let changed = Matrix::new(ty, 8, cols, &bytes).unwrap();
    linear_with(Isa::Scalar, &pool, &x, 1, &[changed], &mut [&mut out]);
    assert!(distance(&out, &expected) > TOLERANCE);
}

//! Every kernel of every instruction set gives the bits of its scalar twin, whatever the batch and the threads.

mod linear_support;

use ember_kernels_cpu::{GgmlType, Isa, Matrix, ThreadPool, linear_with};
use ember_test_support::Random;
use linear_support::{activations, constant_matrix};

/// The product as bits, so that NaN equals NaN.
fn product(isa: Isa, pool: &ThreadPool, x: &[f32], m: usize, matrix: Matrix<'_>) -> Vec<u32> {
    let mut out = vec![f32::from_bits(0x7fc0_1234); m * matrix.rows()]; // an element never written shows
    linear_with(isa, pool, x, m, &[matrix], &mut [&mut out]);
    out.into_iter().map(canonical_bits).collect()
}

/// NaNs differ in their payload between instruction sets: any of them stands for all.
fn canonical_bits(y: f32) -> u32 {
    if y.to_bits() == 0x7fc0_1234 {
        panic!("an element was not written")
    }
    if y.is_nan() { f32::NAN.to_bits() } else { y.to_bits() }
}

fn vector_isas() -> Vec<Isa> {
    let available: Vec<Isa> =
        Isa::ALL.into_iter().filter(|isa| *isa != Isa::Scalar && isa.is_available()).collect();
    if available.is_empty() {
        eprintln!("only the scalar kernels run here: nothing to compare");
    }
    available
}

/// Rows of one block, odd numbers of blocks, and for floats lengths that are no multiple of a vector.
fn lengths(ty: GgmlType) -> Vec<usize> {
    match ty.block_len() {
        1 => vec![1, 7, 8, 9, 31, 64, 100, 257],
        len => [1, 2, 3, 5, 8].map(|blocks| blocks * len).to_vec(),
    }
}

#[test]
fn every_isa_equals_scalar() {
    let pool = ThreadPool::new(1);
    let mut random = Random::new(1);
    for ty in GgmlType::ALL {
        for cols in lengths(ty) {
            for rows in [1, 7, 8, 9, 24] {
                let bytes = linear_support::matrix(&mut random, ty, rows, cols);
                let matrix = Matrix::new(ty, rows, cols, &bytes).unwrap();
                for m in [1, 2, 3, 8, 11] {
                    let x = activations(&mut random, m * cols);
                    let expected = product(Isa::Scalar, &pool, &x, m, matrix);
                    for isa in vector_isas() {
                        assert_eq!(
                            product(isa, &pool, &x, m, matrix),
                            expected,
                            "{isa:?} {ty:?} {rows}x{cols} m={m}"
                        );
                    }
                }
            }
        }
    }
}

/// More of everything than the kernels take at once: elements, panels, tokens of a block, tokens of a call.
#[test]
fn large_products_equal_scalar() {
    let mut random = Random::new(3);
    let sizes: [(usize, usize, usize); 5] =
        [(72, 600, 5), (9, 1100, 101), (8, 64, 1024), (8, 64, 1025), (9, 32, 2100)];
    for ty in GgmlType::ALL {
        for (rows, cols, m) in sizes {
            let cols = match ty.block_len() {
                1 => cols,
                len => cols.next_multiple_of(len),
            };
            let bytes = linear_support::matrix(&mut random, ty, rows, cols);
            let matrix = Matrix::new(ty, rows, cols, &bytes).unwrap();
            let x = activations(&mut random, m * cols);
            let expected = product(Isa::Scalar, &ThreadPool::new(2), &x, m, matrix);
            for isa in vector_isas() {
                for threads in [1, 3] {
                    let same = product(isa, &ThreadPool::new(threads), &x, m, matrix) == expected;
                    assert!(same, "{isa:?} {ty:?} {rows}x{cols} m={m} on {threads}");
                }
            }
        }
    }
}

/// The largest integers that each format and the activations can hold meet everywhere: no sum may overflow.
#[test]
fn extreme_codes_equal_scalar() {
    let pool = ThreadPool::new(1);
    for ty in GgmlType::ALL.into_iter().filter(|ty| ty.block_len() > 1) {
        let cols = 2 * ty.block_len();
        for code in [0x00, 0x01, 0x0f, 0x7f, 0x80, 0x81, 0xf0, 0xfe, 0xff] {
            let bytes = constant_matrix(ty, 9, cols, code);
            let matrix = Matrix::new(ty, 9, cols, &bytes).unwrap();
            for pattern in [[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]] {
                for m in [1, 8] {
                    let x: Vec<f32> = (0..m * cols).map(|i| pattern[i % 2]).collect();
                    let expected = product(Isa::Scalar, &pool, &x, m, matrix);
                    for isa in vector_isas() {
                        assert_eq!(
                            product(isa, &pool, &x, m, matrix),
                            expected,
                            "{isa:?} {ty:?} code {code:#x} m={m}"
                        );
                    }
                }
            }
        }
    }
}

/// The integers come out exactly: all-ones activations round to 127 with the scale 1/127.
#[test]
fn smallest_q8_0_weight_is_not_clipped() {
    let bytes = constant_matrix(GgmlType::Q8_0, 8, 32, 0x80);
    let matrix = Matrix::new(GgmlType::Q8_0, 8, 32, &bytes).unwrap();
    let pool = ThreadPool::new(1);
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        for m in [1, 8] {
            let mut out = vec![0.0; 8 * m];
            linear_with(isa, &pool, &vec![127.0; 32 * m], m, &[matrix], &mut [&mut out]);
            assert_eq!(out, vec![-128.0 * 127.0 * 32.0; 8 * m], "{isa:?} m={m}");
        }
    }
}

#[test]
fn odd_activations_equal_scalar() {
    let pool = ThreadPool::new(1);
    let mut random = Random::new(2);
    let odd = [0.0, -0.0, 1e-45, -1e-40, 1e-38, 3e38, f32::MAX, f32::MIN_POSITIVE, f32::NAN, f32::INFINITY];
    for ty in GgmlType::ALL {
        let cols = 2 * ty.block_len().max(16);
        let bytes = linear_support::matrix(&mut random, ty, 8, cols);
        let matrix = Matrix::new(ty, 8, cols, &bytes).unwrap();
        for value in odd {
            // Alone among zeros, everywhere, and among ordinary numbers.
            let mut alone = vec![0.0; cols];
            alone[cols / 2 + 3] = value;
            let mut among = activations(&mut random, cols);
            among[5] = value;
            for x in [alone, vec![value; cols], among] {
                let x = x.repeat(8);
                for m in [1, 8] {
                    let expected = product(Isa::Scalar, &pool, &x[..m * cols], m, matrix);
                    for isa in vector_isas() {
                        let actual = product(isa, &pool, &x[..m * cols], m, matrix);
                        assert_eq!(actual, expected, "{isa:?} {ty:?} {value:e} m={m}");
                    }
                }
            }
        }
    }
}

#[test]
fn not_a_number_stays_in_its_token() {
    let mut random = Random::new(3);
    let pool = ThreadPool::new(1);
    for ty in GgmlType::ALL {
        let cols = 2 * ty.block_len().max(16);
        let bytes = linear_support::matrix(&mut random, ty, 8, cols);
        let matrix = Matrix::new(ty, 8, cols, &bytes).unwrap();
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                for m in [3, 9] {
                    let mut x = activations(&mut random, m * cols);
                    x[cols + 1] = bad;
                    let mut out = vec![0.0; m * 8];
                    linear_with(isa, &pool, &x, m, &[matrix], &mut [&mut out]);
                    for (t, y) in out.chunks(8).enumerate() {
                        assert!(
                            y.iter().all(|y| y.is_finite() == (t != 1)),
                            "{isa:?} {ty:?} {bad} token {t}: {y:?}"
                        );
                    }
                }
            }
        }
    }
}

/// The same bits for every batch size, place in a batch, and number of threads, and for matrices together or alone.
#[test]
fn batch_equals_single() {
    let mut random = Random::new(4);
    let pools = [1, 2, 5].map(ThreadPool::new);
    for ty in GgmlType::ALL {
        let cols = 256;
        let k_quant = linear_support::matrix(&mut random, GgmlType::Q6_K, 40, cols);
        let c = Matrix::new(GgmlType::Q6_K, 40, cols, &k_quant).unwrap();
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            // The portable kernels are slow; for the others, enough rows for several tasks.
            let (rows, m) = if isa == Isa::Scalar { (20, 9) } else { (1000, 37) };
            let bytes = [rows, 75].map(|rows| linear_support::matrix(&mut random, ty, rows, cols));
            let a = Matrix::new(ty, rows, cols, &bytes[0]).unwrap();
            let b = Matrix::new(ty, 75, cols, &bytes[1]).unwrap();
            let x = activations(&mut random, m * cols);
            let singles = [a, b, c].map(|matrix| {
                let tokens = x.chunks(cols).flat_map(|x| product(isa, &pools[0], x, 1, matrix));
                tokens.collect::<Vec<u32>>()
            });
            for pool in &pools {
                for chunk in [1, 2, 3, 4, 8, 11, 16, m] {
                    let mut batches = [vec![], vec![], vec![]];
                    for x in x.chunks(chunk * cols) {
                        let m = x.len() / cols;
                        let mut out = [a, b, c].map(|matrix| vec![0.0; m * matrix.rows()]);
                        let [out_a, out_b, out_c] = &mut out;
                        linear_with(isa, pool, x, m, &[a, b, c], &mut [out_a, out_b, out_c]);
                        for (batch, out) in batches.iter_mut().zip(out) {
                            batch.extend(out.into_iter().map(f32::to_bits));
                        }
                    }
                    assert!(
                        batches == singles,
                        "{isa:?} {ty:?} in chunks of {chunk} on {} threads",
                        pool.threads()
                    );
                }
            }
        }
    }
}

#[test]
fn empty_products_are_empty_or_zero() {
    let pool = ThreadPool::new(2);
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        for ty in GgmlType::ALL {
            let no_rows = Matrix::new(ty, 0, 256, &[]).unwrap();
            linear_with(isa, &pool, &[1.0; 256], 1, &[no_rows], &mut [&mut []]);
            let one = vec![0; bytes_of_one(ty)];
            let matrix = Matrix::new(ty, 1, 256, &one).unwrap();
            linear_with(isa, &pool, &[], 0, &[matrix], &mut [&mut []]);
            let no_cols = Matrix::new(ty, 3, 0, &[]).unwrap();
            for m in [1, 5] {
                let mut out = vec![1.0; 3 * m];
                linear_with(isa, &pool, &[], m, &[no_cols], &mut [&mut out]);
                assert_eq!(out, vec![0.0; 3 * m]);
            }
        }
        linear_with(isa, &pool, &[], 0, &[], &mut []);
    }
}

fn bytes_of_one(ty: GgmlType) -> usize {
    linear_support::bytes_of(ty, 1, 256)
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    use ember_kernels_cpu::MatrixError;
    let ty = GgmlType::Q4_K;
    assert_eq!(Matrix::new(ty, 1, 255, &[]).unwrap_err(), MatrixError::Cols { ty, cols: 255 });
    let error = Matrix::new(ty, 2, 256, &[0; 287]).unwrap_err();
    assert_eq!(error.to_string(), "2 x 256 of Q4_K take 288 bytes, not 287");
    let error = Matrix::new(ty, usize::MAX, 512, &[]).unwrap_err();
    assert!(matches!(error, MatrixError::Length { expected: usize::MAX, .. }));
}

#[test]
#[should_panic(expected = "x is [m, cols] = [2, 32]")]
fn short_activations_are_refused() {
    let bytes = constant_matrix(GgmlType::Q8_0, 1, 32, 1);
    let matrix = Matrix::new(GgmlType::Q8_0, 1, 32, &bytes).unwrap();
    linear_with(Isa::Scalar, &ThreadPool::new(1), &[0.0; 32], 2, &[matrix], &mut [&mut [0.0; 2]]);
}

//! Products with packed matrices against sums in f64.
use crate::blocks::{random_rows, weights};
use crate::device::{TestRuntime, gpu, plane_variants, upload};
use ember_kernels_cubecl::{Capabilities, DeviceMatrix, GgmlType, Gpu, launch_count, linear, pack_rows};
use ember_test_support::{definition, distance, random};

/// A matrix on the device and its weights.
struct Sample {
    matrix: DeviceMatrix,
    weights: Vec<f32>,
}

fn sample(gpu: &Gpu<TestRuntime>, ty: GgmlType, rows: usize, cols: usize) -> Sample {
    let gguf = random_rows(ty, rows, cols, (rows + cols) as u64);
    let matrix = DeviceMatrix::upload(gpu, "test", ty, cols, &[&gguf], &mut |_| ()).unwrap();
    Sample { matrix, weights: weights(ty, &gguf) }
}

/// What a product of `tokens` rows may err by: matrix units round both sides to f16.
fn tolerance(gpu: &Gpu<TestRuntime>, ty: GgmlType, tokens: usize) -> f64 {
    match gpu.caps().matrix {
        Some(_) if tokens >= 16 && ty != GgmlType::F32 => 1e-3,
        _ => 1e-5,
    }
}

/// Checks the product of `tokens` rows with all of a sample.
fn check(gpu: &Gpu<TestRuntime>, sample: &Sample, tokens: usize) {
    check_product(gpu, sample, &random(tokens as u64, tokens * sample.matrix.cols()));
}

fn check_product(gpu: &Gpu<TestRuntime>, sample: &Sample, x: &[f32]) {
    let matrix = &sample.matrix;
    let (cols, tokens) = (matrix.cols(), x.len() / matrix.cols());
    let y = linear::linear(gpu, &upload(gpu, x), matrix, 0, &[matrix.rows()]);
    let error = distance(&gpu.read_f32(&y[0]).unwrap(), &definition::product(x, &sample.weights, cols));
    let shape = (matrix.ty(), matrix.rows(), cols);
    assert!(error < tolerance(gpu, matrix.ty(), tokens), "{tokens} x {shape:?} on {gpu:?}: {error}");
}

/// The device with planes and without, with its matrix units and without.
fn variants() -> Vec<Gpu<TestRuntime>> {
    let mut variants = plane_variants();
    let gpu = gpu();
    if gpu.caps().matrix.is_some() {
        variants.push(gpu.with_capabilities(Capabilities { matrix: None, ..gpu.caps() }));
    }
    variants
}

#[test]
fn every_type_multiplies_vectors() {
    for gpu in plane_variants() {
        for ty in GgmlType::ALL {
            let sample = sample(&gpu, ty, 21, 768);
            for tokens in 1..=4 {
                check(&gpu, &sample, tokens);
            }
        }
    }
}

#[test]
fn every_type_multiplies_tiles() {
    let gpu = gpu();
    for ty in GgmlType::ALL {
        let sample = sample(&gpu, ty, 70, 256);
        // Every size of tile, whole and not; 16 is the least that matrix units get.
        for tokens in [5, 8, 16, 17, 64, 513] {
            check(&gpu, &sample, tokens);
        }
    }
}

#[test]
fn any_number_of_rows_of_x() {
    for gpu in variants() {
        let sample = sample(&gpu, GgmlType::Q4_K, 67, 512);
        for tokens in [1, 2, 3, 4, 5, 16, 17, 32, 33, 64, 65, 130] {
            check(&gpu, &sample, tokens);
        }
    }
    let gpu = gpu();
    check(&gpu, &self::sample(&gpu, GgmlType::Q8_0, 9, 32), 513);
}

#[test]
fn activations_beyond_f16_are_scaled() {
    let gpu = gpu();
    let sample = sample(&gpu, GgmlType::Q8_0, 40, 96);
    // Rows of very different size: 1e-30, 1, 1e30, zeros.
    let mut x = random(1, 40 * 96);
    for (row, x) in x.chunks_exact_mut(96).enumerate() {
        let scale = [1e-30, 1.0, 1e30, 0.0][row % 4];
        x.iter_mut().for_each(|x| *x *= scale);
    }
    for scale in 0..4 {
        let rows: Vec<f32> = x.chunks_exact(96).skip(scale).step_by(4).flatten().copied().collect();
        let y = linear::linear(&gpu, &upload(&gpu, &x), &sample.matrix, 0, &[40]);
        let y = gpu.read_f32(&y[0]).unwrap();
        let y: Vec<f32> = y.chunks_exact(40).skip(scale).step_by(4).flatten().copied().collect();
        let error = distance(&y, &definition::product(&rows, &sample.weights, 96));
        assert!(error < tolerance(&gpu, GgmlType::Q8_0, 40), "{scale}: {error}");
    }
}

#[test]
fn floats_of_any_width() {
    for gpu in plane_variants() {
        for (ty, cols) in
            [(GgmlType::F32, 7), (GgmlType::F16, 40), (GgmlType::BF16, 333), (GgmlType::F16, 129)]
        {
            let sample = sample(&gpu, ty, 5, cols);
            for tokens in [1, 2, 9, 20] {
                check(&gpu, &sample, tokens);
            }
        }
    }
}

#[test]
fn large_matrices_take_blocks_of_rows() {
    for gpu in plane_variants() {
        for rows in [2049, 8195] {
            let sample = sample(&gpu, GgmlType::Q5_0, rows, 320);
            check(&gpu, &sample, 1);
            check(&gpu, &sample, 2);
        }
    }
}

/// Columns `first..first + rows` of `y` `[tokens, all]`.
fn columns(y: &[f64], all: usize, first: usize, rows: usize) -> Vec<f64> {
    y.chunks_exact(all).flat_map(|row| row[first..first + rows].to_vec()).collect()
}

#[test]
fn segments_of_shards_from_any_row() {
    let gpu = gpu();
    let (ty, rows, cols) = (GgmlType::Q6_K, 150, 256);
    let gguf = random_rows(ty, rows, cols, 4);
    let weights = weights(ty, &gguf);
    let row_bytes = 4 * pack_rows(ty, cols, &gguf).len() / rows;
    for rows_per_shard in [1000, 64, 20] {
        let max_buffer = (row_bytes * rows_per_shard) as u64;
        let small = gpu.with_capabilities(Capabilities { max_buffer, ..gpu.caps() });
        let matrix = DeviceMatrix::upload(&small, "test", ty, cols, &[&gguf], &mut |_| ()).unwrap();
        for tokens in [1, 4, 19] {
            let x = random(5, tokens * cols);
            let expected = definition::product(&x, &weights, cols);
            let x = upload(&gpu, &x);
            for (first, segments) in [(0, vec![100, 33, 17]), (3, vec![64, 1]), (149, vec![1])] {
                let launches = launch_count();
                let y = linear::linear(&gpu, &x, &matrix, first, &segments);
                let end = first + segments.iter().sum::<usize>();
                let per_shard = rows.div_ceil(rows.div_ceil(rows_per_shard));
                let shards = end.div_ceil(per_shard) - first / per_shard;
                let narrowing = u64::from(gpu.caps().matrix.is_some() && tokens >= 16);
                assert_eq!(launch_count() - launches, shards as u64 + narrowing);
                assert_eq!(y.len(), segments.len());
                let mut start = first;
                for (y, &segment) in y.iter().zip(&segments) {
                    let expected = columns(&expected, rows, start, segment);
                    let error = distance(&gpu.read_f32(y).unwrap(), &expected);
                    assert!(
                        error < tolerance(&gpu, ty, tokens),
                        "{tokens} x {segment} from {start}: {error}"
                    );
                    start += segment;
                }
            }
        }
    }
}

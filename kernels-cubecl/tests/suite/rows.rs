//! Packing, placing and looking up rows.
use crate::blocks::{random_rows, weights};
use crate::device::gpu;
use ember_kernels_cubecl::{Capabilities, DeviceMatrix, GgmlType, GpuError, gather, pack_rows};
use ember_test_support::{max_difference, max_relative};

/// Widths that leave planes half filled, where the type has such.
fn widths(ty: GgmlType) -> &'static [usize] {
    match ty.block_len() {
        1 => &[1, 7, 40, 257],
        32 => &[32, 96, 320],
        _ => &[256, 768],
    }
}

#[test]
fn looked_up_rows_are_the_weights() {
    let gpu = gpu();
    let ids = [3u32, 0, 8, 8, 1];
    for ty in GgmlType::ALL {
        for &cols in widths(ty) {
            let gguf = random_rows(ty, 9, cols, cols as u64);
            let all = weights(ty, &gguf);
            let matrix = DeviceMatrix::upload(&gpu, "test", ty, cols, &[&gguf], &mut |_| ()).unwrap();
            let y = gather::gather(&gpu, &matrix, &gpu.upload("ids", &ids).unwrap(), ids.len());
            let y = gpu.read_f32(&y).unwrap();
            assert_eq!(y.len(), ids.len() * cols);
            for (row, &id) in y.chunks_exact(cols).zip(&ids) {
                let expected = &all[id as usize * cols..][..cols];
                // Where a minimum is added, a device may round once instead of twice.
                let tolerance =
                    if ty.scale_offsets().len() > 1 { 2.0 * f64::from(f32::EPSILON) } else { 0.0 };
                let error = max_relative(row, expected);
                assert!(error <= tolerance, "{ty:?} {cols}: row {id} is off by {error}");
            }
        }
    }
}

#[test]
fn stacked_parts_are_split_into_shards() {
    let gpu = gpu();
    let (ty, cols) = (GgmlType::Q4_K, 512);
    let parts = [5, 11, 3].map(|rows| random_rows(ty, rows, cols, rows as u64));
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let row_words = pack_rows(ty, cols, &parts[0][..ty.row_bytes(cols)]).len();
    // Room for four rows and a bit.
    let small = Capabilities { max_buffer: 4 * row_words as u64 * 4 + 100, ..gpu.caps() };
    let small = gpu.with_capabilities(small);
    let mut placed = 0;
    let matrix =
        DeviceMatrix::upload(&small, "test", ty, cols, &parts, &mut |bytes| placed += bytes).unwrap();
    assert_eq!((matrix.rows(), matrix.cols()), (19, cols));
    assert_eq!(placed, parts.iter().map(|part| part.len() as u64).sum::<u64>());

    let ids: Vec<u32> = (0..19).rev().collect();
    let y = gather::gather(&gpu, &matrix, &gpu.upload("ids", &ids).unwrap(), ids.len());
    let y = gpu.read_f32(&y).unwrap();
    assert_eq!(y.len(), ids.len() * cols);
    let expected = weights(ty, &parts.concat());
    for (row, &id) in y.chunks_exact(cols).zip(&ids) {
        let expected = &expected[id as usize * cols..][..cols];
        assert!(max_difference(row, expected) < 1e-4, "row {id}");
    }
}

#[test]
fn device_memory_stays_near_the_file_size() {
    for ty in GgmlType::ALL {
        for cols in [1024, 2560, 5120] {
            let gguf = random_rows(ty, 1, cols, 1);
            let growth = 4.0 * pack_rows(ty, cols, &gguf).len() as f64 / gguf.len() as f64;
            assert!((0.99..1.06).contains(&growth), "{ty:?} {cols}: {growth}");
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let gpu = gpu();
    let upload =
        |cols, bytes: &[u8]| DeviceMatrix::upload(&gpu, "w", GgmlType::Q8_0, cols, &[bytes], &mut |_| ());
    assert!(matches!(upload(33, &[0; 34]), Err(GpuError::Invalid(_))));
    assert!(matches!(upload(64, &[0; 34]), Err(GpuError::Invalid(_))));
    assert!(matches!(upload(32, &[]), Err(GpuError::Invalid(_))));
    let tiny = gpu.with_capabilities(Capabilities { max_buffer: 32, ..gpu.caps() });
    let error = DeviceMatrix::upload(&tiny, "w", GgmlType::Q8_0, 32, &[&[0; 34]], &mut |_| ()).unwrap_err();
    assert!(matches!(error, GpuError::TooLarge { limit: 32, .. }), "{error}");
}

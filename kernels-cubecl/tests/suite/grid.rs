//! Steps of more rows than a grid has cubes in one direction. The products and the choice of tokens share the arithmetic
//! and would take minutes: `text/operations.rs` launches them without running them.
use crate::device::{gpu, upload};
use ember_kernels_cubecl::kv::{KvLayout, KvPages, KvType};
use ember_kernels_cubecl::norm;
use ember_kernels_cubecl::rope::{HeadInput, Pairing, RowTable, rotate_and_write};
use ember_test_support::{max_relative, random};

/// The grid has 65,535.
const ROWS: usize = 65_537;

#[test]
fn every_row_is_normalised() {
    let gpu = gpu();
    let (x, residual, weight) = (random(1, 2 * ROWS), random(2, 2 * ROWS), [0.5, 2.0]);
    let expected = |x: &[f32]| -> Vec<f64> {
        let row = |row: &[f32; 2]| {
            let [a, b] = row.map(f64::from);
            let scale = ((a * a + b * b) / 2.0 + 1.0).sqrt().recip();
            [0.5 * a * scale, 2.0 * b * scale]
        };
        x.as_chunks().0.iter().flat_map(row).collect()
    };
    let (x_on_gpu, weight) = (upload(&gpu, &x), upload(&gpu, &weight));
    let y = norm::rms_norm(&gpu, &x_on_gpu, &weight, 1.0);
    assert!(max_relative(&gpu.read_f32(&y).unwrap(), &expected(&x)) < 1e-6);
    let (sum, y) = norm::add_rms_norm(&gpu, &upload(&gpu, &residual), &x_on_gpu, &weight, 1.0);
    let added: Vec<f32> = x.iter().zip(&residual).map(|(x, r)| x + r).collect();
    assert_eq!(gpu.read_f32(&sum).unwrap(), added);
    assert!(max_relative(&gpu.read_f32(&y).unwrap(), &expected(&added)) < 1e-6);
}

#[test]
fn every_row_is_written_to_its_slot() {
    let gpu = gpu();
    let layout = KvLayout { ty: KvType::F32, block_len: 1, n_kv_heads: 1, head_dim: 2 };
    let pages = KvPages::new(&gpu, layout, ROWS).unwrap();
    let slots: Vec<u32> = (0..ROWS as u32).rev().collect();
    let table = RowTable::new(&gpu, &[], &[], &slots, None).unwrap();
    let [q, k, v] = [1, 2, 3].map(|seed| random(seed, 2 * ROWS));
    let [q_on_gpu, k_on_gpu, v_on_gpu] = [&q, &k, &v].map(|x| upload(&gpu, x));
    let input = HeadInput { q: &q_on_gpu, k: &k_on_gpu, v: &v_on_gpu, norms: None, pairing: Pairing::Half };
    assert_eq!(gpu.read_f32(&rotate_and_write(&gpu, &input, &table, &pages)).unwrap(), q);
    for (pool, rows) in [(&pages.k, &k), (&pages.v, &v)] {
        let reversed: Vec<f32> = rows.as_chunks::<2>().0.iter().rev().flatten().copied().collect();
        assert_eq!(gpu.read_f32(pool).unwrap(), reversed);
    }
}

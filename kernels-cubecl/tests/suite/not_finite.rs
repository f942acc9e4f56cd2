//! NaN and infinities come out where the definitions give them and nowhere else.
//!
//! Which of NaN and infinity an element is depends on the order of a sum: they count as the same. What a row does not see
//! never breaks it.
use crate::attention_support::{Problem, Sequence, layout};
use crate::blocks::{random_rows, weights};
use crate::device::{TestRuntime, gpu, plane_variants, upload};
use crate::kv_reference::{read_row, row_start, stored_words};
use ember_kernels_cubecl::kv::{KvPages, KvType};
use ember_kernels_cubecl::rope::{HeadInput, Pairing, RowTable, rope, rotate_and_write};
use ember_kernels_cubecl::{DeviceMatrix, GgmlType, Gpu, activation, gather, linear, norm};
use ember_test_support::{BROKEN, assert_broken_alike, definition, random};
use half::{bf16, f16};
use std::ops::Range;

/// Puts `value` into a block of `ty`: into its scale `which`, or where it has none, an element.
fn break_block(ty: GgmlType, block: &mut [u8], which: usize, value: f32) {
    let half = f16::from_f32(value).to_le_bytes();
    match ty {
        GgmlType::F32 => block.copy_from_slice(&value.to_le_bytes()),
        GgmlType::F16 => block.copy_from_slice(&half),
        GgmlType::BF16 => block.copy_from_slice(&bf16::from_f32(value).to_le_bytes()),
        _ => {
            let offsets = ty.scale_offsets();
            let at = offsets[which % offsets.len()];
            block[at..at + 2].copy_from_slice(&half);
        }
    }
}

/// Every second of 21 rows is broken in one block, the others are sound.
fn broken_rows(ty: GgmlType, cols: usize) -> Vec<u8> {
    let (mut gguf, len) = (random_rows(ty, 21, cols, 3), ty.block_bytes());
    for (i, value) in BROKEN.into_iter().chain(BROKEN).enumerate() {
        let at = (2 * i + 1) * ty.row_bytes(cols) + i % 2 * len;
        break_block(ty, &mut gguf[at..at + len], i / BROKEN.len(), value);
    }
    gguf
}

#[test]
fn products_and_rows() {
    for ty in GgmlType::ALL {
        // For floats, no whole number of loads.
        let cols = if ty.block_len() == 1 { 43 } else { 2 * ty.block_len() };
        let gguf = broken_rows(ty, cols);
        let weights = weights(ty, &gguf);
        for (i, gpu) in plane_variants().into_iter().enumerate() {
            let matrix = DeviceMatrix::upload(&gpu, "test", ty, cols, &[&gguf], &mut |_| ()).unwrap();
            // Planes matter to few rows only. The first of `x` is sound, and of the others every second.
            for &tokens in if i == 0 { &[1, 3, 5, 17][..] } else { &[2] } {
                let mut x = random(4, tokens * cols);
                for (value, x) in BROKEN.into_iter().cycle().zip(x.chunks_exact_mut(cols).skip(1).step_by(2))
                {
                    x[cols - 2] = value;
                }
                let y = linear::linear(&gpu, &upload(&gpu, &x), &matrix, 0, &[21]);
                let rounded = gpu.caps().matrix.is_some() && tokens >= 16 && ty != GgmlType::F32;
                let expected = definition::product(&x, &weights, cols);
                let limit = if rounded { 2e-3 } else { 1e-5 };
                assert_broken_alike(
                    &gpu.read_f32(&y[0]).unwrap(),
                    &expected,
                    limit,
                    &format!("{ty} {tokens}"),
                );
            }
            if i == 0 {
                let ids: Vec<u32> = (0..21).collect();
                let rows = gather::gather(&gpu, &matrix, &gpu.upload("ids", &ids).unwrap(), 21);
                assert_broken_alike(&gpu.read_f32(&rows).unwrap(), &weights, 1e-6, &format!("rows of {ty}"));
            }
        }
    }
}

#[test]
fn norms() {
    let (gpu, dim) = (gpu(), 300);
    let rows = BROKEN.len() + 1;
    let mut x = random(1, rows * dim);
    for (i, value) in BROKEN.into_iter().enumerate() {
        x[i * dim + 60 * i] = value;
    }
    let sound = random(2, dim);
    let mut broken = sound.clone();
    broken[250..250 + BROKEN.len()].copy_from_slice(&BROKEN);
    for weight in [sound, broken] {
        let expected = definition::rms_norm(&x, &weight, 1e-5);
        let (x_on_gpu, weight) = (upload(&gpu, &x), upload(&gpu, &weight));
        let y = norm::rms_norm(&gpu, &x_on_gpu, &weight, 1e-5);
        assert_broken_alike(&gpu.read_f32(&y).unwrap(), &expected, 1e-6, "RMSNorm");
        let zeros = upload(&gpu, &vec![0.0; x.len()]);
        let (sum, y) = norm::add_rms_norm(&gpu, &zeros, &x_on_gpu, &weight, 1e-5);
        assert_broken_alike(&gpu.read_f32(&sum).unwrap(), &x, 0.0, "the sum");
        assert_broken_alike(&gpu.read_f32(&y).unwrap(), &expected, 1e-6, "RMSNorm of a sum");
    }
}

/// Every pair of sound and broken gates and factors, among them -∞, whose gate is -∞ · 0.
#[test]
fn gates() {
    let gpu = gpu();
    let values: Vec<f32> = BROKEN.into_iter().chain([0.0, -0.0, 1.0, -1.0, 1e4, -1e4]).collect();
    let (gate, up): (Vec<f32>, Vec<f32>) =
        values.iter().flat_map(|&gate| values.iter().map(move |&up| (gate, up))).unzip();
    let (gate_on_gpu, up_on_gpu) = (upload(&gpu, &gate), upload(&gpu, &up));
    let expected =
        |f: fn(f32) -> f32| -> Vec<f32> { gate.iter().zip(&up).map(|(&gate, &up)| f(gate) * up).collect() };
    let y = activation::swiglu(&gpu, &gate_on_gpu, &up_on_gpu);
    assert_broken_alike(&gpu.read_f32(&y).unwrap(), &expected(|x| x / (1.0 + (-x).exp())), 1e-6, "SwiGLU");
    let y = activation::geglu(&gpu, &gate_on_gpu, &up_on_gpu);
    // The error function of ±1 / √2, and its limits.
    let gelu = |x: f32| match x.abs() {
        1.0 => 0.5 * x * (1.0 + x * 0.682_689_5),
        _ => 0.5 * x * (1.0 + if x == 0.0 { 0.0 } else { x.signum() }),
    };
    assert_broken_alike(&gpu.read_f32(&y).unwrap(), &expected(gelu), 1e-6, "GEGLU");
}

/// Rotated queries and keys, and stored keys and values: a pair with a broken element is broken, also where its angle is
/// zero; with a norm the whole head; in q8_0 a block. What overflows a type is infinite.
#[test]
fn rotated_and_stored_heads() {
    let (gpu, dim, half) = (gpu(), 64, 20);
    let wide = [65519.0, 65520.0, -1e6, 1e7, -1e15, 1e18];
    let broken: Vec<f32> = BROKEN.into_iter().chain(wide).collect();
    let rows = broken.len();
    let heads = |seed: u64, at: usize| {
        let mut heads = random(seed, rows * dim);
        for (i, (head, &value)) in heads.chunks_exact_mut(dim).zip(&broken).enumerate() {
            head[(at + 5 * i) % dim] = value;
        }
        heads
    };
    let (q, k, v) = (heads(1, 0), heads(2, 7), heads(3, 50));
    // The first row has no angles.
    let angle = |i: usize| (i / half) as f32 * (1 + i % half) as f32;
    let cos: Vec<f32> = (0..rows * half).map(|i| angle(i).cos()).collect();
    let sin: Vec<f32> = (0..rows * half).map(|i| angle(i).sin()).collect();
    let [q_on_gpu, k_on_gpu, v_on_gpu] = [&q, &k, &v].map(|x| upload(&gpu, x));
    let weight = random(4, dim);
    let weight_on_gpu = upload(&gpu, &weight);
    let slots: Vec<u32> = (0..rows as u32).rev().collect();
    let table = RowTable::new(&gpu, &cos, &sin, &slots, None).unwrap();
    for (pairing, norms) in [(Pairing::Half, false), (Pairing::Adjacent, true)] {
        let rotated = |x: &[f32]| -> Vec<f64> {
            let mut x = match norms {
                true => definition::rms_norm(x, &weight, 1e-6),
                false => x.iter().map(|&x| x.into()).collect(),
            };
            for (row, head) in x.chunks_exact_mut(dim).enumerate() {
                let angles = row * half..(row + 1) * half;
                definition::rotate(head, &cos[angles.clone()], &sin[angles], pairing == Pairing::Adjacent);
            }
            x
        };
        for ty in [KvType::F32, KvType::F16, KvType::BF16, KvType::Q8_0] {
            let what = format!("{pairing:?}, {ty}");
            let layout = layout(ty, 4, 1, dim);
            let pages = KvPages::new(&gpu, layout, rows.div_ceil(4)).unwrap();
            let norms = norms.then_some((&weight_on_gpu, &weight_on_gpu, 1e-6));
            let input = HeadInput { q: &q_on_gpu, k: &k_on_gpu, v: &v_on_gpu, norms, pairing };
            let y = gpu.read_f32(&rotate_and_write(&gpu, &input, &table, &pages)).unwrap();
            by_heads(&y, &rotated(&q), dim, &format!("queries, {what}"));
            let keys: Vec<f32> = rotated(&k).into_iter().map(|x| x as f32).collect();
            for (pool, rows) in [(&pages.k, &keys), (&pages.v, &v)] {
                let words = gpu.read(pool).unwrap();
                let stored = |words: &[u32]| -> Vec<f32> { read_row(words, layout) };
                let read = slots.iter().flat_map(|&slot| {
                    let start = row_start(slot, 0, layout);
                    stored(&words[start..start + layout.row_words()])
                });
                let expected: Vec<f32> =
                    rows.chunks_exact(dim).flat_map(|row| stored(&stored_words(row, layout))).collect();
                by_heads(&read.collect::<Vec<f32>>(), &expected, dim, &format!("entries, {what}"));
            }
        }
        if !norms {
            let (cos, sin) = (upload(&gpu, &cos), upload(&gpu, &sin));
            let y = rope(&gpu, &q_on_gpu, &cos, &sin, rows, dim, pairing);
            by_heads(&gpu.read_f32(&y).unwrap(), &rotated(&q), dim, "RoPE");
        }
    }
}

/// Rows hold numbers of very different size. Where stored types round, neighbours of a rounding boundary differ.
fn by_heads(actual: &[f32], expected: &[impl ember_test_support::Real], dim: usize, what: &str) {
    assert_eq!(actual.len(), expected.len());
    for (row, (actual, expected)) in actual.chunks_exact(dim).zip(expected.chunks_exact(dim)).enumerate() {
        assert_broken_alike(actual, expected, 1e-2, &format!("{what}, row {row}"));
    }
}

/// [`Problem::check`] where rows may be broken.
fn check_attention(problem: &Problem, gpu: &Gpu<TestRuntime>, what: &str) {
    let (actual, expected) = (problem.run(gpu), problem.expected());
    by_rows(&actual, &expected, problem.n_heads * problem.layout.head_dim, what);
}

fn by_rows(actual: &[f32], expected: &[f64], row_len: usize, what: &str) {
    assert!(expected.iter().any(|x| x.is_finite()), "{what}: all is broken");
    for (row, (actual, expected)) in actual.chunks(row_len).zip(expected.chunks(row_len)).enumerate() {
        assert_broken_alike(actual, expected, 1e-5, &format!("{what}, row {row}"));
    }
}

const LAYOUTS: [(KvType, usize, usize); 6] = [
    (KvType::F32, 34, 1),
    (KvType::F16, 64, 2),
    (KvType::BF16, 80, 3),
    (KvType::Q8_0, 32, 2),
    (KvType::F32, 64, 4),
    (KvType::Q8_0, 96, 1),
];

/// A problem whose entries and query rows in `at` are broken; places are (sequence, entry) and (row).
fn broken_problem(
    (ty, dim, group): (KvType, usize, usize),
    sequences: &[Sequence],
    keys: &[(usize, usize)],
    values: &[(usize, usize)],
    query: usize,
    broken: f32,
) -> Problem {
    let layout = layout(ty, 8, 2, dim);
    let mut problem = Problem::changed(&gpu(), layout, group, sequences, |i, _, rows| {
        for (rows, places) in rows.into_iter().zip([keys, values]) {
            for &(_, entry) in places.iter().filter(|place| place.0 == i) {
                // One key/value head, its last element.
                rows[(2 * entry + entry % 2) * dim + dim - 1] = broken;
            }
        }
    });
    problem.q[query * problem.n_heads * dim + 1] = broken;
    problem
}

#[test]
fn decode_breaks_where_it_sees() {
    let one_row = |entries, visible: Range<u32>| Sequence { entries, visible: vec![visible] };
    let sequences = [
        Sequence::causal(140, 4),
        one_row(300, 5..300),
        one_row(300, 5..300),
        one_row(300, 5..299),
        one_row(40, 7..7),
        one_row(40, 7..30),
        one_row(40, 7..30),
    ];
    // The last two rows of the first sequence see the key, and the last one the value; of the second, splits.
    let keys = [(0, 138), (1, 290), (3, 299), (4, 7), (5, 30), (5, 6)];
    let values = [(0, 139), (2, 150), (3, 299), (4, 7), (5, 30), (5, 6)];
    for (shape, broken) in LAYOUTS.into_iter().zip(BROKEN.into_iter().cycle()) {
        let problem = broken_problem(shape, &sequences, &keys, &values, 9, broken);
        for gpu in plane_variants() {
            check_attention(&problem, &gpu, &format!("{shape:?}, planes {:?}, {broken}", gpu.caps().plane));
        }
    }
}

#[test]
fn prefill_breaks_where_it_sees() {
    let sequences = [
        Sequence::causal(40, 40),
        // A window; an image, of which the last rows see nothing; entries that no row sees.
        Sequence { entries: 60, visible: (0..20).map(|i| 10 + i..30 + i).collect() },
        Sequence { entries: 30, visible: (0..12).map(|_| 3..25).chain((0..8).map(|_| 9..9)).collect() },
    ];
    let keys = [(0, 33), (1, 12), (2, 2), (2, 25)];
    let values = [(0, 21), (0, 37), (1, 45), (1, 55), (2, 2), (2, 25)];
    for (shape, broken) in LAYOUTS.into_iter().zip(BROKEN.into_iter().cycle()) {
        let problem = broken_problem(shape, &sequences, &keys, &values, 65, broken);
        check_attention(&problem, &gpu(), &format!("{shape:?}, {broken}"));
    }
}

/// A score of -∞ is a weight of zero, as softmax says, unless a row has no other; +∞ and NaN break it. No finite score is too
/// low to count.
#[test]
fn scores_of_every_kind() {
    let visible = [0..2, 0..3, 1..6, 5..6, 2..9, 2..10, 10..12, 10..13, 13..16, 16..18, 15..18];
    let alone = visible.iter().map(|visible| Sequence { entries: 18, visible: vec![visible.clone()] });
    let together = Sequence { entries: 18, visible: visible.to_vec() };
    let infinite = [
        (0, f32::NEG_INFINITY),
        (1, f32::NEG_INFINITY),
        (5, f32::NEG_INFINITY),
        (9, f32::INFINITY),
        (12, f32::NAN),
        (16, -1e20),
        (17, -1e20),
    ];
    let sequences: Vec<Sequence> = alone.chain([together]).collect();
    let dim = 34;
    let mut problem =
        Problem::changed(&gpu(), layout(KvType::F32, 8, 1, dim), 1, &sequences, |_, _, [k, _]| {
            infinite.iter().for_each(|&(entry, score)| k[entry * dim..(entry + 1) * dim].fill(score));
        });
    problem.q.fill(1.0);
    // Rows that see the lowest scores have them at -1e36.
    for low in [9, 11 + 9] {
        problem.q[low * dim..(low + 1) * dim].fill(1e15);
    }
    let expected = problem.expected();
    let finite: Vec<bool> = expected.chunks(dim).map(|row| row.iter().all(|x| x.is_finite())).collect();
    let once = [false, true, true, false, true, false, true, false, true, true, true];
    assert_eq!(finite, [once, once].concat());
    for gpu in plane_variants() {
        check_attention(&problem, &gpu, &format!("planes {:?}", gpu.caps().plane));
    }
}

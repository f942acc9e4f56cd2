//! Attention against its definition in f64.
use crate::attention_support::{Problem, SCALE, Sequence, layout};
use crate::device::{TestRuntime, gpu, plane_variants, upload};
use ember_kernels_cubecl::attention::{Plan, SequencePlan, paged_attention};
use ember_kernels_cubecl::kv::{KvPages, KvType};
use ember_kernels_cubecl::{Capabilities, Gpu, GpuError, launch_count};
use ember_test_support::{distance, random};
use std::ops::Range;

/// A single row that sees a given range.
fn one_row(entries: usize, visible: Range<u32>) -> Sequence {
    Sequence { entries, visible: vec![visible] }
}

fn plane(gpu: &Gpu<TestRuntime>) -> String {
    format!("planes {:?}", gpu.caps().plane)
}

#[test]
fn decode_reads_every_length() {
    let sequences: Vec<Sequence> = (1..=260).map(|len| Sequence::causal(len, 1)).collect();
    for (ty, dim) in [(KvType::F32, 32), (KvType::F16, 32), (KvType::Q8_0, 32)] {
        let problem = Problem::new(&gpu(), layout(ty, 16, 1, dim), 2, &sequences, None);
        for gpu in plane_variants() {
            problem.check(&gpu, &format!("{ty:?}, {}", plane(&gpu)));
        }
    }
}

#[test]
fn decode_has_every_head_and_group() {
    let sequences = [one_row(300, 0..300), one_row(40, 3..37), one_row(2, 1..1), one_row(129, 0..129)];
    let cases = [
        (KvType::F32, 64, 1),
        (KvType::F16, 128, 2),
        (KvType::BF16, 80, 3),
        (KvType::Q8_0, 128, 4),
        (KvType::F16, 64, 8),
        (KvType::Q8_0, 96, 5),
        (KvType::F32, 34, 16),
        (KvType::F16, 256, 1),
        (KvType::BF16, 42, 2),
    ];
    for (ty, dim, group) in cases {
        let problem = Problem::new(&gpu(), layout(ty, 8, 2, dim), group, &sequences, Some(f32::NAN));
        for gpu in plane_variants() {
            problem.check(&gpu, &format!("{ty:?} {dim} x {group}, {}", plane(&gpu)));
        }
    }
}

#[test]
fn decode_takes_a_few_rows_of_a_sequence() {
    let sequences = [Sequence::causal(140, 4), Sequence::causal(3, 3), Sequence::causal(200, 2)];
    let problem = Problem::new(&gpu(), layout(KvType::F16, 32, 2, 64), 2, &sequences, None);
    for gpu in plane_variants() {
        problem.check(&gpu, &plane(&gpu));
    }
}

#[test]
fn many_splits_are_joined_in_as_many_launches_as_their_results_need() {
    let sequences = [one_row(9000, 0..9000), one_row(400, 10..390), one_row(50, 0..50), one_row(800, 0..800)];
    let problem = Problem::new(&gpu(), layout(KvType::F16, 32, 1, 32), 2, &sequences, None);
    let plenty = gpu();
    let before = launch_count();
    problem.check(&plenty, "one launch");
    assert_eq!(launch_count() - before, 2);
    // Room for the results of 75 splits: the first row has 64, the others 3, 1 and 7.
    let tight = plenty.with_capabilities(Capabilities { max_buffer: 75 * 2 * 34 * 4, ..plenty.caps() });
    let before = launch_count();
    let q = upload(&plenty, &problem.q);
    let plan = problem.plan(&plenty);
    let out = paged_attention(&tight, &q, &problem.pages, &plan, SCALE);
    assert_eq!(launch_count() - before, 2);
    assert!(distance(&plenty.read_f32(&out).unwrap(), &problem.expected()) < 1e-5);
    let tighter = plenty.with_capabilities(Capabilities { max_buffer: 66 * 2 * 34 * 4, ..plenty.caps() });
    let before = launch_count();
    let out = paged_attention(&tighter, &q, &problem.pages, &plan, SCALE);
    assert_eq!(launch_count() - before, 4);
    assert!(distance(&plenty.read_f32(&out).unwrap(), &problem.expected()) < 1e-5);
}

#[test]
fn a_decode_row_gives_the_same_bits_in_any_batch() {
    let gpu = gpu();
    let sequences: Vec<Sequence> = [300, 17, 600].map(|len| Sequence::causal(len, 1)).into();
    let problem = Problem::new(&gpu, layout(KvType::F16, 16, 2, 64), 2, &sequences, None);
    let together = problem.run(&gpu);
    let row_len = problem.n_heads * problem.layout.head_dim;
    for (i, sequence) in sequences.iter().enumerate() {
        let plan = SequencePlan { rows: 0..1, block_table: &problem.tables[i], visible: &sequence.visible };
        let plan = Plan::new(&gpu, &[plan], problem.layout.block_len).unwrap();
        let row = i * row_len..(i + 1) * row_len;
        let q = upload(&gpu, &problem.q[row.clone()]);
        let alone = gpu.read_f32(&paged_attention(&gpu, &q, &problem.pages, &plan, SCALE)).unwrap();
        assert_eq!(alone, together[row], "row {i}");
    }
}

#[test]
fn prefill_has_every_head_and_group() {
    // Offsets within and across chunks and tiles; rows that see nothing; one that begins late.
    let sequences = [Sequence::causal(21, 21), Sequence::causal(60, 5), Sequence::causal(35, 16)];
    let cases = [
        (KvType::F32, 64, 1),
        (KvType::F16, 128, 2),
        (KvType::BF16, 80, 3),
        (KvType::Q8_0, 128, 4),
        (KvType::F16, 64, 8),
        (KvType::Q8_0, 32, 4),
        (KvType::F32, 34, 16),
        (KvType::F16, 256, 1),
        (KvType::F32, 256, 2),
    ];
    for (ty, dim, group) in cases {
        let gpu = gpu();
        let problem = Problem::new(&gpu, layout(ty, 8, 2, dim), group, &sequences, None);
        problem.check(&gpu, &format!("{ty:?} {dim} x {group}"));
        let small = gpu.with_capabilities(Capabilities { shared_memory: 16 << 10, ..gpu.caps() });
        problem.check(&small, &format!("{ty:?} {dim} x {group}, 16 KiB"));
    }
}

#[test]
fn ranges_need_not_be_causal() {
    let causal = |ends: Range<u32>| ends.map(|end| 0..end);
    let sequences = [
        // An image of 20 entries within text.
        Sequence {
            entries: 40,
            visible: causal(1..6).chain((0..20).map(|_| 0..25)).chain(causal(26..41)).collect(),
        },
        // Two segments that see themselves only, then rows that see nothing.
        Sequence {
            entries: 64,
            visible: (0..30)
                .map(|_| 0..30)
                .chain((0..18).map(|_| 30..64))
                .chain((0..9).map(|_| 7..7))
                .collect(),
        },
        // A window, and none of the entries around it.
        Sequence { entries: 90, visible: (0..20).map(|i| 40 + i..60 + i).collect() },
        Sequence { entries: 8, visible: vec![0..0; 17] },
    ];
    let gpu = gpu();
    let problem = Problem::new(&gpu, layout(KvType::F16, 16, 1, 64), 2, &sequences, Some(f32::INFINITY));
    problem.check(&gpu, "segments");
}

#[test]
fn prefill_reads_every_length() {
    let sequences: Vec<Sequence> = (1..=130).map(|extra| Sequence::causal(5 + extra, 5)).collect();
    let gpu = gpu();
    let problem = Problem::new(&gpu, layout(KvType::F32, 16, 1, 32), 1, &sequences, None);
    problem.check(&gpu, "sweep");
}

#[test]
fn a_batch_mixes_prefill_and_decode() {
    let sequences = [
        Sequence::causal(300, 1),
        Sequence::causal(33, 33),
        Sequence::causal(12, 1),
        Sequence::causal(100, 40),
        Sequence::causal(7, 2),
    ];
    let problem = Problem::new(&gpu(), layout(KvType::F16, 32, 2, 128), 2, &sequences, None);
    for gpu in plane_variants() {
        let before = launch_count();
        problem.check(&gpu, &plane(&gpu));
        assert_eq!(launch_count() - before, 3, "decode, its splits, prefill");
    }
}

#[test]
fn contiguous_keys_are_blocks_of_one() {
    let gpu = gpu();
    let (rows, n_heads, dim) = (30, 2, 64);
    let [q, k, v] = [1, 2, 3].map(|seed| random(seed, rows * n_heads * dim));
    let pages = KvPages::dense(&upload(&gpu, &k), &upload(&gpu, &v), n_heads, dim);
    // Images of 18 and 12 patches.
    let visible = (0..rows).map(|row| if row < 18 { 0..18 } else { 18..30 }).collect();
    Problem::of(&pages, n_heads, Sequence { entries: rows, visible }, [q, k, v]).check(&gpu, "dense");
}

#[test]
fn plans_that_do_not_fit_are_refused() {
    let gpu = gpu();
    // Rows, a block table, and the end of what the only row sees, in blocks of 4.
    let refused =
        |sequences: &[(Range<usize>, &[u32], u32)]| {
            let visible: Vec<Vec<Range<u32>>> =
                sequences.iter().map(|(_, _, end)| std::iter::once(0..*end).collect()).collect();
            let plans = sequences.iter().zip(&visible).map(|((rows, block_table, _), visible)| {
                SequencePlan { rows: rows.clone(), block_table, visible }
            });
            let plan = Plan::new(&gpu, &plans.collect::<Vec<_>>(), 4);
            assert!(matches!(plan, Err(GpuError::Invalid(_))), "{plan:?}");
        };
    refused(&[(0..1, &[0], 5)]);
    refused(&[(0..2, &[0], 4)]);
    refused(&[(1..2, &[0], 4), (0..1, &[1], 4)]);
    refused(&[(0..1, &[0], 4), (0..1, &[1], 4)]);
    assert!(Plan::new(&gpu, &[], 4).is_ok());
}

//! Speed of `linear`: decoding in GB/s of weights beside a plain read of the same bytes, prompts in multiply-adds/s.
//!
//! `cargo bench -p ember-kernels-cpu --bench linear -- [TYPE...] [--rows N --cols N] [--tokens M] [--threads N]`,
//! each the best of `--repeats` (default 15) runs; reads and products alternate, so that both see the same machine.

#[path = "../tests/linear_support/mod.rs"]
mod linear_support;

use std::hint::black_box;
use std::time::Instant;

use ember_kernels_cpu::{GgmlType, Isa, Matrix, ThreadPool, linear_with};
use ember_test_support::{Random, random};

struct Args {
    types: Vec<GgmlType>,
    shapes: Vec<(usize, usize)>,
    tokens: Vec<usize>,
    threads: Vec<usize>,
    repeats: usize,
}

fn main() {
    let args = parse(std::env::args().skip(1));
    println!("| type | rows x cols | tokens | threads | ms | weights GB/s | read GB/s | share | GMAC/s |");
    println!("|---|---|---|---|---|---|---|---|---|");
    for &ty in &args.types {
        for &(rows, cols) in &args.shapes {
            let bytes = linear_support::matrix(&mut Random::new(1), ty, rows, cols);
            let matrix = Matrix::new(ty, rows, cols, &bytes).expect("the shapes are whole blocks");
            for &m in &args.tokens {
                for &threads in &args.threads {
                    measure(matrix, m, &ThreadPool::new(threads), args.repeats);
                }
            }
        }
    }
}

fn measure(matrix: Matrix<'_>, m: usize, pool: &ThreadPool, repeats: usize) {
    let (rows, cols) = (matrix.rows(), matrix.cols());
    let x = random(1, m * cols);
    let mut out = vec![0.0; m * rows];
    let (mut product, mut read) = (f64::INFINITY, f64::INFINITY);
    // Small matrices: several calls per sample, or the clock is what we measure.
    let calls = (20_000_000 / (matrix.bytes().len() * m)).clamp(1, 200);
    let time = |best: &mut f64, f: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..calls).for_each(|_| f());
        *best = best.min(start.elapsed().as_secs_f64() / calls as f64);
    };
    for _ in 0..repeats {
        time(&mut product, &mut || linear_with(Isa::best(), pool, &x, m, &[matrix], &mut [&mut out]));
        time(&mut read, &mut || read_all(pool, matrix.bytes()));
    }
    let rate = |seconds: f64| matrix.bytes().len() as f64 / seconds / 1e9;
    // With many tokens the weights are read from memory once and used many times: bandwidth says nothing then.
    let bandwidth = match m {
        1 => format!("{:.1} | {:.1} | {:.0} %", rate(product), rate(read), 100.0 * read / product),
        _ => "- | - | -".to_string(),
    };
    println!(
        "| {:?} | {rows} x {cols} | {m} | {} | {:.3} | {bandwidth} | {:.1} |",
        matrix.ty(),
        pool.threads(),
        product * 1e3,
        (m * rows * cols) as f64 / product / 1e9,
    );
}

/// Reads every byte once, in the pieces that `linear` deals out.
fn read_all(pool: &ThreadPool, bytes: &[u8]) {
    let pieces: Vec<&[u8]> = bytes.chunks(64 << 10).collect();
    pool.parallel(pieces.len(), &|i| {
        let (words, _) = pieces[i].as_chunks::<32>();
        let mut acc = [0u64; 4];
        for word in words {
            for (acc, part) in acc.iter_mut().zip(word.as_chunks::<8>().0) {
                *acc ^= u64::from_ne_bytes(*part);
            }
        }
        black_box(acc);
    });
}

fn parse(mut words: impl Iterator<Item = String>) -> Args {
    let mut args = Args {
        types: vec![],
        shapes: vec![(3072, 1024), (1024, 3072), (151_936, 1024)],
        tokens: vec![1, 512],
        threads: vec![1, 2],
        repeats: 15,
    };
    let (mut rows, mut cols) = (None, None);
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|n| n.parse().ok()).expect("a number follows the flag");
        match word.as_str() {
            "--bench" => {} // cargo passes it
            "--rows" => rows = Some(number()),
            "--cols" => cols = Some(number()),
            "--tokens" => args.tokens = vec![number()],
            "--threads" => args.threads = vec![number()],
            "--repeats" => args.repeats = number(),
            name => args
                .types
                .extend(GgmlType::ALL.into_iter().filter(|ty| format!("{ty:?}").eq_ignore_ascii_case(name))),
        }
    }
    if let (Some(rows), Some(cols)) = (rows, cols) {
        args.shapes = vec![(rows, cols)];
    }
    if args.types.is_empty() {
        args.types = vec![GgmlType::Q8_0, GgmlType::Q4_0, GgmlType::Q4_K, GgmlType::Q6_K];
    }
    args
}

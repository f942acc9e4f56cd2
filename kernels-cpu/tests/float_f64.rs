//! Row-wise operations against their definitions in f64, and every instruction set against the scalar twin.

use ember_kernels_cpu::float::*;
use ember_kernels_cpu::{Isa, ThreadPool};
use ember_test_support::{Random, definition, distance};

/// L2 distance from f64, relative to the length of the result.
const TOLERANCE: f64 = 1e-6;

/// Rows small and large, of lengths that do and do not divide into vectors.
const SHAPES: [(usize, usize); 8] =
    [(1, 1), (3, 7), (2, 8), (5, 33), (1, 1024), (16, 128), (3, 5120), (700, 100)];

/// Bell-shaped random numbers, some of them large.
fn floats(seed: u64, n: usize) -> Vec<f32> {
    let bell = Random::new(seed).bell(n).into_iter().enumerate();
    bell.map(|(i, x)| if i % 13 == 0 { 7.0 * x } else { x }).collect()
}

/// Runs `f` on every instruction set and number of threads; all must give the same bits.
fn everywhere(what: &str, f: impl Fn(Isa, &ThreadPool) -> Vec<f32>) -> Vec<f32> {
    let first = f(Isa::Scalar, &ThreadPool::new(1));
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        for threads in [1, 2, 3] {
            let other = f(isa, &ThreadPool::new(threads));
            let same = first.iter().zip(&other).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same && first.len() == other.len(), "{what} on {isa:?} and {threads} threads");
        }
    }
    first
}

#[track_caller]
fn assert_close(what: &str, actual: &[f32], expected: &[f64]) {
    let error = distance(actual, expected);
    assert!(error < TOLERANCE, "{what}: {error:e}");
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|x| f64::from(*x)).collect()
}

#[test]
fn rms_norm_equals_f64() {
    for (rows, width) in SHAPES {
        let (x, weight) = (floats(1, rows * width), floats(2, width));
        for eps in [1e-6, 0.1] {
            let what = format!("rms_norm of {rows} x {width}");
            let out = everywhere(&what, |isa, pool| {
                let mut out = vec![7.0; x.len()];
                rms_norm_with(isa, pool, &x, &weight, eps, &mut out);
                out
            });
            assert_close(&what, &out, &definition::rms_norm(&x, &weight, eps));
        }
    }
}

#[test]
fn add_rms_norm_equals_its_parts() {
    for (rows, width) in SHAPES {
        let (residual, x, weight) = (floats(1, rows * width), floats(3, rows * width), floats(2, width));
        let what = format!("add_rms_norm of {rows} x {width}");
        let both = everywhere(&what, |isa, pool| {
            let (mut residual, mut out) = (residual.clone(), vec![7.0; x.len()]);
            add_rms_norm_with(isa, pool, &mut residual, &x, &weight, 1e-5, &mut out);
            residual.extend(out);
            residual
        });
        let sum = everywhere("add", |isa, pool| {
            let mut sum = residual.clone();
            add_with(isa, pool, &mut sum, &x);
            sum
        });
        assert_eq!(both[..x.len()], sum);
        assert!(sum.iter().zip(residual.iter().zip(&x)).all(|(sum, (a, b))| *sum == a + b));
        let mut norm = vec![7.0; x.len()];
        rms_norm(&sum, &weight, 1e-5, &mut norm);
        assert_eq!(both[x.len()..], norm);
    }
}

#[test]
fn gated_activations_equal_f64() {
    type Gated = fn(Isa, &ThreadPool, &[f32], &[f32], &mut [f32]);
    let tanh =
        |x: f64| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh());
    type Exact<'a> = &'a dyn Fn(f64) -> f64;
    let cases: [(&str, Gated, Exact); 3] = [
        ("swiglu", swiglu_with, &|x| x / (1.0 + (-x).exp())),
        ("geglu_tanh", geglu_tanh_with, &tanh),
        ("geglu_erf", geglu_erf_with, &|x| 0.5 * x * libm::erfc(-x / 2f64.sqrt())),
    ];
    for (name, function, exact) in cases {
        for (rows, width) in SHAPES {
            let (gate, up) = (floats(4, rows * width), floats(5, rows * width));
            let what = format!("{name} of {rows} x {width}");
            let out = everywhere(&what, |isa, pool| {
                let mut out = vec![7.0; gate.len()];
                function(isa, pool, &gate, &up, &mut out);
                out
            });
            let expected: Vec<f64> =
                gate.iter().zip(&up).map(|(g, u)| exact(f64::from(*g)) * f64::from(*u)).collect();
            assert_close(&what, &out, &expected);
        }
        // Each element by itself, from the far left tail on.
        let gate: Vec<f32> = (-8000..=8000).map(|i| i as f32 * 1e-3).collect();
        let mut out = vec![7.0; gate.len()];
        function(Isa::best(), &ThreadPool::new(1), &gate, &vec![1.0; gate.len()], &mut out);
        for (x, y) in gate.iter().zip(out) {
            let exact = exact(f64::from(*x));
            let error = (f64::from(y) - exact).abs();
            assert!(error <= 1e-6 * exact.abs() + 1e-7, "{name}({x}) = {y}, not {exact}");
        }
        let mut limits = [7.0; 4];
        let pool = ThreadPool::new(1);
        function(Isa::best(), &pool, &[f32::INFINITY, -1e4, 0.0, f32::NAN], &[1.0; 4], &mut limits);
        assert_eq!(limits[..3], [f32::INFINITY, 0.0, 0.0], "{name}");
        assert!(limits[3].is_nan(), "{name}");
    }
}

#[test]
fn rope_equals_f64() {
    for pairing in [Pairing::Half, Pairing::Adjacent] {
        for (tokens, heads, head_dim, rot) in [
            (1, 1, 2, 2),
            (3, 2, 20, 20),
            (5, 3, 64, 64),
            (4, 2, 128, 96),
            (300, 4, 128, 128),
            (2, 1, 80, 6),
            (2, 1, 8, 0),
        ] {
            let x = floats(6, tokens * heads * head_dim);
            let pairs = rot / 2;
            let angle = |i: usize| (i % pairs + 1) as f64 * (i / pairs) as f64 * 0.37;
            let cos: Vec<f32> = (0..tokens * pairs).map(|i| angle(i).cos() as f32).collect();
            let sin: Vec<f32> = (0..tokens * pairs).map(|i| angle(i).sin() as f32).collect();
            let what = format!("{pairing:?} {tokens} x {heads} x {head_dim}, {rot} rotated");
            let out = everywhere(&what, |isa, pool| {
                let mut out = x.clone();
                rope_with(isa, pool, &mut out, [heads, head_dim], &cos, &sin, pairing);
                out
            });
            let mut expected = wide(&x);
            for (row, x) in expected.chunks_mut(head_dim).enumerate() {
                let angles = row / heads * pairs..(row / heads + 1) * pairs;
                let neighbours = pairing == Pairing::Adjacent;
                definition::rotate(x, &cos[angles.clone()], &sin[angles], neighbours);
            }
            assert_close(&what, &out, &expected);
            let unrotated =
                |x: &[f32]| x.chunks(head_dim).flat_map(|x| x[rot..].to_vec()).collect::<Vec<_>>();
            assert_eq!(unrotated(&out), unrotated(&x), "{what}");
        }
    }
}

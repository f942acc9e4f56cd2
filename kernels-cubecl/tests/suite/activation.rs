//! SwiGLU and GEGLU.
use crate::device::{gpu, upload};
use ember_kernels_cubecl::activation;
use ember_test_support::{distance, random};

#[test]
fn the_gate_is_silu() {
    let gpu = gpu();
    for len in [1, 255, 256, 1000] {
        let gate: Vec<f32> = random(1, len).iter().map(|x| 20.0 * x).collect();
        let up = random(2, len);
        let y = activation::swiglu(&gpu, &upload(&gpu, &gate), &upload(&gpu, &up));
        let silu = |x: f64| x / (1.0 + (-x).exp());
        let expected: Vec<f64> =
            gate.iter().zip(&up).map(|(&g, &u)| silu(f64::from(g)) * f64::from(u)).collect();
        let error = distance(&gpu.read_f32(&y).unwrap(), &expected);
        assert!(error < 1e-6, "{len}: {error}");
    }
}

/// `(x, x / 2 * (1 + erf(x / sqrt(2))))`, from the error function to 16 digits.
const GELU: [(f32, f64); 9] = [
    (-4.0, -0.00012668496733247986),
    (-1.5, -0.10021080190328713),
    (-1.0, -0.15865525393145707),
    (-0.25, -0.10032341857926907),
    (0.0, 0.0),
    (0.25, 0.14967658142073093),
    (1.0, 0.8413447460685429),
    (1.5, 1.399789198096713),
    (4.0, 3.9998733150326675),
];

#[test]
fn the_gate_is_gelu_by_the_error_function() {
    let gpu = gpu();
    let gate: Vec<f32> = GELU.iter().map(|pair| pair.0).collect();
    let y = activation::geglu(&gpu, &upload(&gpu, &gate), &upload(&gpu, &[-0.5; GELU.len()]));
    let y = gpu.read_f32(&y).unwrap();
    assert_eq!(y.len(), GELU.len());
    for ((x, gelu), y) in GELU.into_iter().zip(y) {
        assert!((f64::from(y) + 0.5 * gelu).abs() < 1e-6, "{x}: {y} for {}", -0.5 * gelu);
    }
}

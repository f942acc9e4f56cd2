//! SwiGLU.
use crate::device::{gpu, random, relative_error, upload};
use ember_kernels_cubecl::activation;

#[test]
fn the_gate_is_silu() {
    let gpu = gpu();
    for len in [1, 255, 256, 1000] {
        let gate: Vec<f32> = random(len, 1).iter().map(|x| 20.0 * x).collect();
        let up = random(len, 2);
        let y = activation::swiglu(&gpu, &upload(&gpu, &gate), &upload(&gpu, &up));
        let silu = |x: f64| x / (1.0 + (-x).exp());
        let expected: Vec<f64> =
            gate.iter().zip(&up).map(|(&g, &u)| silu(f64::from(g)) * f64::from(u)).collect();
        let error = relative_error(&gpu.read_f32(&y).unwrap(), &expected);
        assert!(error < 1e-6, "{len}: {error}");
    }
}

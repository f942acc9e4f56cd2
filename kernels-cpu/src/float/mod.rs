//! Row-wise f32 operations: norms, rotations, gated activations, sums.
//!
//! Each has a plain form, which uses the best instruction set and the global pool, and a `_with` form that is told
//! both. Results depend on neither.

mod activation;
mod elementwise;
mod exp;
pub(crate) mod lanes;
#[cfg(target_arch = "x86_64")]
mod lanes_avx2;
pub(crate) mod pieces;
mod rms_norm;
mod rope;

pub use ember_formats::Pairing;

pub use activation::{geglu_erf, geglu_erf_with, geglu_tanh, geglu_tanh_with, swiglu, swiglu_with};
pub use elementwise::{add, add_with};
pub(crate) use exp::exp;
pub use rms_norm::{add_rms_norm, add_rms_norm_with, rms_norm, rms_norm_with};
pub use rope::{rope, rope_with};

use crate::isa::Isa;
use lanes::{Kernel, Scalar, Simd};

/// Runs `kernel` compiled for `isa`.
///
/// # Panics
/// If this processor does not have `isa`.
pub(crate) fn dispatch<K: Kernel>(isa: Isa, kernel: K) -> K::Output {
    match isa {
        Isa::Scalar => Scalar.vectorize(kernel),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => {
            lanes_avx2::Avx2::detect().expect("this processor has AVX2, FMA and F16C").vectorize(kernel)
        }
        #[cfg(not(target_arch = "x86_64"))]
        Isa::Avx2 => panic!("AVX2 exists on x86-64 only"),
    }
}

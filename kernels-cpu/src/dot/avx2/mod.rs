//! The kernels for x86-64 with AVX2, FMA and F16C.

mod codes256;
mod codes32;
mod float;
mod float_panel;
mod panel;
mod quantize;
mod rows;
mod vector;

pub(super) use quantize::quantize_row;

use ember_formats::GgmlType;

use super::format::*;
use super::{Kernel, act_format};

/// The kernels for weights of type `ty`.
pub(super) fn kernel(ty: GgmlType) -> Kernel {
    use GgmlType as T;
    let format = act_format(ty);
    macro_rules! blocks32 {
        ($F:ty) => {
            Kernel { format, rows: rows::rows32::<$F>, panel: Some(panel::kernel32::<$F>()) }
        };
    }
    macro_rules! supers256 {
        ($F:ty) => {
            Kernel { format, rows: rows::rows256::<$F>, panel: Some(panel::kernel256::<$F>()) }
        };
    }
    macro_rules! floats {
        ($F:ty) => {
            Kernel { format, rows: float::rows::<$F>, panel: Some(float_panel::kernel::<$F>()) }
        };
    }
    match ty {
        T::F32 => floats!(float::F32),
        T::F16 => floats!(float::F16),
        T::BF16 => floats!(float::Bf16),
        T::Q4_0 => blocks32!(Q4_0),
        T::Q4_1 => blocks32!(Q4_1),
        T::Q5_0 => blocks32!(Q5_0),
        T::Q5_1 => blocks32!(Q5_1),
        T::Q8_0 => blocks32!(Q8_0),
        T::IQ4_NL => blocks32!(Iq4Nl),
        T::Q2_K => supers256!(Q2K),
        T::Q3_K => supers256!(Q3K),
        T::Q4_K => supers256!(Q4K),
        T::Q5_K => supers256!(Q5K),
        T::Q6_K => supers256!(Q6K),
        T::IQ4_XS => supers256!(Iq4Xs),
    }
}

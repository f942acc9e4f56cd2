//! The device under test, and data for it.
pub use crate::under_test::{TestRuntime, gpu};
use ember_kernels_cubecl::{Buffer, Capabilities, Gpu};

/// The device as it is, with plane operations (which llvmpipe runs but does not advertise), and without.
pub fn plane_variants() -> Vec<Gpu<TestRuntime>> {
    let gpu = gpu();
    let plane = Some(gpu.client.properties().hardware.plane_size_max);
    [plane, None].map(|plane| gpu.with_capabilities(Capabilities { plane, ..gpu.caps() })).into()
}

/// Uploads floats.
pub fn upload(gpu: &Gpu<TestRuntime>, values: &[f32]) -> Buffer {
    let words: Vec<u32> = values.iter().map(|value| value.to_bits()).collect();
    gpu.upload("test data", &words).expect("test data is small")
}

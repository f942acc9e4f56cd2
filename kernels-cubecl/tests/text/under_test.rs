//! The device that the tests of `tests/suite` run on here: CUDA kernels of compute capability 8.0, on the CPU.
use crate::classes;
use crate::language::Cuda;
use crate::runtime::TextRuntime;
use ember_kernels_cubecl::Gpu;

pub type TestRuntime = TextRuntime<Cuda>;

/// The device of this test, so that tests run side by side.
pub fn gpu() -> Gpu<TestRuntime> {
    thread_local! {
        static GPU: Gpu<TestRuntime> = edited(|text| text);
    }
    GPU.with(Clone::clone)
}

/// A fresh device that runs what `edit` makes of kernels.
pub fn edited(edit: fn(String) -> String) -> Gpu<TestRuntime> {
    let [_, ampere, _] = classes::cuda();
    TextRuntime::emulated(ampere, edit)
}

//! The device that the tests of `tests/suite` run on here: CUDA kernels of compute capability 8.0, on the CPU.
use crate::classes;
use crate::language::Cuda;
use crate::runtime::TextRuntime;
use cubecl::client::ComputeClient;

pub type TestRuntime = TextRuntime<Cuda>;

/// The device of this test, so that tests run side by side.
pub fn client() -> ComputeClient<TestRuntime> {
    thread_local! {
        static CLIENT: ComputeClient<TestRuntime> = edited(|text| text);
    }
    CLIENT.with(Clone::clone)
}

/// A fresh device that runs what `edit` makes of kernels.
pub fn edited(edit: fn(String) -> String) -> ComputeClient<TestRuntime> {
    let [_, ampere, _] = classes::cuda();
    TextRuntime::emulated(ampere, edit)
}

//! The runtime of the feature that is compiled in.
use cubecl::client::ComputeClient;
use cubecl::prelude::Runtime;

#[cfg(feature = "cuda")]
pub type TestRuntime = cubecl::cuda::CudaRuntime;
#[cfg(not(feature = "cuda"))]
pub type TestRuntime = cubecl::wgpu::WgpuRuntime;

/// The default device.
pub fn client() -> ComputeClient<TestRuntime> {
    TestRuntime::client(&Default::default())
}

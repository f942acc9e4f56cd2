//! The runtime of the feature that is compiled in.
use ember_kernels_cubecl::Gpu;

#[cfg(feature = "cuda")]
pub type TestRuntime = cubecl::cuda::CudaRuntime;
#[cfg(not(feature = "cuda"))]
pub type TestRuntime = cubecl::wgpu::WgpuRuntime;

/// The default device, which must exist.
pub fn gpu() -> Gpu<TestRuntime> {
    Gpu::open(&Default::default())
}

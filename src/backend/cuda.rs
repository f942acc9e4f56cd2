//! NVIDIA devices, through CUDA.
use super::{BackendKind, DeviceInfo, gpu};
use anyhow::{Context, Result, bail};
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::Runtime as _;
use burn_cubecl::cubecl::cuda::{CudaDevice, CudaRuntime, install};
use cudarc::driver::{result, sys};
use indicatif::BinaryBytes;

/// The CubeCL runtime.
pub type Runtime = CudaRuntime;

/// The Burn backend of all CUDA devices.
pub type Cuda = CubeBackend<CudaRuntime, f32, i32, u8>;

/// See [`devices`](super::devices).
pub fn devices() -> Result<Vec<DeviceInfo>> {
    let count = device_count()?;
    (0..count).map(info).collect()
}

fn info(index: usize) -> Result<DeviceInfo> {
    let (name, memory) = name_and_memory(index)?;
    gpu::prepare();
    let mut facts = gpu::facts(&CudaRuntime::client(&CudaDevice::new(index)));
    facts.insert(0, format!("memory: {}", BinaryBytes(memory)));
    if let Err(error) = check_toolkit() {
        facts.push(format!("cannot be used: {error}"));
    }
    Ok(DeviceInfo { backend: BackendKind::Cuda, index, name, facts })
}

/// Device `index` and its name, ready for use.
///
/// # Errors
/// When there is no such device, or kernels cannot be compiled for it.
pub fn open(index: usize) -> Result<(CudaDevice, String)> {
    let count = device_count()?;
    if count == 0 {
        bail!("no CUDA device was found: use --backend ndarray for the CPU");
    }
    if index >= count {
        bail!("--device {index} does not exist: `ember devices` lists {count} for cuda, from 0");
    }
    check_toolkit()?;
    let (name, _) = name_and_memory(index)?;
    gpu::prepare();
    Ok((CudaDevice::new(index), name))
}

/// How many devices the driver sees.
fn device_count() -> Result<usize> {
    // SAFETY: only looks for the library and loads it.
    if !unsafe { sys::is_culib_present() } {
        bail!(
            "the CUDA driver (libcuda) was not found: install NVIDIA's driver, or use --backend ndarray for the CPU"
        );
    }
    result::init().context("the CUDA driver does not start")?;
    let count = result::device::get_count().context("the CUDA driver lists no devices")?;
    Ok(count as usize)
}

fn name_and_memory(index: usize) -> Result<(String, u64)> {
    let device = result::device::get(index as i32).with_context(|| format!("CUDA device {index}"))?;
    let name = result::device::get_name(device).with_context(|| format!("CUDA device {index}"))?;
    // SAFETY: `device` was just returned by the driver.
    let memory =
        unsafe { result::device::total_mem(device) }.with_context(|| format!("CUDA device {index}"))?;
    Ok((name, memory as u64))
}

/// Kernels are compiled at run time: that takes NVRTC and CUDA's headers.
fn check_toolkit() -> Result<()> {
    // SAFETY: only looks for the library and loads it.
    if !unsafe { cudarc::nvrtc::sys::is_culib_present() } {
        bail!(
            "NVRTC (libnvrtc), which compiles the kernels, was not found: install the CUDA toolkit, or its cuda-nvrtc package"
        );
    }
    let headers = install::cuda_path().map(|path| path.join("include/cuda_runtime.h"));
    if !headers.is_some_and(|header| header.exists()) {
        bail!(
            "CUDA's headers were not found: install the CUDA toolkit (or its cuda-cudart-dev package), or set CUDA_PATH to its folder"
        );
    }
    Ok(())
}

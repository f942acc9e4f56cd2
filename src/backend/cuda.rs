//! NVIDIA devices, through CUDA.
use super::gpu::{self, Watched};
use super::{BackendKind, DeviceInfo, Placed, PlacementOptions, load};
use anyhow::{Context, Result, bail};
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::Runtime;
use burn_cubecl::cubecl::cuda::{CudaDevice, CudaRuntime, install};
use cudarc::driver::{result, sys};
use ember_loaders::checkpoint::Checkpoint;
use indicatif::BinaryBytes;

/// The Burn backend of all CUDA devices.
type Cuda = CubeBackend<CudaRuntime, f32, i32, u8>;

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

/// See [`place`](super::place).
pub fn place(
    checkpoint: &Checkpoint,
    options: &PlacementOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<Placed> {
    let count = device_count()?;
    if count == 0 {
        bail!("no CUDA device was found: use --backend ndarray for the CPU");
    }
    if options.device >= count {
        bail!("--device {} does not exist: `ember devices` lists {count} for cuda, from 0", options.device);
    }
    check_toolkit()?;
    let (name, _) = name_and_memory(options.device)?;
    gpu::prepare();
    let device = CudaDevice::new(options.device);
    let runner = load::<Cuda>(checkpoint, options, device, gpu::PREFILL_ROWS, progress);
    // What happened on the device's thread says more than what it led to.
    let runner = match gpu::device_failure() {
        Some(error) => return Err(error.into()),
        None => runner?,
    };
    Ok(Placed { runner: Box::new(Watched(runner)), device: name, compiles_kernels: true })
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

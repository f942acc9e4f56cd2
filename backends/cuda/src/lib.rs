//! Ember's models on NVIDIA GPUs, through CUDA. Empty without the feature `cuda`.
#![cfg(feature = "cuda")]

use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::Runtime as _;
use burn_cubecl::cubecl::cuda::{CudaDevice, CudaRuntime, install};
use cudarc::driver::{DriverError, result, sys};
use ember_backend_common::{
    BinaryBytes, CacheOptions, DeviceError, DeviceInfo, Floor, LoadedModel, Progress, gpu, measure,
};
use ember_loaders::checkpoint::Checkpoint;
use ember_loaders::projector::Projector;
use ember_models::{ImageEncoder, PixtralEncoder};

/// The Burn backend of all CUDA devices.
pub type Cuda = CubeBackend<CudaRuntime, f32, i32, u8>;

/// The devices that the driver sees.
///
/// # Errors
/// A driver that is not there: the message says what to install.
pub fn devices() -> Result<Vec<DeviceInfo>, DeviceError> {
    let count = device_count()?;
    (0..count).map(info).collect()
}

fn info(index: usize) -> Result<DeviceInfo, DeviceError> {
    let (name, memory) = name_and_memory(index)?;
    gpu::prepare();
    let mut facts = gpu::facts(&CudaRuntime::client(&CudaDevice::new(index)));
    facts.insert(0, format!("memory: {}", BinaryBytes(memory)));
    if let Err(error) = check_toolkit() {
        facts.push(format!("cannot be used: {error}"));
    }
    Ok(DeviceInfo { index, name, facts })
}

/// Builds the model of a checkpoint on a device.
///
/// # Errors
/// A device that is not there or fails, a context beyond the model's, a cache or weights that do not fit, or a missing
/// tensor.
pub fn load(
    checkpoint: &Checkpoint,
    device: usize,
    options: CacheOptions,
    progress: Progress<'_>,
) -> Result<LoadedModel, DeviceError> {
    gpu::load::<Cuda>(checkpoint, options, open(device)?, progress)
}

/// Builds the image encoder of a projector file on a device.
///
/// # Errors
/// A device that is not there or fails, or weights that do not fit.
pub fn load_projector(
    projector: &Projector,
    device: usize,
    progress: Progress<'_>,
) -> Result<Box<dyn ImageEncoder>, DeviceError> {
    Ok(Box::new(PixtralEncoder::<Cuda>::load(projector, open(device)?.0, progress)?))
}

/// Measures what a device does at best.
///
/// # Errors
/// A device that is not there or fails.
pub fn floor(device: usize) -> Result<Floor, DeviceError> {
    gpu::floor::<CudaRuntime>(&open(device)?.0)
}

/// Measures single products of a device beside what it does at best; `report` gets a line for each.
///
/// # Errors
/// A device that is not there or fails.
pub fn measure(device: usize, report: &mut dyn FnMut(String)) -> Result<(), DeviceError> {
    measure::measure::<CudaRuntime>(&open(device)?.0, report)
}

/// Compares every kernel of a device with its definition on the CPU; `report` gets, for each comparison, whether it holds
/// and its text.
///
/// # Errors
/// A device that is not there or fails.
#[cfg(feature = "check")]
pub fn check(device: usize, report: &mut dyn FnMut(bool, String)) -> Result<(), DeviceError> {
    ember_backend_common::check::check::<CudaRuntime, Cuda>(&open(device)?.0, report)
}

/// Device `index` and its name, ready for use.
fn open(index: usize) -> Result<(CudaDevice, String), DeviceError> {
    let available = device_count()?;
    if available == 0 {
        return Err(DeviceError::NoDevice { advice: "the CUDA driver lists none" });
    }
    if index >= available {
        return Err(DeviceError::NoSuchDevice { index, available });
    }
    check_toolkit()?;
    let (name, _) = name_and_memory(index)?;
    gpu::prepare();
    Ok((CudaDevice::new(index), name))
}

/// Number of devices that the driver sees.
fn device_count() -> Result<usize, DeviceError> {
    // SAFETY: only looks for the library and loads it.
    if !unsafe { sys::is_culib_present() } {
        return Err(DeviceError::NoDriver(
            "the CUDA driver (libcuda) was not found: install NVIDIA's driver".to_owned(),
        ));
    }
    let failed = |what: &str, error| DeviceError::NoDriver(format!("the CUDA driver {what}: {error}"));
    result::init().map_err(|error| failed("does not start", error))?;
    let count = result::device::get_count().map_err(|error| failed("lists no devices", error))?;
    Ok(count as usize)
}

fn name_and_memory(index: usize) -> Result<(String, u64), DeviceError> {
    let read = || {
        let device = result::device::get(index as i32)?;
        let name = result::device::get_name(device)?;
        // SAFETY: `device` was just returned by the driver.
        let memory = unsafe { result::device::total_mem(device) }?;
        Ok((name, memory as u64))
    };
    read().map_err(|error: DriverError| DeviceError::NoDriver(format!("CUDA device {index}: {error}")))
}

/// Kernels are compiled at run time: that takes NVRTC and CUDA's headers.
fn check_toolkit() -> Result<(), DeviceError> {
    // SAFETY: only looks for the library and loads it.
    if !unsafe { cudarc::nvrtc::sys::is_culib_present() } {
        return Err(DeviceError::NoDriver(
            "NVRTC (libnvrtc), which compiles the kernels, was not found: install the CUDA toolkit, or its cuda-nvrtc package".to_owned(),
        ));
    }
    let headers = install::cuda_path().map(|path| path.join("include/cuda_runtime.h"));
    if !headers.is_some_and(|header| header.exists()) {
        return Err(DeviceError::NoDriver(
            "CUDA's headers were not found: install the CUDA toolkit (or its cuda-cudart-dev package), or set CUDA_PATH to its folder".to_owned(),
        ));
    }
    Ok(())
}

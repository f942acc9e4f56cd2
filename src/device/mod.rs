//! The choice of a backend: the only file of this package that depends on which ones are compiled in. Each backend is a
//! crate of its own, which holds everything generic over tensors.
mod error;

pub use ember_backend_common::{CacheOptions, DeviceInfo, Floor, LoadedModel};
pub use ember_models::KvType;
pub use error::{BackendError, DeviceError};

#[cfg(feature = "ndarray")]
use ember_backend_cpu as cpu;
#[cfg(feature = "cuda")]
use ember_backend_cuda as cuda;
#[cfg(any(feature = "vulkan", feature = "metal", feature = "wgpu"))]
use ember_backend_wgpu as wgpu;
use ember_loaders::checkpoint::Checkpoint;
use ember_loaders::projector::Projector;
use ember_models::ImageEncoder;
use std::fmt;

#[cfg(not(any(feature = "ndarray", feature = "gpu")))]
compile_error!(
    "ember needs a backend to run on: build with --features ndarray (the default), vulkan, metal, wgpu or cuda"
);

/// A backend that a command can run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendKind {
    /// NVIDIA GPUs through CUDA.
    Cuda,
    /// Apple GPUs.
    Metal,
    /// GPUs through Vulkan, kernels as SPIR-V.
    Vulkan,
    /// GPUs through WebGPU, kernels as WGSL.
    Wgpu,
    /// The CPU.
    Ndarray,
}

impl BackendKind {
    /// Every backend, compiled in or not.
    pub const ALL: [Self; 5] = [Self::Cuda, Self::Metal, Self::Vulkan, Self::Wgpu, Self::Ndarray];

    /// The backends of this binary, the default one first.
    pub const COMPILED: &[Self] = &[
        #[cfg(feature = "cuda")]
        Self::Cuda,
        #[cfg(feature = "metal")]
        Self::Metal,
        #[cfg(feature = "vulkan")]
        Self::Vulkan,
        #[cfg(feature = "wgpu")]
        Self::Wgpu,
        #[cfg(feature = "ndarray")]
        Self::Ndarray,
    ];

    /// The name of the backend, which is that of its cargo feature.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Metal => "metal",
            Self::Vulkan => "vulkan",
            Self::Wgpu => "wgpu",
            Self::Ndarray => "ndarray",
        }
    }

    /// A line for people.
    pub fn description(self) -> &'static str {
        match self {
            Self::Cuda => "NVIDIA GPUs through CUDA",
            Self::Metal => "Apple GPUs",
            Self::Vulkan => "GPUs through Vulkan, kernels as SPIR-V",
            Self::Wgpu => "GPUs through WebGPU, kernels as WGSL",
            Self::Ndarray => "The CPU",
        }
    }

    fn check_compiled(self) -> Result<(), BackendError> {
        if Self::COMPILED.contains(&self) {
            return Ok(());
        }
        Err(BackendError::NotCompiledIn { backend: self, compiled: Self::COMPILED })
    }

    /// Adds the backend to its device's error.
    fn named<T>(self, result: Result<T, DeviceError>) -> Result<T, BackendError> {
        result.map_err(|error| BackendError::Device { backend: self, error })
    }

    #[cfg(any(feature = "vulkan", feature = "metal", feature = "wgpu"))]
    fn api(self) -> wgpu::Api {
        match self {
            Self::Metal => wgpu::Api::Metal,
            Self::Vulkan => wgpu::Api::Vulkan,
            _ => wgpu::Api::WebGpu,
        }
    }
}

impl Default for BackendKind {
    fn default() -> Self {
        Self::COMPILED[0]
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The place where models run.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceOptions {
    /// The backend.
    pub backend: BackendKind,
    /// Number of the device, as [`devices`] counts those of the backend.
    pub device: usize,
    /// CPU threads; `None` is one per core.
    pub threads: Option<usize>,
}

/// The choices made when a model is loaded.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// Backend, device and threads.
    pub device: DeviceOptions,
    /// KV entries in all, and their type.
    pub cache: CacheOptions,
}

/// The devices that a backend sees.
///
/// # Errors
/// A backend that is not compiled in, or whose driver is not there: the message says what to install.
pub fn devices(backend: BackendKind) -> Result<Vec<DeviceInfo>, BackendError> {
    backend.check_compiled()?;
    match backend {
        #[cfg(feature = "cuda")]
        BackendKind::Cuda => backend.named(cuda::devices()),
        #[cfg(any(feature = "vulkan", feature = "metal", feature = "wgpu"))]
        BackendKind::Vulkan | BackendKind::Metal | BackendKind::Wgpu => Ok(wgpu::devices(backend.api())),
        #[cfg(feature = "ndarray")]
        BackendKind::Ndarray => Ok(cpu::devices()),
        #[allow(unreachable_patterns, reason = "reachable when a backend is left out")]
        _ => unreachable!("check_compiled refused what is not compiled in"),
    }
}

/// Compares every kernel of a device with its definition on the CPU: all block types, row counts and page types.
/// `report` gets, for each comparison, its truth and its text.
///
/// # Errors
/// A backend or device that is not there, or that fails; a binary without the CPU backend.
pub fn check(
    backend: BackendKind,
    device: usize,
    report: &mut dyn FnMut(bool, String),
) -> Result<(), BackendError> {
    backend.check_compiled()?;
    match backend {
        #[cfg(all(feature = "cuda", feature = "ndarray"))]
        BackendKind::Cuda => backend.named(cuda::check(device, report)),
        #[cfg(all(any(feature = "vulkan", feature = "metal", feature = "wgpu"), feature = "ndarray"))]
        BackendKind::Vulkan | BackendKind::Metal | BackendKind::Wgpu => {
            backend.named(wgpu::check(backend.api(), device, report))
        }
        _ => {
            let _unused_without_gpus = (device, report);
            Err(BackendError::NothingToCompare { backend })
        }
    }
}

/// Measures single products of a GPU beside what it does at best; `report` gets a line for each.
///
/// # Errors
/// A backend or device that is not there, or that fails; the CPU.
pub fn measure(
    backend: BackendKind,
    device: usize,
    report: &mut dyn FnMut(String),
) -> Result<(), BackendError> {
    backend.check_compiled()?;
    match backend {
        #[cfg(feature = "cuda")]
        BackendKind::Cuda => backend.named(cuda::measure(device, report)),
        #[cfg(any(feature = "vulkan", feature = "metal", feature = "wgpu"))]
        BackendKind::Vulkan | BackendKind::Metal | BackendKind::Wgpu => {
            backend.named(wgpu::measure(backend.api(), device, report))
        }
        _ => {
            let _unused_without_gpus = (device, report);
            Err(BackendError::NotMeasured { backend })
        }
    }
}

/// Measures what a GPU does at best; nothing for the CPU.
///
/// # Errors
/// A backend or device that is not there, or that fails.
pub fn floor(backend: BackendKind, device: usize) -> Result<Option<Floor>, BackendError> {
    backend.check_compiled()?;
    match backend {
        #[cfg(feature = "cuda")]
        BackendKind::Cuda => backend.named(cuda::floor(device)).map(Some),
        #[cfg(any(feature = "vulkan", feature = "metal", feature = "wgpu"))]
        BackendKind::Vulkan | BackendKind::Metal | BackendKind::Wgpu => {
            backend.named(wgpu::floor(backend.api(), device)).map(Some)
        }
        _ => {
            let _unused_without_gpus = device;
            Ok(None)
        }
    }
}

/// Builds the model of a checkpoint on the chosen device, calling `progress` with the bytes of weights placed since its
/// last call.
///
/// # Errors
/// A backend or device that is not there, a context beyond the model's, a cache or weights that do not fit, or a missing
/// tensor.
pub fn load(
    checkpoint: &Checkpoint,
    options: &LoadOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<LoadedModel, BackendError> {
    let LoadOptions { device: DeviceOptions { backend, device, .. }, cache } = *options;
    backend.check_compiled()?;
    match backend {
        #[cfg(feature = "cuda")]
        BackendKind::Cuda => backend.named(cuda::load(checkpoint, device, cache, progress)),
        #[cfg(any(feature = "vulkan", feature = "metal", feature = "wgpu"))]
        BackendKind::Vulkan | BackendKind::Metal | BackendKind::Wgpu => {
            backend.named(wgpu::load(backend.api(), checkpoint, device, cache, progress))
        }
        #[cfg(feature = "ndarray")]
        BackendKind::Ndarray => {
            backend.named(cpu::load(checkpoint, device, options.device.threads, cache, progress))
        }
        #[allow(unreachable_patterns, reason = "reachable when a backend is left out")]
        _ => unreachable!("check_compiled refused what is not compiled in"),
    }
}

/// Builds the image encoder of a projector file on the chosen device, calling `progress` with the bytes of weights placed
/// since its last call.
///
/// # Errors
/// A backend or device that is not there, or weights that do not fit.
pub fn load_projector(
    projector: &Projector,
    options: &DeviceOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<Box<dyn ImageEncoder>, BackendError> {
    let DeviceOptions { backend, device, .. } = *options;
    backend.check_compiled()?;
    match backend {
        #[cfg(feature = "cuda")]
        BackendKind::Cuda => backend.named(cuda::load_projector(projector, device, progress)),
        #[cfg(any(feature = "vulkan", feature = "metal", feature = "wgpu"))]
        BackendKind::Vulkan | BackendKind::Metal | BackendKind::Wgpu => {
            backend.named(wgpu::load_projector(backend.api(), projector, device, progress))
        }
        #[cfg(feature = "ndarray")]
        BackendKind::Ndarray => {
            backend.named(cpu::load_projector(projector, device, options.threads, progress))
        }
        #[allow(unreachable_patterns, reason = "reachable when a backend is left out")]
        _ => unreachable!("check_compiled refused what is not compiled in"),
    }
}

//! The choice of a backend: the only file of this package that depends on which ones are compiled in.
#[cfg(all(feature = "gpu", feature = "ndarray"))]
mod check;
#[cfg(feature = "cuda")]
mod cuda;
mod encoder;
#[cfg(feature = "gpu")]
mod gpu;
#[cfg(feature = "gpu")]
mod measure;
#[cfg(feature = "ndarray")]
mod memory;
#[cfg(any(feature = "vulkan", feature = "metal", feature = "wgpu"))]
mod wgpu;

use crate::engine::Runner;
use crate::engine::runner::DecoderRunner;
use crate::engine::vision::ImageEncoder;
use anyhow::{Result, bail};
use ember_loaders::checkpoint::Checkpoint;
use ember_loaders::projector::Projector;
pub use ember_models::KvType;
use ember_models::backend::Backend;
use ember_models::{KvCache, TextModel, WeightFormat};
use std::fmt;

#[cfg(not(any(feature = "ndarray", feature = "gpu")))]
compile_error!(
    "ember needs a backend to run on: build with --features ndarray (the default), vulkan, metal, wgpu or cuda"
);

/// A backend that a command can run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum BackendKind {
    /// NVIDIA GPUs through CUDA
    Cuda,
    /// Apple GPUs
    Metal,
    /// GPUs through Vulkan, kernels as SPIR-V
    Vulkan,
    /// GPUs through WebGPU, kernels as WGSL
    Wgpu,
    /// The CPU
    Ndarray,
}

impl BackendKind {
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

    fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Metal => "metal",
            Self::Vulkan => "vulkan",
            Self::Wgpu => "wgpu",
            Self::Ndarray => "ndarray",
        }
    }

    fn check_compiled(self) -> Result<()> {
        if Self::COMPILED.contains(&self) {
            return Ok(());
        }
        let compiled: Vec<&str> = Self::COMPILED.iter().map(|kind| kind.name()).collect();
        bail!(
            "this binary was built without the {self} backend: build it with --features {self} (it has: {})",
            compiled.join(", ")
        )
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

/// A device that a backend sees.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// The backend.
    pub backend: BackendKind,
    /// Its number for `--device`.
    pub index: usize,
    /// What the driver calls it.
    pub name: String,
    /// What is known of it, one fact per line.
    pub facts: Vec<String>,
}

/// How to place a model.
#[derive(Clone, Copy, Debug)]
pub struct PlacementOptions {
    /// The backend.
    pub backend: BackendKind,
    /// Which of the backend's devices, as [`devices`] numbers them.
    pub device: usize,
    /// KV entries in all; `None` is the smaller of the model's context and 8192.
    pub context_size: Option<usize>,
    /// Element type of the KV cache.
    pub kv_type: KvType,
    /// CPU threads; `None` is one per core.
    pub threads: Option<usize>,
}

/// A model on its device.
pub struct Placed {
    /// The model.
    pub runner: Box<dyn Runner>,
    /// What it runs on, for people.
    pub device: String,
    /// Whether its kernels are compiled at their first use: worth a warm-up.
    pub compiles_kernels: bool,
}

/// What a device does at best.
#[derive(Clone, Copy, Debug)]
pub struct Floor {
    /// Bytes read and written per second by a copy.
    pub bytes_per_second: f64,
    /// Operations per second of its matrix units, or of f32 arithmetic where there are none.
    pub operations_per_second: f64,
}

/// The context size when none is asked for: the model's own may need more memory than the machine has.
pub const DEFAULT_CONTEXT: usize = 8192;

/// Rows of a prefill step: enough to amortise reading the weights, few enough that Ctrl-C is prompt.
#[cfg(feature = "ndarray")]
const CPU_PREFILL_ROWS: usize = 256;

/// The devices that a backend sees.
///
/// # Errors
/// A backend that is not compiled in, or whose driver is not there: the message says what to install.
pub fn devices(backend: BackendKind) -> Result<Vec<DeviceInfo>> {
    backend.check_compiled()?;
    match backend {
        #[cfg(feature = "cuda")]
        BackendKind::Cuda => cuda::devices(),
        #[cfg(any(feature = "vulkan", feature = "metal", feature = "wgpu"))]
        BackendKind::Vulkan | BackendKind::Metal | BackendKind::Wgpu => wgpu::devices(backend),
        _ => Ok(vec![DeviceInfo {
            backend,
            index: 0,
            name: "CPU".to_owned(),
            facts: vec![format!("{} threads", ember_models::cpu_pool().threads())],
        }]),
    }
}

/// Compares every kernel of a device with its definition on the CPU: all block types, row counts and page types.
/// `report` gets, for each comparison, whether it holds and what it was.
///
/// # Errors
/// A backend or device that is not there, or that fails; a binary without the CPU backend.
pub fn check(backend: BackendKind, device: usize, report: &mut dyn FnMut(bool, String)) -> Result<()> {
    backend.check_compiled()?;
    match backend {
        #[cfg(all(feature = "cuda", feature = "ndarray"))]
        BackendKind::Cuda => {
            let (device, _) = cuda::open(device)?;
            check::check::<cuda::Runtime, cuda::Cuda>(&device, report)
        }
        #[cfg(all(any(feature = "vulkan", feature = "metal", feature = "wgpu"), feature = "ndarray"))]
        BackendKind::Vulkan | BackendKind::Metal | BackendKind::Wgpu => {
            let (device, _) = wgpu::open(backend, device)?;
            check::check::<wgpu::Runtime, wgpu::Wgpu>(&device, report)
        }
        _ => {
            let _ = (device, report);
            bail!("there is nothing to compare {backend} with: it takes a GPU backend, built beside ndarray")
        }
    }
}

/// Measures single products of a GPU beside what it does at best; `report` gets a line for each.
///
/// # Errors
/// A backend or device that is not there, or that fails; the CPU.
pub fn measure(backend: BackendKind, device: usize, report: &mut dyn FnMut(String)) -> Result<()> {
    backend.check_compiled()?;
    match backend {
        #[cfg(feature = "cuda")]
        BackendKind::Cuda => measure::measure::<cuda::Runtime>(&cuda::open(device)?.0, report),
        #[cfg(any(feature = "vulkan", feature = "metal", feature = "wgpu"))]
        BackendKind::Vulkan | BackendKind::Metal | BackendKind::Wgpu => {
            measure::measure::<wgpu::Runtime>(&wgpu::open(backend, device)?.0, report)
        }
        _ => {
            let _ = (device, report);
            bail!("{backend} is measured by `ember bench` and `cargo bench`")
        }
    }
}

/// Measures what a GPU does at best; nothing for the CPU.
///
/// # Errors
/// A backend or device that is not there, or that fails.
pub fn floor(backend: BackendKind, device: usize) -> Result<Option<Floor>> {
    backend.check_compiled()?;
    match backend {
        #[cfg(feature = "cuda")]
        BackendKind::Cuda => gpu::floor::<cuda::Runtime>(&cuda::open(device)?.0).map(Some),
        #[cfg(any(feature = "vulkan", feature = "metal", feature = "wgpu"))]
        BackendKind::Vulkan | BackendKind::Metal | BackendKind::Wgpu => {
            gpu::floor::<wgpu::Runtime>(&wgpu::open(backend, device)?.0).map(Some)
        }
        _ => {
            let _ = device;
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
pub fn place(
    checkpoint: &Checkpoint,
    options: &PlacementOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<Placed> {
    options.backend.check_compiled()?;
    match options.backend {
        #[cfg(feature = "cuda")]
        BackendKind::Cuda => {
            gpu::place::<cuda::Cuda>(checkpoint, options, cuda::open(options.device)?, progress)
        }
        #[cfg(any(feature = "vulkan", feature = "metal", feature = "wgpu"))]
        BackendKind::Vulkan | BackendKind::Metal | BackendKind::Wgpu => {
            let device = wgpu::open(options.backend, options.device)?;
            gpu::place::<wgpu::Wgpu>(checkpoint, options, device, progress)
        }
        #[cfg(feature = "ndarray")]
        BackendKind::Ndarray => place_on_cpu(checkpoint, options, progress),
        #[allow(
            unreachable_patterns,
            reason = "reachable when a backend is left out, which check_compiled reports"
        )]
        _ => unreachable!("check_compiled refused what is not compiled in"),
    }
}

/// Builds the image encoder of a projector file on the chosen device, calling `progress` with the bytes of weights placed
/// since its last call.
///
/// # Errors
/// A backend or device that is not there, or weights that do not fit.
pub fn place_projector(
    projector: &Projector,
    options: &PlacementOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<Box<dyn ImageEncoder>> {
    options.backend.check_compiled()?;
    match options.backend {
        #[cfg(feature = "cuda")]
        BackendKind::Cuda => {
            let (device, _) = cuda::open(options.device)?;
            gpu::place_projector::<cuda::Cuda>(projector, device, progress)
        }
        #[cfg(any(feature = "vulkan", feature = "metal", feature = "wgpu"))]
        BackendKind::Vulkan | BackendKind::Metal | BackendKind::Wgpu => {
            let (device, _) = wgpu::open(options.backend, options.device)?;
            gpu::place_projector::<wgpu::Wgpu>(projector, device, progress)
        }
        #[cfg(feature = "ndarray")]
        BackendKind::Ndarray => {
            open_cpu(options)?;
            encoder::PixtralEncoder::<burn_ndarray::NdArray>::load(projector, Default::default(), progress)
        }
        #[allow(
            unreachable_patterns,
            reason = "reachable when a backend is left out, which check_compiled reports"
        )]
        _ => unreachable!("check_compiled refused what is not compiled in"),
    }
}

#[cfg(feature = "ndarray")]
fn open_cpu(options: &PlacementOptions) -> Result<()> {
    use anyhow::Context;
    if options.device != 0 {
        bail!("--device {} does not exist: the CPU is device 0", options.device);
    }
    memory::keep_freed_memory();
    match options.threads {
        Some(threads) => ember_models::set_cpu_threads(threads).context("--threads"),
        None => Ok(()),
    }
}

#[cfg(feature = "ndarray")]
fn place_on_cpu(
    checkpoint: &Checkpoint,
    options: &PlacementOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<Placed> {
    open_cpu(options)?;
    let device = Default::default();
    let runner = load::<burn_ndarray::NdArray>(checkpoint, options, device, CPU_PREFILL_ROWS, progress)?;
    let threads = ember_models::cpu_pool().threads();
    let device = format!("{threads} thread{}", if threads == 1 { "" } else { "s" });
    Ok(Placed { runner, device, compiles_kernels: false })
}

fn load<B: Backend>(
    checkpoint: &Checkpoint,
    options: &PlacementOptions,
    device: B::Device,
    prefill_rows: usize,
    progress: &mut dyn FnMut(u64),
) -> Result<Box<dyn Runner>> {
    let config = checkpoint.config();
    let entries = options.context_size.unwrap_or(config.context_length.min(DEFAULT_CONTEXT));
    if entries > config.context_length {
        bail!("--ctx-size {entries} is beyond the model's context of {}", config.context_length);
    }
    if entries == 0 {
        bail!("--ctx-size must be at least 1");
    }
    let cache = KvCache::new::<B>(config, options.kv_type, entries, &device)?;
    let model =
        TextModel::<B>::load_with(checkpoint, config.clone(), WeightFormat::Packed, &device, progress)?;
    Ok(Box::new(DecoderRunner::new(model, cache, device, prefill_rows)))
}

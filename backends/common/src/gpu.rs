//! What the GPU backends share: CubeCL's configuration, what a device reports, and failures on its thread.
use crate::{BinaryBytes, CacheOptions, DeviceError, Floor, LoadedModel, Progress};
use burn_cubecl::cubecl::Runtime;
use burn_cubecl::cubecl::client::ComputeClient;
use burn_cubecl::cubecl::config::CubeClRuntimeConfig;
use burn_cubecl::cubecl::config::cache::CacheConfig;
use burn_cubecl::cubecl::features::Plane;
use ember_kernels_cubecl::{Gpu, probe};
use ember_loaders::checkpoint::{Checkpoint, ModelConfig};
use ember_loaders::image::PixelValues;
use ember_loaders::projector::{PixtralConfig, Projector};
use ember_models::backend::Backend;
use ember_models::{Batch, ImageEncoder, ModelError, PixtralEncoder, Runner, RunnerOutput};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Rows of a prefill step: enough to keep the matrix units busy.
const PREFILL_ROWS: usize = 512;

/// Builds the model of a checkpoint on a device that comes with its name.
///
/// # Errors
/// As [`load`](crate::load), or a device that fails.
pub fn load<B: Backend>(
    checkpoint: &Checkpoint,
    options: CacheOptions,
    (device, name): (B::Device, String),
    progress: Progress<'_>,
) -> Result<LoadedModel, DeviceError> {
    let load = || crate::load::<B>(checkpoint, options, device.clone(), PREFILL_ROWS, progress);
    let runner = Box::new(Watched(watched_load::<B, _>(&device, load)?));
    Ok(LoadedModel { runner, device: name, compiles_kernels: true })
}

/// Builds the image encoder of a projector file.
///
/// # Errors
/// Weights that do not fit, or a device that fails.
pub fn load_projector<B: Backend>(
    projector: &Projector,
    device: B::Device,
    progress: Progress<'_>,
) -> Result<Box<dyn ImageEncoder>, DeviceError> {
    let load = || -> Result<Box<dyn ImageEncoder>, DeviceError> {
        Ok(Box::new(PixtralEncoder::<B>::load(projector, device.clone(), progress)?))
    };
    Ok(Box::new(Watched(watched_load::<B, _>(&device, load)?)))
}

/// Loads something onto a device, whose thread may fail without telling.
fn watched_load<B: Backend, T>(
    device: &B::Device,
    load: impl FnOnce() -> Result<T, DeviceError>,
) -> Result<T, DeviceError> {
    let loading = AssertUnwindSafe(|| {
        let loaded = load();
        // What the uploads passed through.
        B::memory_cleanup(device);
        loaded
    });
    // What happened on the device's thread says more than what it led to.
    match (catch_unwind(loading), device_failure()) {
        (_, Some(error)) => Err(error.into()),
        (Ok(loaded), None) => loaded,
        (Err(panic), None) => resume_unwind(panic),
    }
}

/// Measures what a device does at best.
///
/// # Errors
/// A device that fails.
pub fn floor<R: Runtime>(device: &R::Device) -> Result<Floor, DeviceError> {
    let floor = probe::floor(&Gpu::<R>::new(R::client(device)));
    if let Some(error) = device_failure() {
        return Err(error.into());
    }
    let probe::Floor { copy_bytes_per_second, operations_per_second } = floor.map_err(ModelError::from)?;
    Ok(Floor { bytes_per_second: copy_bytes_per_second, operations_per_second })
}

/// Prepares CubeCL before its first use: compiled kernels go to a cache on disk, and a panic on a device's thread is kept
/// for [`Watched`]. A `cubecl.toml` in the current folder or above it goes first.
pub fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        use burn_cubecl::cubecl::config::RuntimeConfig;
        let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
        if config.compilation.cache.is_none() {
            config.compilation.cache = kernel_cache().map(CacheConfig::File);
        }
        CubeClRuntimeConfig::set(config);
        keep_device_panics();
    });
}

/// A folder of this very build in `ember/kernels` in the user's folder for caches. CubeCL finds a kernel by its name and
/// arguments, so that another build's kernel of the same name would be run in place of this one's.
fn kernel_cache() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let base = if cfg!(windows) {
        folder("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        folder("HOME").map(|home| home.join("Library/Caches"))
    } else {
        folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))
    };
    let all = base?.join("ember/kernels");
    let binary = std::env::current_exe().and_then(std::fs::metadata).ok()?;
    let built = binary.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    let own = all.join(format!("{:x}-{:x}", built.as_nanos(), binary.len()));
    if !own.exists() {
        forget_old_builds(&all);
    }
    Some(own)
}

/// Leaves the kernels of the builds used last. What cannot be removed stays: it costs two megabytes.
fn forget_old_builds(all: &Path) {
    const KEPT: usize = 4;
    let Ok(folders) = std::fs::read_dir(all) else { return };
    let mut folders: Vec<(SystemTime, PathBuf)> = folders
        .filter_map(std::io::Result::ok)
        .filter_map(|folder| Some((folder.metadata().ok()?.modified().ok()?, folder.path())))
        .collect();
    folders.sort_unstable();
    for (_, old) in folders.iter().rev().skip(KEPT) {
        let _kept_if_in_use = std::fs::remove_dir_all(old);
    }
}

/// The first panic on a device's thread.
static DEVICE_PANIC: Mutex<Option<String>> = Mutex::new(None);

/// CubeCL runs a device on a thread of its own, called DSD or DSU and a number. When that thread panics (an allocation that
/// the driver refuses, a kernel that it does not compile), the caller reads zeros and goes on; so the message is kept, and
/// [`Watched`] looks for it. What the callers' threads panic about after that is only its consequence.
fn keep_device_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let on_device = std::thread::current().name().is_some_and(|name| name.starts_with("DS"));
        let mut kept = DEVICE_PANIC.lock().unwrap_or_else(PoisonError::into_inner);
        if on_device {
            kept.get_or_insert(panic.payload_as_str().unwrap_or("unknown failure").to_owned());
        } else if kept.is_none() {
            drop(kept);
            report(panic);
        }
    }));
}

/// What went wrong on a device's thread, if something did.
fn device_failure() -> Option<ModelError> {
    let panic = DEVICE_PANIC.lock().unwrap_or_else(PoisonError::into_inner);
    panic.as_ref().map(|message| ModelError::Device(format!("the device failed: {message}")))
}

/// A runner or encoder whose work fails when the device's thread did.
struct Watched<T: ?Sized>(Box<T>);

impl<T: ?Sized> Watched<T> {
    fn run<O>(&mut self, work: impl FnOnce(&mut T) -> Result<O, ModelError>) -> Result<O, ModelError> {
        // After a failure nothing of the model is used again, whatever state the panic left it in.
        let output = catch_unwind(AssertUnwindSafe(|| work(&mut self.0)));
        match (device_failure(), output) {
            (Some(error), _) => Err(error),
            (None, Ok(output)) => output,
            (None, Err(panic)) => resume_unwind(panic),
        }
    }
}

impl ImageEncoder for Watched<dyn ImageEncoder> {
    fn config(&self) -> &PixtralConfig {
        self.0.config()
    }

    fn encode(&mut self, image: &PixelValues) -> Result<Vec<f32>, ModelError> {
        self.run(|encoder| encoder.encode(image))
    }
}

impl Runner for Watched<dyn Runner> {
    fn config(&self) -> &ModelConfig {
        self.0.config()
    }

    fn block_len(&self) -> usize {
        self.0.block_len()
    }

    fn n_blocks(&self) -> usize {
        self.0.n_blocks()
    }

    fn kv_bytes(&self) -> usize {
        self.0.kv_bytes()
    }

    fn prefill_rows(&self) -> usize {
        self.0.prefill_rows()
    }

    fn max_logits_rows(&self) -> usize {
        self.0.max_logits_rows()
    }

    fn step(&mut self, batch: &Batch) -> Result<RunnerOutput, ModelError> {
        self.run(|runner| runner.step(batch))
    }
}

/// What a device reports, one fact per line.
pub fn facts<R: Runtime>(client: &ComputeClient<R>) -> Vec<String> {
    let properties = client.properties();
    let (hardware, features) = (&properties.hardware, &properties.features);
    let (min, max) = (hardware.plane_size_min, hardware.plane_size_max);
    let size = if min == max { min.to_string() } else { format!("{min} to {max}") };
    let usable = if features.plane.contains(Plane::Ops) { "" } else { ", plane operations not offered" };
    let mut matrix: Vec<String> = features
        .matmul
        .cmma
        .iter()
        .map(|unit| format!("{}x{}x{} {}", unit.m, unit.n, unit.k, unit.a_type))
        .collect();
    matrix.dedup();
    vec![
        format!("compiler: {}", R::name(client)),
        format!("largest buffer: {}", BinaryBytes(properties.memory.max_page_size)),
        format!("shared memory: {}", BinaryBytes(hardware.max_shared_memory_size as u64)),
        format!("planes of {size} units{usable}"),
        format!("matrix units: {}", if matrix.is_empty() { "none".to_owned() } else { matrix.join(", ") }),
    ]
}

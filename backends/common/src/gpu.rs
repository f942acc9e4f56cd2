//! The common part of the GPU backends: CubeCL's configuration and the properties of a device.
use crate::{BinaryBytes, CacheOptions, DeviceError, Floor, LoadedModel, Progress};
use burn_cubecl::cubecl::Runtime;
use burn_cubecl::cubecl::client::ComputeClient;
use burn_cubecl::cubecl::config::CubeClRuntimeConfig;
use burn_cubecl::cubecl::config::cache::CacheConfig;
use burn_cubecl::cubecl::features::Plane;
use ember_kernels_cubecl::{Gpu, probe};
use ember_loaders::checkpoint::Checkpoint;
use ember_models::ModelError;
use ember_models::backend::Backend;
use std::path::{Path, PathBuf};
use std::sync::Once;
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
    let runner = crate::load::<B>(checkpoint, options, device, PREFILL_ROWS, progress)?;
    Ok(LoadedModel { runner, device: name, compiles_kernels: true })
}

/// Measures what a device does at best.
///
/// # Errors
/// A device that fails.
pub fn floor<R: Runtime>(device: &R::Device) -> Result<Floor, DeviceError> {
    let probe::Floor { copy_bytes_per_second, operations_per_second } =
        probe::floor(&Gpu::<R>::open(device)).map_err(ModelError::from)?;
    Ok(Floor { bytes_per_second: copy_bytes_per_second, operations_per_second })
}

/// Prepares CubeCL before its first use: compiled kernels go to a cache on disk. A `cubecl.toml` in the current folder or
/// above it goes first.
pub fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        use burn_cubecl::cubecl::config::RuntimeConfig;
        let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
        if config.compilation.cache.is_none() {
            config.compilation.cache = kernel_cache().map(CacheConfig::File);
        }
        CubeClRuntimeConfig::set(config);
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

/// The properties that a device reports, one fact per line.
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

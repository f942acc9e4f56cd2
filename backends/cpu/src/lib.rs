//! Ember's models on the CPU, through burn-ndarray's tensors and `ember-kernels-cpu`.
mod memory;

use burn_ndarray::NdArray;
use ember_backend_common::{CacheOptions, DeviceError, DeviceInfo, LoadedModel, Progress};
use ember_loaders::checkpoint::Checkpoint;
use ember_loaders::projector::Projector;
use ember_models::{ImageEncoder, PixtralEncoder, cpu_pool, set_cpu_threads};

/// Rows of a prefill step: enough to amortise reading the weights, few enough that Ctrl-C is prompt.
const PREFILL_ROWS: usize = 256;

/// The one device.
pub fn devices() -> Vec<DeviceInfo> {
    vec![DeviceInfo {
        index: 0,
        name: "CPU".to_owned(),
        facts: vec![format!("{} threads", cpu_pool().threads())],
    }]
}

/// Builds the model of a checkpoint. `threads` is one per core when `None`.
///
/// # Errors
/// A device other than 0, a number of threads other than before, a context beyond the model's, a cache or weights that do
/// not fit, or a missing tensor.
pub fn load(
    checkpoint: &Checkpoint,
    device: usize,
    threads: Option<usize>,
    options: CacheOptions,
    progress: Progress<'_>,
) -> Result<LoadedModel, DeviceError> {
    open(device, threads)?;
    let runner = ember_backend_common::load::<NdArray>(
        checkpoint,
        options,
        Default::default(),
        PREFILL_ROWS,
        progress,
    )?;
    let threads = cpu_pool().threads();
    let device = format!("{threads} thread{}", if threads == 1 { "" } else { "s" });
    Ok(LoadedModel { runner, device, compiles_kernels: false })
}

/// Builds the image encoder of a projector file. `threads` is one per core when `None`.
///
/// # Errors
/// As [`load`].
pub fn load_projector(
    projector: &Projector,
    device: usize,
    threads: Option<usize>,
    progress: Progress<'_>,
) -> Result<Box<dyn ImageEncoder>, DeviceError> {
    open(device, threads)?;
    Ok(Box::new(PixtralEncoder::<NdArray>::load(projector, Default::default(), progress)?))
}

fn open(device: usize, threads: Option<usize>) -> Result<(), DeviceError> {
    if device != 0 {
        return Err(DeviceError::NoSuchDevice { index: device, available: 1 });
    }
    memory::keep_freed_memory();
    threads.map_or(Ok(()), set_cpu_threads)?;
    Ok(())
}

//! The common part of Ember's backends: their options and errors, the loading of a model, and for GPUs CubeCL's configuration,
//! what a device reports, and its comparison with the CPU.
//!
//! Everything generic over a Burn backend is instantiated by the crate of that backend (`ember-backend-cpu`,
//! `ember-backend-cuda`, `ember-backend-wgpu`), behind functions that are not generic, so that no crate above them compiles
//! a model again.
mod bytes;
#[cfg(feature = "check")]
pub mod check;
mod error;
#[cfg(feature = "gpu")]
pub mod gpu;
#[cfg(feature = "gpu")]
pub mod measure;

pub use bytes::BinaryBytes;
pub use error::DeviceError;

use ember_loaders::checkpoint::Checkpoint;
use ember_models::backend::Backend;
use ember_models::{DecoderRunner, KvCache, KvType, Runner, TextModel, WeightFormat};

/// A device that a backend sees.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// Its number among the backend's devices.
    pub index: usize,
    /// The driver's name for it.
    pub name: String,
    /// Its properties, one per line.
    pub facts: Vec<String>,
}

/// The form of a KV cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheOptions {
    /// KV entries in all.
    pub context_size: usize,
    /// Element type.
    pub kv_type: KvType,
}

/// A model on its device.
pub struct LoadedModel {
    /// The model.
    pub runner: Box<dyn Runner>,
    /// The device, for people.
    pub device: String,
    /// True if its kernels are compiled at their first use: worth a warm-up.
    pub compiles_kernels: bool,
}

/// The best rates of a device.
#[derive(Clone, Copy, Debug)]
pub struct Floor {
    /// Bytes read and written per second by a copy.
    pub bytes_per_second: f64,
    /// Operations per second of its matrix units, or of f32 arithmetic where there are none.
    pub operations_per_second: f64,
}

/// Progress of loading: called with the bytes of weights placed on the device since its last call.
pub type Progress<'a> = &'a mut dyn FnMut(u64);

/// Builds the model of a checkpoint, its weights left in their blocks, and its cache.
///
/// # Errors
/// A context beyond the model's, a cache or weights that do not fit, or a missing tensor.
pub fn load<B: Backend>(
    checkpoint: &Checkpoint,
    options: CacheOptions,
    device: B::Device,
    prefill_rows: usize,
    progress: Progress<'_>,
) -> Result<Box<dyn Runner>, DeviceError> {
    let config = checkpoint.config();
    let (asked, limit) = (options.context_size, config.context_limit());
    if asked == 0 {
        return Err(DeviceError::EmptyContext);
    }
    if asked > limit.tokens() {
        return Err(DeviceError::ContextTooLarge { asked, limit });
    }
    let cache = KvCache::new::<B>(config, options.kv_type, asked, &device)?;
    let model =
        TextModel::<B>::load_with(checkpoint, config.clone(), WeightFormat::Packed, &device, progress)?;
    Ok(Box::new(DecoderRunner::new(model, cache, device, prefill_rows)))
}

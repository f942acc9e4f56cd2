//! The choice of a backend: the only file of this package that depends on which ones are compiled in.
use crate::engine::Runner;
use crate::engine::runner::DecoderRunner;
use anyhow::{Context, Result, bail};
use ember_loaders::checkpoint::Checkpoint;
pub use ember_models::KvType;
use ember_models::backend::Backend;
use ember_models::{Decoder, KvCache, WeightFormat};

#[cfg(not(feature = "ndarray"))]
compile_error!("ember needs a backend to run on: build with --features ndarray (the default)");

/// A backend that a command can run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum BackendKind {
    /// The CPU.
    Ndarray,
}

/// How to place a model.
#[derive(Clone, Copy, Debug)]
pub struct PlacementOptions {
    /// The backend.
    pub backend: BackendKind,
    /// KV entries in all; `None` is the smaller of the model's context and 8192.
    pub context_size: Option<usize>,
    /// Element type of the KV cache.
    pub kv_type: KvType,
    /// CPU threads; `None` is one per core.
    pub threads: Option<usize>,
}

/// The context size when none is asked for: the model's own may need more memory than the machine has.
pub const DEFAULT_CONTEXT: usize = 8192;

/// Builds the model of a checkpoint on the chosen backend.
///
/// # Errors
/// A context beyond the model's, a cache that does not fit, or a missing tensor.
pub fn place(checkpoint: &Checkpoint, options: &PlacementOptions) -> Result<Box<dyn Runner>> {
    match options.backend {
        BackendKind::Ndarray => {
            if let Some(threads) = options.threads {
                ember_models::set_cpu_threads(threads).context("--threads")?;
            }
            place_on::<burn_ndarray::NdArray>(checkpoint, options, Default::default())
        }
        #[cfg(not(feature = "ndarray"))]
        BackendKind::Ndarray => {
            bail!("this binary was built without the ndarray backend (--features ndarray)")
        }
    }
}

fn place_on<B: Backend>(
    checkpoint: &Checkpoint,
    options: &PlacementOptions,
    device: B::Device,
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
    let decoder = Decoder::<B>::load(checkpoint, WeightFormat::Packed, &device)?;
    Ok(Box::new(DecoderRunner::new(decoder, cache, device)))
}

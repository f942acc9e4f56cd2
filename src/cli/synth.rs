//! `ember synth`: a model file of real shapes with random weights.
use super::args::positive;
use super::interrupt::Listener;
use super::progress::Bar;
use super::{Outcome, usage_error};
use anyhow::{Context, Result, bail};
use ember::synth::{self, Family, SynthType};
use ember_loaders::gguf::OutputFile;
use indicatif::DecimalBytes;
use std::path::{Path, PathBuf};

/// Write a model file of real shapes with random weights, for benchmarks
#[derive(clap::Args)]
#[command(
    after_help = "The file has the dimensions, block types and vocabulary size of the published model and runs with every command; what it
says is noise. It is streamed to disk and appears under its name only when it is complete.

Examples:
  ember synth --arch qwen3 --preset 0.6b --type q8_0 qwen3-0.6b.gguf
  ember synth --arch mistral3 --preset 24b --type q4_k_m small-24b.gguf"
)]
pub struct Args {
    /// Architecture
    #[arg(long, value_enum)]
    arch: Family,
    /// Size: 0.6b, 1.7b, 4b, 8b, 14b (qwen3); 3b, 8b, 14b, 24b (mistral3); 3b, 8b (llama)
    #[arg(long, value_name = "SIZE")]
    preset: String,
    /// Storage of the matrices
    #[arg(long = "type", value_enum, value_name = "TYPE")]
    ty: SynthType,
    /// Seed of the weights
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Write only this many layers, for a quick test
    #[arg(long, value_name = "N", value_parser = positive)]
    layers: Option<usize>,
    /// Replace OUT if it exists
    #[arg(long)]
    force: bool,
    /// File to write
    out: PathBuf,
}

/// Writes the file.
pub fn run(args: Args) -> Result<Outcome> {
    let Some(mut shape) = synth::shape(args.arch, &args.preset) else {
        let names = synth::preset_names(args.arch).join(", ");
        let message = format!("{} has no preset {:?}, only {names}", args.arch.arch(), args.preset);
        return Err(usage_error("synth", message));
    };
    if let Some(layers) = args.layers {
        if layers > shape.layers {
            return Err(usage_error("synth", format!("--layers {layers}: the model has {}", shape.layers)));
        }
        shape.layers = layers;
    }
    if !args.force && args.out.exists() {
        bail!("{} exists (--force replaces it)", args.out.display());
    }
    if args.out.is_dir() {
        bail!("{} is a folder", args.out.display());
    }
    let bytes = synth::data_bytes(&shape, args.ty);
    check_free_space(&args.out, bytes)?;
    let cannot_write = || format!("cannot write {}", args.out.display());
    let file = OutputFile::create(&args.out).with_context(cannot_write)?;
    let listener = Listener::new();
    let megabytes = |bytes: u64| (bytes >> 20) as usize;
    let mut bar = Bar::new("writing MiB", megabytes(bytes));
    let written = synth::write(file, &shape, args.ty, args.seed, &mut |bytes| {
        bar.set(megabytes(bytes));
        !listener.requested()
    });
    let Some(file) = written.with_context(cannot_write)? else { return Ok(Outcome::Interrupted) };
    file.commit().with_context(cannot_write)?;
    drop(bar);
    let bytes = std::fs::metadata(&args.out).with_context(cannot_write)?.len();
    eprintln!("{}: {}, {}", args.out.display(), shape.title(), DecimalBytes(bytes));
    Ok(Outcome::Done)
}

/// Refuses a file that the disk cannot hold, before the disk is full.
fn check_free_space(out: &Path, bytes: u64) -> Result<()> {
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let free = fs4::available_space(folder)
        .with_context(|| format!("cannot ask {} for its free space", folder.display()))?;
    if free < bytes {
        let (bytes, free) = (DecimalBytes(bytes), DecimalBytes(free));
        bail!("{} needs {bytes}, but its disk has only {free} free", out.display());
    }
    Ok(())
}

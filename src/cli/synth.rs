//! `ember synth`: a model file of real shapes with random weights.
use super::args::positive;
use super::interrupt::Listener;
use super::out_file::{ForceArg, OutFile};
use super::progress::Bar;
use super::{Outcome, usage_error};
use anyhow::{Context, Result, bail};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use ember::DecimalBytes;
use ember::synth::{self, Contents, Family, SynthType};
use std::path::{Path, PathBuf};

/// Write a model file of real shapes with random weights, for benchmarks
#[derive(clap::Args)]
#[command(
    after_help = "The file has the dimensions, block types and vocabulary size of the published model and runs with every command; what it
says is noise. It is streamed to disk and appears under its name only when it is complete.

Examples:
  ember synth --arch qwen3 --preset 0.6b --type q8_0 qwen3-0.6b.gguf
  ember synth --arch mistral3 --preset 24b --type q4_k_m small-24b.gguf
  ember synth --arch pixtral --preset 24b --type f16 mmproj-mistral-24b.gguf"
)]
pub struct Args {
    /// Architecture
    #[arg(long, value_enum)]
    arch: Arch,
    /// Size: 0.6b, 1.7b, 4b, 8b, 14b (qwen3); 3b, 8b, 14b, 24b (mistral3); 3b, 8b (llama); of the text model: 3b, 8b, 12b,
    /// 14b, 24b (pixtral)
    #[arg(long, value_name = "SIZE")]
    preset: String,
    /// Storage of the matrices
    #[arg(long = "type", value_name = "TYPE", value_parser = synth_type_parser())]
    ty: SynthType,
    /// Seed of the weights
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Write only this many layers, for a quick test
    #[arg(long, value_name = "N", value_parser = positive)]
    layers: Option<usize>,
    #[command(flatten)]
    force: ForceArg,
    /// File to write
    out: PathBuf,
}

/// The names of the types, with a line of help for each.
fn synth_type_parser() -> impl TypedValueParser<Value = SynthType> {
    let value = |ty: SynthType| PossibleValue::new(ty.name()).help(ty.description());
    PossibleValuesParser::new(SynthType::ALL.map(value)).map(|name| {
        let named = SynthType::ALL.into_iter().find(|ty| ty.name() == name);
        named.expect("a name from the list of all")
    })
}

/// A kind of model that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Arch {
    /// Qwen3, dense
    Qwen3,
    /// Ministral 3 (3b, 8b, 14b) and Mistral Small 3.x (24b)
    Mistral3,
    /// Llama 3.1 and 3.2
    Llama,
    /// The image projector (mmproj) of a Mistral 3 model or of Pixtral-12B
    Pixtral,
}

/// Writes the file.
pub fn run(args: Args) -> Result<Outcome> {
    let family = match args.arch {
        Arch::Qwen3 => Family::Qwen3,
        Arch::Mistral3 => Family::Mistral3,
        Arch::Llama => Family::Llama,
        Arch::Pixtral => {
            let Some(mut shape) = synth::projector_shape(&args.preset) else {
                return Err(no_preset("pixtral", &args.preset, &synth::projector_names()));
            };
            shape.layers = layers(&args, shape.layers)?;
            return write(&args, &shape);
        }
    };
    let Some(mut shape) = synth::shape(family, &args.preset) else {
        return Err(no_preset(family.arch(), &args.preset, &synth::preset_names(family)));
    };
    shape.layers = layers(&args, shape.layers)?;
    write(&args, &shape)
}

fn no_preset(arch: &str, preset: &str, names: &[&str]) -> anyhow::Error {
    usage_error("synth", format!("{arch} has no preset {preset:?}, only {}", names.join(", ")))
}

/// As many layers as asked for, if the model has them.
fn layers(args: &Args, of_model: usize) -> Result<usize> {
    match args.layers {
        Some(layers) if layers > of_model => {
            Err(usage_error("synth", format!("--layers {layers}: the model has {of_model}")))
        }
        Some(layers) => Ok(layers),
        None => Ok(of_model),
    }
}

fn write(args: &Args, contents: &impl Contents) -> Result<Outcome> {
    let out = OutFile::new(&args.out, args.force.into(), &[])?;
    let bytes = synth::data_bytes(contents, args.ty);
    check_free_space(&args.out, bytes)?;
    let cannot_write = || out.cannot_write();
    let listener = Listener::new();
    let file = out.create()?;
    let megabytes = |bytes: u64| (bytes >> 20) as usize;
    let mut bar = Bar::new("writing MiB", megabytes(bytes));
    let written = synth::write(file, contents, args.ty, args.seed, &mut |bytes| {
        bar.set(megabytes(bytes));
        !listener.requested()
    });
    let Some(file) = written.with_context(cannot_write)? else { return Ok(Outcome::Interrupted) };
    file.commit().with_context(cannot_write)?;
    drop(bar);
    let bytes = std::fs::metadata(&args.out).with_context(cannot_write)?.len();
    eprintln!("{}: {}, {}", args.out.display(), contents.title(), DecimalBytes(bytes));
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

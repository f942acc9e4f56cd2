//! `ember bench`: prefill and decode speed of a model, with the memory bandwidth that bounds decode and the arithmetic
//! that bounds prefill.
mod measure;

use super::args::{CheckArgs, ContextArgs, DeviceArgs, ModelArg, model_options, positive};
use super::image_args::ProjectorArgs;
use super::output::json_line;
use super::{Outcome, model, usage_error};
use anyhow::Result;
use clap::ValueEnum;
use ember::device;
use ember::{ModelFiles, ModelOptions};
use ember_loaders::checkpoint::ModelConfig;
use measure::{Probe, measure, needed_context};
use serde::Serialize;
use std::io::Write;
use std::time::Instant;

/// Measure how fast a model runs
#[derive(clap::Args)]
#[command(
    after_help = "Prefill processes the prompt tokens in chunks from an empty cache; decode generates tokens one by one, for several
sequences at once with --batch, after --depth tokens that are not counted. Both use seeded random token ids. A first
round is not counted.

Decode cannot be faster than reading the weights once and the KV cache of each sequence per step. On the CPU the same
threads read about as much memory as a token needs (256 MiB to 1 GiB) before each round; on a GPU a copy within its
memory is timed, and for prefill its matrix units.

Examples:
  ember bench -m model.gguf
  ember bench -m model.gguf -p 512 -n 128 -r 5 --threads 2 -o json
  ember bench -m model.gguf --backend cuda -p 4096 -n 64 --batch 8 --depth 1024"
)]
pub struct Args {
    #[command(flatten)]
    model: ModelArg,
    /// Prompt tokens of the prefill measurement; 0 leaves it out
    #[arg(short = 'p', long, value_name = "N", default_value_t = 512)]
    prompt_tokens: usize,
    /// Tokens of the decode measurement; 0 leaves it out
    #[arg(short = 'n', long, value_name = "N", default_value_t = 128)]
    generate_tokens: usize,
    /// Sequences that decode together
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive)]
    batch: usize,
    /// Tokens that each sequence holds before decode is measured
    #[arg(long, value_name = "N", default_value_t = 0)]
    depth: usize,
    /// Counted rounds
    #[arg(short = 'r', long, value_name = "N", default_value_t = 5, value_parser = positive)]
    repetitions: usize,
    /// Form of the report
    #[arg(short, long, value_enum, default_value_t = Format::Md)]
    output: Format,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    context: ContextArgs,
    #[command(flatten)]
    check: CheckArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// A Markdown table
    Md,
    /// One JSON object
    Json,
}

/// Speed over the counted rounds, in tokens per second.
#[derive(Serialize)]
struct Speed {
    tokens: usize,
    median: f64,
    min: f64,
    max: f64,
}

#[derive(Serialize)]
struct Report {
    model: String,
    description: String,
    threads: usize,
    repetitions: usize,
    batch: usize,
    depth: usize,
    load_seconds: f64,
    prefill: Option<Speed>,
    decode: Option<Speed>,
    /// Weights read for one decode step; an untied embedding is only looked up.
    weight_bytes_per_token: u64,
    /// KV entries read for one decoded token, on average over the measurement.
    kv_bytes_per_token: u64,
    kv_cache_bytes: u64,
    /// Bytes per second, median over the rounds.
    read_bandwidth: f64,
    /// Share of the read bandwidth of its round that decode reaches, median over the rounds.
    decode_bandwidth_share: Option<f64>,
    /// Operations per second of a GPU's matrix units.
    operations_per_second: Option<f64>,
    /// Share of them that the products and attention of prefill reach, median over the rounds.
    prefill_operations_share: Option<f64>,
    /// Largest resident size of loading and one round, where the system tells.
    peak_memory_bytes: Option<u64>,
}

/// Measures and prints the report.
pub fn run(args: Args) -> Result<Outcome> {
    let started = Instant::now();
    let options = ModelOptions {
        check_finite: args.check.check_finite,
        ..model_options(args.device, &args.context, ProjectorArgs::default())
    };
    let mut files = ModelFiles::open(&args.model.model, options)?;
    if args.prompt_tokens.max(args.generate_tokens) == 0 {
        return Err(usage_error("bench", "nothing to measure: -p and -n are both 0"));
    }
    let needed = needed_context(&args);
    match args.context.ctx_size {
        Some(_) => files.check_prompt_fits(needed)?,
        None => files.set_context_size(needed)?,
    }
    let floor = device::floor(args.device.backend, args.device.device)?;
    let mut model = model::load(files)?;
    let load_seconds = started.elapsed().as_secs_f64();
    let weight_bytes = model.files().checkpoint().bytes_per_step();
    let vocab_size = model.files().config().vocab_size;
    let probe = floor.map_or(Probe::Cpu(weight_bytes), |floor| Probe::Device(floor.bytes_per_second));
    let Some(rounds) = measure(&args, model.engine(), vocab_size, probe)? else {
        return Ok(Outcome::Interrupted);
    };
    let kv_cache_bytes = model.engine().runner().kv_bytes() as u64;
    // Token i of n reads depth + i entries.
    let entries = args.depth as u64 + (args.generate_tokens as u64).div_ceil(2);
    let kv_bytes = kv_cache_bytes * entries / model.engine().context_size() as u64;
    // A step reads the weights once for the whole batch.
    let bytes = weight_bytes as f64 / args.batch as f64 + kv_bytes as f64;
    let shares =
        rounds.decode.iter().zip(&rounds.bandwidth).map(|(rate, bandwidth)| rate * bytes / bandwidth);
    let operations = floor.map(|floor| floor.operations_per_second);
    let per_token = prefill_operations_per_token(model.files().config(), args.prompt_tokens);
    let operation_shares =
        operations.map(|most| rounds.prefill.iter().map(|rate| rate * per_token / most).collect());
    let report = Report {
        model: args.model.model.display().to_string(),
        description: model.description(),
        threads: ember_models::cpu_pool().threads(),
        repetitions: args.repetitions,
        batch: args.batch,
        depth: args.depth,
        load_seconds,
        decode_bandwidth_share: median(shares.collect()),
        operations_per_second: operations,
        prefill_operations_share: operation_shares.and_then(median),
        prefill: Speed::of(args.prompt_tokens, rounds.prefill),
        decode: Speed::of(args.batch * args.generate_tokens, rounds.decode),
        weight_bytes_per_token: weight_bytes as u64,
        kv_bytes_per_token: kv_bytes,
        kv_cache_bytes,
        read_bandwidth: median(rounds.bandwidth).expect("at least one round"),
        peak_memory_bytes: rounds.peak_memory_bytes,
    };
    let mut stdout = std::io::stdout().lock();
    match args.output {
        Format::Json => json_line(&mut stdout, &report)?,
        Format::Md => write_markdown(&mut stdout, &report)?,
    }
    Ok(Outcome::Done)
}

impl Speed {
    fn of(tokens: usize, rates: Vec<f64>) -> Option<Self> {
        let (min, max) =
            rates.iter().fold((f64::MAX, 0f64), |(min, max), &rate| (min.min(rate), max.max(rate)));
        median(rates).map(|median| Self { tokens, median, min, max })
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

/// Multiplications and additions of one token of a prompt of `tokens`: two for each weight that is not only looked up, and
/// four for each element of a head and each token that it sees, which is half of the prompt on average.
fn prefill_operations_per_token(config: &ModelConfig, tokens: usize) -> f64 {
    let in_blocks = config.tensors().into_iter().filter(|tensor| tensor.layer.is_some());
    let weights: usize = in_blocks.map(|tensor| tensor.elements()).sum();
    let attention = config.n_layers * config.n_heads * config.head_dim * tokens / 2;
    2.0 * weights as f64 + 4.0 * attention as f64
}

fn write_markdown(out: &mut impl Write, report: &Report) -> std::io::Result<()> {
    writeln!(out, "| measurement | median | min | max |\n|---|---|---|---|")?;
    let batch = if report.batch == 1 { String::new() } else { format!(" of {} sequences", report.batch) };
    let depth = if report.depth == 0 { String::new() } else { format!(" after {}", report.depth) };
    let decode = format!("decode{batch}{depth}");
    for (name, speed) in [("prefill", &report.prefill), (&*decode, &report.decode)] {
        if let Some(Speed { tokens, median, min, max }) = speed {
            writeln!(out, "| {name} {tokens}, tokens/s | {median:.2} | {min:.2} | {max:.2} |")?;
        }
    }
    let gigabytes = |bytes: f64| bytes / 1e9;
    writeln!(out)?;
    writeln!(out, "{}; {} rounds", report.description, report.repetitions)?;
    writeln!(out, "load {:.3} s", report.load_seconds)?;
    if let Some(peak) = report.peak_memory_bytes {
        let kv = gigabytes(report.kv_cache_bytes as f64);
        writeln!(out, "peak memory {:.3} GB, of which KV cache {kv:.3} GB", gigabytes(peak as f64))?;
    }
    let bandwidth = gigabytes(report.read_bandwidth);
    match report.operations_per_second {
        None => write!(out, "read bandwidth {bandwidth:.1} GB/s with {} threads", report.threads)?,
        Some(_) => write!(out, "copy bandwidth {bandwidth:.1} GB/s")?,
    }
    if let Some(share) = report.decode_bandwidth_share {
        write!(out, ", of which decode uses {:.0} %", 100.0 * share)?;
    }
    if let (Some(most), Some(share)) = (report.operations_per_second, report.prefill_operations_share) {
        write!(
            out,
            "\nmatrix units (or f32) {:.2} TFLOP/s, of which prefill uses {:.0} %",
            most / 1e12,
            100.0 * share
        )?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        let speed = Speed::of(8, vec![3.0, 1.0, 2.0, 10.0]).unwrap();
        assert_eq!((speed.min, speed.median, speed.max), (1.0, 2.5, 10.0));
        assert!(Speed::of(8, Vec::new()).is_none());
    }
}

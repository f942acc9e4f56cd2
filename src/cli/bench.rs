//! `ember bench`: prefill and decode speed of a model, with the memory bandwidth that bounds decode.
use super::args::{ContextArgs, DeviceArgs, ModelArg, positive};
use super::interrupt::Listener;
use super::output::json_line;
use super::progress::Bar;
use super::{Outcome, model};
use anyhow::{Result, bail};
use clap::ValueEnum;
use ember::engine::{Engine, Sequence, Wanted};
use ember_loaders::checkpoint::Checkpoint;
use serde::Serialize;
use std::io::Write;
use std::time::Instant;

/// Bytes read to measure the bandwidth: far more than any cache holds.
const BANDWIDTH_BYTES: usize = 256 << 20;

/// Measure how fast a model runs
#[derive(clap::Args)]
#[command(
    after_help = "Prefill processes the prompt tokens in chunks from an empty cache; decode generates tokens one by one. Both use seeded
random token ids. A first round is not counted. Read bandwidth is measured on 256 MB with the same number of threads;
decode cannot be faster than reading the weights and the KV cache once per token.

Examples:
  ember bench -m model.gguf
  ember bench -m model.gguf -p 512 -n 128 -r 5 --threads 2 -o json"
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
    load_seconds: f64,
    prefill: Option<Speed>,
    decode: Option<Speed>,
    /// Weights read for one decoded token; an untied embedding is only looked up.
    weight_bytes_per_token: u64,
    /// KV entries read for one decoded token, on average over the measurement.
    kv_bytes_per_token: u64,
    kv_cache_bytes: u64,
    /// Bytes per second.
    read_bandwidth: f64,
    /// Share of the read bandwidth that decode reaches.
    decode_bandwidth_share: Option<f64>,
    /// Largest resident size so far, where the system tells.
    peak_memory_bytes: Option<u64>,
}

/// Measures and prints the report.
pub fn run(args: Args) -> Result<Outcome> {
    let checkpoint = Checkpoint::open(&args.model.model)?;
    let config = checkpoint.config();
    let needed = args.prompt_tokens.max(args.generate_tokens);
    if needed == 0 {
        bail!("nothing to measure: -p and -n are both 0");
    }
    let context = args.context.ctx_size.unwrap_or(needed);
    model::check_prompt_fits(needed, context, config)?;
    let loaded = model::load_with(&checkpoint, &args.device, Some(context), args.context.kv_cache_dtype)?;
    let mut engine = loaded.engine;
    let listener = Listener::new();
    let prompt = random_tokens(needed, config.vocab_size);
    let (mut prefill, mut decode) = (Vec::new(), Vec::new());
    let mut bar = Bar::new("measuring", args.repetitions + 1);
    for round in 0..=args.repetitions {
        let prefill_rate = measure(&mut engine, &prompt[..args.prompt_tokens], usize::MAX, &listener)?;
        let decode_rate = measure(&mut engine, &prompt[..args.generate_tokens], 1, &listener)?;
        if listener.requested() {
            return Ok(Outcome::Interrupted);
        }
        if round > 0 {
            prefill.extend(prefill_rate);
            decode.extend(decode_rate);
        }
        bar.set(round + 1);
    }
    drop(bar);
    let peak_memory_bytes = peak_memory();
    let threads = args.device.threads.unwrap_or_else(default_threads);
    let read_bandwidth = read_bandwidth(threads);
    let kv_bytes = engine.runner().kv_bytes() as u64;
    let decode = Speed::of(args.generate_tokens, decode);
    let weight_bytes_per_token = weight_bytes_per_token(&checkpoint);
    let kv_bytes_per_token = kv_bytes * args.generate_tokens as u64 / 2 / engine.context_size() as u64;
    let bytes = (weight_bytes_per_token + kv_bytes_per_token) as f64;
    let report = Report {
        model: args.model.model.display().to_string(),
        description: loaded.description,
        threads,
        repetitions: args.repetitions,
        load_seconds: loaded.load_time.as_secs_f64(),
        prefill: Speed::of(args.prompt_tokens, prefill),
        decode_bandwidth_share: decode.as_ref().map(|decode| decode.median * bytes / read_bandwidth),
        decode,
        weight_bytes_per_token,
        kv_bytes_per_token,
        kv_cache_bytes: kv_bytes,
        read_bandwidth,
        peak_memory_bytes,
    };
    let mut stdout = std::io::stdout().lock();
    match args.output {
        Format::Json => json_line(&mut stdout, &report)?,
        Format::Md => write_markdown(&mut stdout, &report)?,
    }
    Ok(Outcome::Done)
}

/// Tokens per second of running `tokens` from an empty cache, `step` at a time; nothing when there are none.
fn measure(engine: &mut Engine, tokens: &[u32], step: usize, listener: &Listener) -> Result<Option<f64>> {
    if tokens.is_empty() {
        return Ok(None);
    }
    let mut sequence = Sequence::default();
    let started = Instant::now();
    for piece in tokens.chunks(step.min(tokens.len())) {
        engine.extend(&mut sequence, piece, Wanted::Last, &mut |_| !listener.requested())?;
        if listener.requested() {
            break;
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    engine.truncate(&mut sequence, 0);
    Ok(Some(tokens.len() as f64 / seconds))
}

impl Speed {
    fn of(tokens: usize, mut rates: Vec<f64>) -> Option<Self> {
        rates.sort_by(f64::total_cmp);
        let (min, max) = (*rates.first()?, *rates.last()?);
        let (low, high) = (rates[(rates.len() - 1) / 2], rates[rates.len() / 2]);
        Some(Self { tokens, median: (low + high) / 2.0, min, max })
    }
}

/// Ids spread over the vocabulary by a multiplicative hash: the same on every run.
fn random_tokens(n: usize, vocab_size: usize) -> Vec<u32> {
    (1..=n as u64)
        .map(|i| ((i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % vocab_size as u64) as u32)
        .collect()
}

fn weight_bytes_per_token(checkpoint: &Checkpoint) -> u64 {
    let Some(gguf) = checkpoint.gguf() else { return 0 };
    let tied = checkpoint.config().tied_embeddings;
    let read = gguf.tensors().iter().filter(|tensor| tied || tensor.name != "token_embd.weight");
    read.map(|tensor| tensor.n_bytes() as u64).sum()
}

fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Bytes per second that `threads` threads read from memory together: the best of three passes.
fn read_bandwidth(threads: usize) -> f64 {
    let words: Vec<u64> = (0..(BANDWIDTH_BYTES / size_of::<u64>()) as u64).collect();
    let pass = || {
        let started = Instant::now();
        std::thread::scope(|scope| {
            for part in words.chunks(words.len().div_ceil(threads)) {
                scope.spawn(move || std::hint::black_box(part.iter().fold(0, |sum: u64, word| sum ^ word)));
            }
        });
        BANDWIDTH_BYTES as f64 / started.elapsed().as_secs_f64()
    };
    (0..3).map(|_| pass()).fold(0.0, f64::max)
}

/// The largest resident size of this process, from Linux's /proc.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

fn write_markdown(out: &mut impl Write, report: &Report) -> std::io::Result<()> {
    writeln!(out, "| measurement | median | min | max |\n|---|---|---|---|")?;
    for (name, speed) in [("prefill", &report.prefill), ("decode", &report.decode)] {
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
    write!(out, "read bandwidth {bandwidth:.1} GB/s with {} threads", report.threads)?;
    if let Some(share) = report.decode_bandwidth_share {
        write!(out, ", of which decode uses {:.0} %", 100.0 * share)?;
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

    #[test]
    fn tokens_are_seeded_and_inside_the_vocabulary() {
        let tokens = random_tokens(1000, 97);
        assert_eq!(tokens, random_tokens(1000, 97));
        assert!(tokens.iter().all(|&token| token < 97));
        assert!((0..97).all(|id| tokens.contains(&id)));
    }
}

//! `ember bench`: prefill and decode speed of a model, with the memory bandwidth that bounds decode.
use super::args::{ContextArgs, DeviceArgs, ModelArg, positive};
use super::interrupt::Listener;
use super::output::json_line;
use super::progress::Bar;
use super::{Outcome, model, usage_error};
use anyhow::Result;
use clap::ValueEnum;
use ember::engine::{Engine, Sequence, Wanted};
use ember_loaders::checkpoint::Checkpoint;
use serde::Serialize;
use std::io::Write;
use std::time::Instant;

/// Bounds of the bytes read to measure the bandwidth: more than most caches hold, and not much beside a model.
const PROBE_BYTES: std::ops::RangeInclusive<usize> = 256 << 20..=1 << 30;

/// Matrices and norms of a layer; an architecture without one of them lacks the tensor.
const BLOCK_TENSORS: [&str; 11] = [
    "attn_norm",
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_q_norm",
    "attn_k_norm",
    "attn_output",
    "ffn_norm",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
];

/// Measure how fast a model runs
#[derive(clap::Args)]
#[command(
    after_help = "Prefill processes the prompt tokens in chunks from an empty cache; decode generates tokens one by one. Both use seeded
random token ids. A first round is not counted. Before each round the same threads read about as much memory as a token
needs (256 MiB to 1 GiB): decode cannot be faster than reading the weights and the KV cache once per token.

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
    /// Bytes per second, median over the rounds.
    read_bandwidth: f64,
    /// Share of the read bandwidth of its round that decode reaches, median over the rounds.
    decode_bandwidth_share: Option<f64>,
    /// Largest resident size of loading and one round, where the system tells.
    peak_memory_bytes: Option<u64>,
}

/// Measures and prints the report.
pub fn run(args: Args) -> Result<Outcome> {
    let started = Instant::now();
    let checkpoint = Checkpoint::open(&args.model.model)?;
    let config = checkpoint.config();
    let needed = args.prompt_tokens.max(args.generate_tokens);
    if needed == 0 {
        return Err(usage_error("bench", "nothing to measure: -p and -n are both 0"));
    }
    let context = args.context.ctx_size.unwrap_or(needed);
    model::check_prompt_fits(needed, context, config)?;
    let loaded = model::load_with(&checkpoint, &args.device, Some(context), args.context.kv_cache_dtype)?;
    let load_seconds = started.elapsed().as_secs_f64();
    let weight_bytes = weight_bytes_per_token(&checkpoint);
    let mut engine = loaded.engine;
    let Some(rounds) = measure(&args, &mut engine, config.vocab_size, weight_bytes)? else {
        return Ok(Outcome::Interrupted);
    };
    let kv_cache_bytes = engine.runner().kv_bytes() as u64;
    // Token i of n reads i entries.
    let kv_bytes = kv_cache_bytes * (args.generate_tokens as u64 + 1) / 2 / engine.context_size() as u64;
    let bytes = weight_bytes as f64 + kv_bytes as f64;
    let shares =
        rounds.decode.iter().zip(&rounds.bandwidth).map(|(rate, bandwidth)| rate * bytes / bandwidth);
    let report = Report {
        model: args.model.model.display().to_string(),
        description: loaded.description,
        threads: ember_models::cpu_pool().threads(),
        repetitions: args.repetitions,
        load_seconds,
        decode_bandwidth_share: median(shares.collect()),
        prefill: Speed::of(args.prompt_tokens, rounds.prefill),
        decode: Speed::of(args.generate_tokens, rounds.decode),
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

/// What the counted rounds gave, in tokens and bytes per second.
#[derive(Default)]
struct Rounds {
    prefill: Vec<f64>,
    decode: Vec<f64>,
    bandwidth: Vec<f64>,
    peak_memory_bytes: Option<u64>,
}

/// Runs all rounds; nothing when Ctrl-C stopped them.
fn measure(
    args: &Args,
    engine: &mut Engine,
    vocab_size: usize,
    probe_bytes: usize,
) -> Result<Option<Rounds>> {
    let listener = Listener::new();
    let tokens = random_tokens(args.prompt_tokens.max(args.generate_tokens), vocab_size);
    let (prompt, generated) = (&tokens[..args.prompt_tokens], &tokens[..args.generate_tokens]);
    let per_round = prompt.len() + generated.len();
    let mut bar = Bar::new("measuring", per_round * (args.repetitions + 1));
    let mut done = 0;
    let mut round = |engine: &mut Engine| -> Result<Option<[Option<f64>; 2]>> {
        let mut go_on = |n: usize| {
            bar.set(done + n);
            !listener.requested()
        };
        let prefill = rate(engine, prompt, usize::MAX, &mut go_on)?;
        let decode = rate(engine, generated, 1, &mut |n| go_on(prompt.len() + n))?;
        done += per_round;
        Ok((!listener.requested()).then_some([prefill, decode]))
    };
    if round(engine)?.is_none() {
        return Ok(None);
    }
    // Before the probe's own memory.
    let mut rounds = Rounds { peak_memory_bytes: peak_memory(), ..Rounds::default() };
    let probe = ReadProbe::new(probe_bytes);
    for _ in 0..args.repetitions {
        rounds.bandwidth.push(probe.bytes_per_second());
        let Some([prefill, decode]) = round(engine)? else { return Ok(None) };
        rounds.prefill.extend(prefill);
        rounds.decode.extend(decode);
    }
    Ok(Some(rounds))
}

/// Tokens per second of running `tokens` from an empty cache, `step` at a time; nothing when there are none.
///
/// `go_on` gets the number of tokens done; when it says no, the rate is that of a part.
fn rate(
    engine: &mut Engine,
    tokens: &[u32],
    step: usize,
    go_on: &mut dyn FnMut(usize) -> bool,
) -> Result<Option<f64>> {
    if tokens.is_empty() {
        return Ok(None);
    }
    let mut sequence = Sequence::default();
    let started = Instant::now();
    for piece in tokens.chunks(step.min(tokens.len())) {
        let before = sequence.len();
        let mut stopped = false;
        engine.extend(&mut sequence, piece, Wanted::Likeliest(1), &mut |done| {
            stopped = !go_on(before + done);
            !stopped
        })?;
        if stopped {
            break;
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    let done = sequence.len();
    engine.truncate(&mut sequence, 0);
    Ok(Some(done as f64 / seconds))
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

/// Ids spread over the vocabulary by a multiplicative hash: the same on every run.
fn random_tokens(n: usize, vocab_size: usize) -> Vec<u32> {
    (1..=n as u64)
        .map(|i| ((i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % vocab_size as u64) as u32)
        .collect()
}

/// Only what the decoder reads: a file may hold more.
fn weight_bytes_per_token(checkpoint: &Checkpoint) -> usize {
    let config = checkpoint.config();
    let head = if config.tied_embeddings { "token_embd" } else { "output" };
    let of_layers = (0..config.n_layers)
        .flat_map(|layer| BLOCK_TENSORS.iter().map(move |name| format!("blk.{layer}.{name}")));
    let names = of_layers.chain([head, "output_norm"].map(String::from));
    let tensors = names.filter_map(|name| checkpoint.opt_tensor(&format!("{name}.weight")));
    tensors.map(|tensor| tensor.bytes.len()).sum()
}

/// Memory to read, for comparison.
struct ReadProbe(Vec<u64>);

impl ReadProbe {
    /// A probe of about `bytes` bytes, within [`PROBE_BYTES`].
    fn new(bytes: usize) -> Self {
        let words = bytes.clamp(*PROBE_BYTES.start(), *PROBE_BYTES.end()) / size_of::<u64>();
        // Numbers rather than zeros, which the system would not give memory to.
        Self((0..words as u64).collect())
    }

    /// What the kernels' threads read together: the best of three passes.
    fn bytes_per_second(&self) -> f64 {
        let pool = ember_models::cpu_pool();
        // Several pieces per thread, so that none waits for the slowest.
        let pieces: Vec<&[u64]> = self.0.chunks(self.0.len().div_ceil(8 * pool.threads())).collect();
        let pass = || {
            let started = Instant::now();
            pool.parallel(pieces.len(), &|piece| {
                std::hint::black_box(pieces[piece].iter().fold(0, |sum: u64, word| sum ^ word));
            });
            size_of_val(self.0.as_slice()) as f64 / started.elapsed().as_secs_f64()
        };
        (0..3).map(|_| pass()).fold(0.0, f64::max)
    }
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

//! The rounds of a measurement.
use super::Args;
use crate::cli::interrupt::Listener;
use crate::cli::progress::Bar;
use anyhow::Result;
use ember::engine::{Chunk, Engine, Sequence, Wanted};
use ember_models::KvCache;
use std::time::Instant;

/// Bounds of the bytes read to measure the bandwidth: more than most caches hold, and not much beside a model.
const PROBE_BYTES: std::ops::RangeInclusive<usize> = 256 << 20..=1 << 30;

/// The results of the counted rounds, in tokens and bytes per second.
#[derive(Default)]
pub struct Rounds {
    pub prefill: Vec<f64>,
    pub decode: Vec<f64>,
    pub bandwidth: Vec<f64>,
    pub peak_memory_bytes: Option<u64>,
}

/// The source of the read bandwidth.
pub enum Probe {
    /// Reading memory before each round, about this many bytes.
    Cpu(usize),
    /// A device's own, measured once.
    Device(f64),
}

/// KV entries that both measurements fit into, each sequence in blocks of its own.
pub fn needed_context(args: &Args) -> usize {
    let per_sequence = args.depth + args.generate_tokens;
    let decode = match args.batch {
        1 => per_sequence,
        batch => batch * per_sequence.next_multiple_of(KvCache::BLOCK_LEN),
    };
    args.prompt_tokens.max(decode)
}

/// Runs all rounds; nothing when Ctrl-C stopped them.
pub fn measure(args: &Args, engine: &mut Engine, vocab_size: usize, probe: Probe) -> Result<Option<Rounds>> {
    let listener = Listener::new();
    let tokens = random_tokens(args.prompt_tokens.max(args.depth + args.generate_tokens), vocab_size);
    let (prompt, text) = (&tokens[..args.prompt_tokens], &tokens[..args.depth + args.generate_tokens]);
    let per_round = args.prompt_tokens + args.generate_tokens;
    let mut bar = Bar::new("measuring", per_round * (args.repetitions + 1));
    let mut done = 0;
    let mut round = |engine: &mut Engine| -> Result<Option<[Option<f64>; 2]>> {
        let mut go_on = |n: usize| {
            bar.set(done + n);
            !listener.requested()
        };
        let prefill = prefill_rate(engine, prompt, &mut go_on)?;
        let decode = decode_rate(engine, args, text, &mut |n| go_on(args.prompt_tokens + n))?;
        done += per_round;
        Ok((!listener.requested()).then_some([prefill, decode]))
    };
    if round(engine)?.is_none() {
        return Ok(None);
    }
    // Before the probe's own memory.
    let mut rounds = Rounds { peak_memory_bytes: peak_memory(), ..Rounds::default() };
    let bandwidth: Box<dyn Fn() -> f64> = match probe {
        Probe::Cpu(bytes) => {
            let read = ReadProbe::new(bytes);
            Box::new(move || read.bytes_per_second())
        }
        Probe::Device(rate) => Box::new(move || rate),
    };
    for _ in 0..args.repetitions {
        rounds.bandwidth.push(bandwidth());
        let Some([prefill, decode]) = round(engine)? else { return Ok(None) };
        rounds.prefill.extend(prefill);
        rounds.decode.extend(decode);
    }
    Ok(Some(rounds))
}

/// Tokens per second of running `tokens` from an empty cache; nothing when there are none.
///
/// `go_on` gets the number of tokens done; when it says no, the rate is that of a part.
fn prefill_rate(
    engine: &mut Engine,
    tokens: &[u32],
    go_on: &mut dyn FnMut(usize) -> bool,
) -> Result<Option<f64>> {
    if tokens.is_empty() {
        return Ok(None);
    }
    let mut sequence = Sequence::default();
    let started = Instant::now();
    engine.extend(&mut sequence, tokens, Wanted::Likeliest(1), go_on)?;
    let seconds = started.elapsed().as_secs_f64();
    let done = sequence.len();
    engine.truncate(&mut sequence, 0);
    Ok(Some(done as f64 / seconds))
}

/// Tokens per second of all sequences together, of which each runs `text` one by one after its first `--depth` tokens;
/// nothing when no tokens are left.
///
/// `go_on` gets the number of steps done; when it says no, the rate is that of a part.
fn decode_rate(
    engine: &mut Engine,
    args: &Args,
    text: &[u32],
    go_on: &mut dyn FnMut(usize) -> bool,
) -> Result<Option<f64>> {
    let (depth, steps) = text.split_at(args.depth);
    if steps.is_empty() {
        return Ok(None);
    }
    let mut sequences: Vec<Sequence> = (0..args.batch).map(|_| Sequence::default()).collect();
    let mut fill = true;
    for sequence in &mut sequences {
        if fill && !depth.is_empty() {
            engine.extend(sequence, depth, Wanted::Nothing, &mut |_| {
                fill = go_on(0);
                fill
            })?;
        }
    }
    let started = Instant::now();
    let mut done = 0;
    while fill && done < steps.len() {
        let token = &steps[done..done + 1];
        let mut chunks: Vec<Chunk<'_>> = sequences
            .iter_mut()
            .map(|sequence| Chunk { sequence, tokens: token.into(), wanted: Wanted::Likeliest(1) })
            .collect();
        engine.step(&mut chunks)?;
        done += 1;
        fill = go_on(done);
    }
    let seconds = started.elapsed().as_secs_f64();
    for sequence in &mut sequences {
        engine.truncate(sequence, 0);
    }
    Ok(Some((done * args.batch) as f64 / seconds))
}

/// Ids spread over the vocabulary by a multiplicative hash: the same on every run.
fn random_tokens(n: usize, vocab_size: usize) -> Vec<u32> {
    (1..=n as u64)
        .map(|i| ((i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % vocab_size as u64) as u32)
        .collect()
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

    /// The bytes that the kernels' threads read together per second: the best of three passes.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_seeded_and_inside_the_vocabulary() {
        let tokens = random_tokens(1000, 97);
        assert_eq!(tokens, random_tokens(1000, 97));
        assert!(tokens.iter().all(|&token| token < 97));
        assert!((0..97).all(|id| tokens.contains(&id)));
    }
}

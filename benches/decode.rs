//! Whole-model speed on two layers of Qwen3-8B's shapes with random weights: `cargo bench -p ember`, with
//! `--features cuda` (or another backend) on a GPU.
//!
//! For each storage type: prefill of 256 tokens and decode of 32, tokens per second, median of 5 after a warm-up, and
//! the bytes of weights that decode reads per second. `ember bench` measures whole files.
use ember::device::{BackendKind, CacheOptions, DeviceOptions, KvType, LoadOptions, load};
use ember::engine::{Engine, Sequence, Wanted};
use ember::synth::{self, Family, SynthType};
use ember_loaders::checkpoint::Checkpoint;
use ember_loaders::gguf::Gguf;
use std::time::Instant;

const PREFILL: usize = 256;
const DECODE: usize = 32;
const ROUNDS: usize = 5;

fn main() {
    println!("| type | prefill {PREFILL} | decode {DECODE} | weights read in decode |\n|---|---|---|---|");
    for ty in [SynthType::Q8_0, SynthType::Q4_0, SynthType::Q4KM, SynthType::F16] {
        let mut shape = synth::shape(Family::Qwen3, "8b").expect("a preset");
        (shape.layers, shape.vocab, shape.tied) = (2, 2048, true);
        let file = synth::write(Vec::new(), &shape, ty, 0, &mut |_| true).expect("writing to memory");
        let gguf = Gguf::from_bytes(file.expect("not stopped")).expect("a valid file");
        let checkpoint = Checkpoint::from_gguf(gguf).expect("a whole checkpoint");
        let options = LoadOptions {
            device: DeviceOptions { backend: BackendKind::default(), device: 0, threads: None },
            cache: CacheOptions { context_size: PREFILL, kv_type: KvType::F16 },
        };
        let mut engine =
            Engine::new(load(&checkpoint, &options, &mut |_| ()).expect("a model that fits").runner);
        let prefill = rate(&mut engine, PREFILL, PREFILL);
        let decode = rate(&mut engine, DECODE, 1);
        let bytes = synth::data_bytes(&shape, ty) as f64;
        println!(
            "| {ty:?} | {prefill:.1} tokens/s | {decode:.1} tokens/s | {:.1} GB/s |",
            decode * bytes / 1e9
        );
    }
}

/// Median tokens per second of running `n` tokens from an empty cache, `step` at a time.
fn rate(engine: &mut Engine, n: usize, step: usize) -> f64 {
    let tokens: Vec<u32> = (0..n as u32).collect();
    let mut round = || {
        let mut sequence = Sequence::default();
        let started = Instant::now();
        for piece in tokens.chunks(step) {
            engine
                .extend(&mut sequence, piece, Wanted::Likeliest(1), &mut |_| true)
                .expect("it fits the context");
        }
        let seconds = started.elapsed().as_secs_f64();
        engine.truncate(&mut sequence, 0);
        n as f64 / seconds
    };
    round();
    let mut rates: Vec<f64> = (0..ROUNDS).map(|_| round()).collect();
    rates.sort_by(f64::total_cmp);
    rates[ROUNDS / 2]
}

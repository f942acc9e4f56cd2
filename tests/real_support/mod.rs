//! Real models: where they are, how they agree with llama.cpp on its own greedy text, how much memory they take.
#![allow(dead_code, reason = "each test binary uses a part")]
use ember::device::{BackendKind, CacheOptions, DeviceOptions, KvType, LoadOptions, load};
use ember::engine::{Engine, Sequence, Wanted};
use ember_loaders::checkpoint::Checkpoint;
use ember_test_support::{TensorFile, fixture};
use std::path::{Path, PathBuf};
use std::process::Command;

const PROMPTS: [&str; 8] = [
    "chat_chinese",
    "chat_code",
    "chat_explain",
    "chat_german",
    "raw_code",
    "raw_facts",
    "raw_french",
    "raw_story",
];

/// The file of a model, or a failure that says how to get it.
pub fn model(name: &str) -> PathBuf {
    let dir =
        std::env::var("EMBER_REFERENCE_DIR").expect("EMBER_REFERENCE_DIR names the folder of real models");
    let path = Path::new(&dir).join(name);
    assert!(
        path.is_file(),
        "{} is missing: scripts/fetch_model.sh --help says how to get it",
        path.display()
    );
    path
}

/// The answer of llama.cpp to one prompt: its greedy tokens and, per position, its likeliest tokens, best first.
struct Golden {
    prompt: Vec<u32>,
    generated: Vec<u32>,
    /// `[positions, top]`.
    top_ids: Vec<u32>,
    top_logprobs: Vec<f32>,
    top: usize,
}

fn golden(file: &TensorFile, name: &str) -> Golden {
    let name = |part: &str| format!("{name}.{part}");
    Golden {
        prompt: file.ids(&name("prompt")),
        generated: file.ids(&name("generated")),
        top_ids: file.ids(&name("top_ids")),
        top: file.shape(&name("top_logprobs"))[1],
        top_logprobs: file.f32(&name("top_logprobs")),
    }
}

/// Agreement over any number of positions.
#[derive(Default)]
struct Agreement {
    positions: usize,
    equal: usize,
    divergence: f64,
    /// Of each difference, how far apart llama.cpp's two tokens are.
    widest_gap: f64,
}

impl Agreement {
    fn add(&mut self, logits: &[f32], ids: &[u32], logprobs: &[f32]) {
        assert!(logits.iter().all(|logit| logit.is_finite()), "logits that are not finite");
        let largest = logits.iter().fold(f32::NEG_INFINITY, |m, &l| m.max(l));
        let sum: f64 = logits.iter().map(|&l| f64::from(l - largest).exp()).sum();
        let logprob = |id: u32| f64::from(logits[id as usize] - largest) - sum.ln();
        let best = logits.iter().position(|&l| l == largest).expect("finite logits") as u32;
        self.positions += 1;
        if best == ids[0] {
            self.equal += 1;
        } else {
            let there = ids
                .iter()
                .position(|&id| id == best)
                .map_or(f64::INFINITY, |i| f64::from(logprobs[0] - logprobs[i]));
            self.widest_gap = self.widest_gap.max(there).max(logprob(best) - logprob(ids[0]));
        }
        // KL(llama.cpp || ours) over the listed tokens and, as one more outcome, all others.
        let (mut p_rest, mut q_rest) = (1.0, 1.0);
        for (&id, &p) in ids.iter().zip(logprobs) {
            let (p, q) = (f64::from(p), logprob(id));
            self.divergence += p.exp() * (p - q);
            p_rest -= p.exp();
            q_rest -= q.exp();
        }
        if p_rest > 1e-9 {
            self.divergence += p_rest * (p_rest / q_rest.max(1e-12)).ln();
        }
    }
}

/// Fails unless logits agree with llama.cpp's as well as two correct engines do.
pub fn assert_agrees(model_file: &str, golden_file: &str) {
    let checkpoint = Checkpoint::open(model(model_file)).expect("a model that is supported");
    let options = LoadOptions {
        device: DeviceOptions { backend: BackendKind::Ndarray, device: 0, threads: None },
        cache: CacheOptions { context_size: 512, kv_type: KvType::F16 },
    };
    let mut engine =
        Engine::new(load(&checkpoint, &options, &mut |_| ()).expect("a model that is supported").runner);
    let file = TensorFile::open(fixture("real").join(golden_file));
    let mut agreement = Agreement::default();
    for name in PROMPTS {
        let golden = golden(&file, name);
        let forced = [&golden.prompt[..], &golden.generated[..golden.generated.len() - 1]].concat();
        let mut sequence = Sequence::default();
        let output =
            engine.extend(&mut sequence, &forced, Wanted::All, &mut |_| true).expect("a prompt that fits");
        engine.truncate(&mut sequence, 0);
        let vocab = checkpoint.config().vocab_size;
        let rows = output.logits.chunks_exact(vocab).skip(golden.prompt.len() - 1);
        let tops = golden.top_ids.chunks_exact(golden.top).zip(golden.top_logprobs.chunks_exact(golden.top));
        for (row, (ids, logprobs)) in rows.zip(tops) {
            agreement.add(row, ids, logprobs);
        }
    }
    assert_eq!(agreement.positions, 8 * 64);
    let share = agreement.equal as f64 / agreement.positions as f64;
    let divergence = agreement.divergence / agreement.positions as f64;
    let gap = agreement.widest_gap;
    println!("{model_file}: {:.1} % equal, widest gap {gap:.3}, mean KL {divergence:.5}", 100.0 * share);
    assert!(share >= 0.96, "only {share} of the positions have llama.cpp's token");
    assert!(gap <= 0.5, "a difference where llama.cpp's two tokens are {gap} apart");
    assert!(divergence < 0.01, "mean KL {divergence}");
}

/// Fails unless resident memory beyond the file and the KV cache (activations, tables, the tokenizer, the program
/// itself) stays within 200 MB.
pub fn assert_memory_is_bounded(name: &str) {
    let model = model(name);
    let output = Command::new(env!("CARGO_BIN_EXE_ember"))
        .args(["bench", "--backend", "ndarray", "-p", "512", "-n", "16", "-r", "1", "-o", "json"])
        .args(["--ctx-size", "2048", "-m"])
        .arg(&model)
        .output()
        .expect("the binary runs");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a JSON report");
    let number = |key: &str| report[key].as_u64().unwrap_or_else(|| panic!("{key} in {report}"));
    let file = std::fs::metadata(&model).expect("the file is there").len();
    let limit = file + number("kv_cache_bytes") + 200_000_000;
    let peak = number("peak_memory_bytes");
    println!("{name}: peak {peak} of {limit} bytes");
    assert!(peak <= limit, "{name}: {peak} bytes resident, more than {limit}");
}

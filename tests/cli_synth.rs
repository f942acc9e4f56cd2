//! `ember synth` writes files that every other command can use, and `ember bench` measures them.
mod cli_support;

use cli_support::{ember, scratch};
use ember_loaders::checkpoint::{Arch, Checkpoint, TensorSource};
use std::path::Path;

fn synth(arch: &str, preset: &str, ty: &str, seed: &str, out: &Path) -> cli_support::Ran {
    let out = out.to_str().expect("a UTF-8 path");
    ember(&["synth", "--arch", arch, "--preset", preset, "--type", ty, "--layers", "1", "--seed", seed, out])
}

#[test]
fn files_have_the_published_shape_run_and_are_not_overwritten() {
    let path = scratch("qwen3.gguf");
    synth("qwen3", "0.6b", "q4_k_m", "1", &path).ok();
    let checkpoint = Checkpoint::open(&path).expect("a whole checkpoint");
    let config = checkpoint.config();
    assert_eq!((config.arch, config.hidden_size, config.ffn_size), (Arch::Qwen3, 1024, 3072));
    assert_eq!((config.n_heads, config.n_kv_heads, config.head_dim), (16, 8, 128));
    assert_eq!((config.vocab_size, config.tied_embeddings, config.n_layers), (151_936, true, 1));
    let ty = |name: &str| checkpoint.tensor(name).expect(name).ty.name();
    assert_eq!((ty("token_embd.weight"), ty("blk.0.attn_q.weight")), ("Q6_K", "Q4_K"));
    let model = path.to_str().expect("a UTF-8 path");
    let answer = ember(&["run", "-m", model, "--max-tokens", "3", "--json", "hello"]).ok().json();
    assert_eq!(answer["generated_tokens"].as_u64(), Some(3), "{answer}");
    let report = ember(&["bench", "-m", model, "-p", "16", "-n", "4", "-r", "2", "-o", "json"]).ok().json();
    assert_eq!(
        (report["prefill"]["tokens"].as_u64(), report["decode"]["tokens"].as_u64()),
        (Some(16), Some(4))
    );
    let weights: usize =
        checkpoint.gguf().expect("a GGUF file").tensors().iter().filter_map(|t| t.n_bytes()).sum();
    assert_eq!(report["weight_bytes_per_token"].as_u64(), Some(weights as u64));
    let empty = ember(&["bench", "-m", model, "-p", "0", "-n", "0"]);
    assert_eq!(empty.status, 2);
    assert!(empty.stderr.contains("-p and -n are both 0"), "{}", empty.stderr);

    let bytes = std::fs::read(&path).expect("it was written");
    let refused = synth("qwen3", "0.6b", "q4_k_m", "2", &path);
    assert_eq!(refused.status, 1);
    assert!(refused.stderr.contains("--force"), "{}", refused.stderr);
    assert!(bytes == std::fs::read(&path).expect("it is still there"), "the file was left alone");
    let args = ["--type", "q4_k_m", "--layers", "1", "--seed", "2", "--force", model];
    ember(&[&["synth", "--arch", "qwen3", "--preset", "0.6b"], &args[..]].concat()).ok();
    assert!(bytes != std::fs::read(&path).expect("it was replaced"), "another seed gives another file");
    std::fs::remove_file(path).expect("it was written");
}

#[test]
fn unknown_presets_are_refused_with_the_known_ones() {
    let refused = synth("llama", "24b", "q8_0", "0", &scratch("none.gguf"));
    assert_eq!(refused.status, 2);
    assert!(refused.stderr.contains("3b, 8b"), "{}", refused.stderr);
}

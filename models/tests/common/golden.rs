//! Tiny random models and what Hugging Face transformers computes with them.
use super::values;
use ember_loaders::checkpoint::Checkpoint;
use ember_models::backend::Backend;
use ember_models::{Batch, KvCache, KvType, TextModel, WeightFormat};
use ember_test_support::{Reference, fixture, lowest_cosine, max_relative_by_row};
use std::path::{Path, PathBuf};

/// The file of a model.
pub fn file(path: &str) -> PathBuf {
    fixture(Path::new("models").join(path))
}

/// The reference of a model.
pub fn reference(path: &str) -> Reference {
    Reference::open(file(path))
}

/// Logits of every position `[tokens, vocab]`, through a cache of the given type.
pub fn paged_logits<B: Backend>(model: &TextModel<B>, reference: &Reference, ty: KvType) -> Vec<f32> {
    let n = reference.tokens.len();
    let table: Vec<u32> = (0..n.div_ceil(KvCache::BLOCK_LEN) as u32).collect();
    let mut batch = Batch::single(&reference.tokens, 0, &table, KvCache::BLOCK_LEN);
    batch.positions.clone_from(&reference.positions);
    batch.logits_rows = (0..n as u32).collect();
    let mut cache = KvCache::new::<B>(model.config(), ty, n, &Default::default()).expect("a small cache");
    let output = model.step(&batch, &mut cache, &Default::default()).expect("a valid batch");
    values(output.logits.expect("every row was wanted"))
}

/// A step that looks for broken numbers gives the bits of one that does not.
pub fn a_checked_step_computes_the_same<B: Backend>() {
    for name in ["qwen3-tied/q8_0.gguf", "ministral3/f32.gguf", "qwen2/f32.gguf"] {
        let (model, device) = (load::<B>(name), Default::default());
        let mut batch = Batch::single(&[5, 9, 70, 11], 0, &[0], KvCache::BLOCK_LEN);
        batch.logits_rows = (0..4).collect();
        let [checked, plain] = [true, false].map(|check| {
            let mut cache =
                KvCache::new::<B>(model.config(), KvType::F16, 4, &device).expect("a small cache");
            let output = model.decoder().step_checked(&batch, &mut cache, &device, check);
            values(output.expect("a healthy model").logits.expect("every row was wanted"))
        });
        assert_eq!(checked, plain, "{name}");
    }
}

/// Largest over the positions of max|Δ| / max|logit|.
pub fn worst_position(logits: &[f32], reference: &Reference) -> f64 {
    max_relative_by_row(logits, &reference.logits, reference.vocab())
}

/// Fails unless every position's logits are within `limit` of the reference's, relative to its largest.
pub fn assert_within(limit: f64, logits: &[f32], reference: &Reference, what: &str) {
    let error = worst_position(logits, reference);
    assert!(error < limit, "{what}: off by {error:.2e}, {limit:.0e} allowed");
}

/// F32 files and folders with each of their references.
pub const EXACT: [(&str, &str); 17] = [
    ("qwen3-tied/f32.gguf", "qwen3-tied/reference.safetensors"),
    ("qwen3-untied/f32.gguf", "qwen3-untied/reference.safetensors"),
    ("qwen3-untied/hf", "qwen3-untied/reference.safetensors"),
    ("qwen3-yarn/f32.gguf", "qwen3-yarn/reference.safetensors"),
    ("qwen3-linear/f32.gguf", "qwen3-linear/reference.safetensors"),
    ("ministral3/f32.gguf", "ministral3/reference.safetensors"),
    ("ministral3/f32.gguf", "ministral3/reference-crossing.safetensors"),
    ("ministral3/f32.gguf", "ministral3/reference-far.safetensors"),
    ("ministral3-short/f32.gguf", "ministral3-short/reference.safetensors"),
    ("ministral3-short/hf", "ministral3-short/reference.safetensors"),
    ("mistral-small/f32.gguf", "mistral-small/reference.safetensors"),
    ("mistral-small-llama/f32.gguf", "mistral-small-llama/reference.safetensors"),
    ("llama/f32.gguf", "llama/reference.safetensors"),
    ("llama3-rope/f32.gguf", "llama3-rope/reference.safetensors"),
    ("qwen2/f32.gguf", "qwen2/reference.safetensors"),
    ("qwen2/hf", "qwen2/reference-bf16.safetensors"),
    ("qwen2/bf16.gguf", "qwen2/reference-bf16.safetensors"),
];

/// The model of a fixture, packed.
pub fn load<B: Backend>(path: &str) -> TextModel<B> {
    let checkpoint = Checkpoint::open(file(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    TextModel::load(&checkpoint, WeightFormat::Packed, &Default::default()).expect("a whole checkpoint")
}

/// F32 files against each of their references.
pub fn f32_logits_equal_the_reference<B: Backend>() {
    for (model, expected) in EXACT {
        let reference = reference(expected);
        let logits = paged_logits(&load::<B>(model), &reference, KvType::F32);
        assert_within(1e-4, &logits, &reference, &format!("{model} against {expected}"));
    }
}

/// Models with heads of 32, which every type of cache can hold.
pub const KV_MODELS: [(&str, &str); 2] = [
    ("qwen3-tied/f32.gguf", "qwen3-tied/reference.safetensors"),
    ("ministral3/f32.gguf", "ministral3/reference.safetensors"),
];

/// The most that each type of cache may cost, as max|Δ| / max|logit| at the worst position. On the CPU the worse of the two
/// models is off by 1.7e-6, 7.5e-4, 8.3e-3 and 2.18e-2.
pub const KV_LIMITS: [(KvType, f64); 4] =
    [(KvType::F32, 1e-5), (KvType::F16, 9e-4), (KvType::BF16, 9e-3), (KvType::Q8_0, 2.4e-2)];

/// F32 files through caches of every type.
pub fn every_kv_type_is_within_its_limit<B: Backend>() {
    for (model, expected) in KV_MODELS {
        let (model, reference) = (load::<B>(model), reference(expected));
        for (ty, limit) in KV_LIMITS {
            let error = worst_position(&paged_logits(&model, &reference, ty), &reference);
            assert!(error < limit, "{expected}, {ty:?}: off by {error:.3e}, {limit:.1e} allowed");
            // A type that rounds shows it: nothing was kept in another one.
            let least = if ty == KvType::F32 { 0.0 } else { limit / 2.0 };
            assert!(error > least, "{expected}, {ty:?}: off by {error:.3e} only");
        }
    }
}

/// The reference here is the model with the same rounded weights: what is left is the rounding of activations, if any.
pub fn every_block_type_runs<B: Backend>(least_cosine: f64) {
    let types_32 = ["q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"].map(|ty| ("blocks-32", ty));
    let types_256 = ["q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_xs"].map(|ty| ("blocks-256", ty));
    for (folder, ty) in types_32.into_iter().chain(types_256) {
        let reference = reference(&format!("{folder}/reference-{ty}.safetensors"));
        let logits = paged_logits(&load::<B>(&format!("{folder}/{ty}.gguf")), &reference, KvType::F32);
        let cosine = lowest_cosine(&logits, &reference.logits, reference.vocab());
        assert!(cosine > least_cosine, "{ty}: {cosine}");
    }
}

//! Tiny random models and what Hugging Face transformers computes with them.
use super::{cosine, max_relative, values};
use ember_loaders::checkpoint::Checkpoint;
use ember_models::backend::Backend;
use ember_models::{Batch, KvCache, KvType, TextModel, WeightFormat};
use safetensors::SafeTensors;
use std::path::{Path, PathBuf};

/// What Hugging Face transformers computed.
pub struct Reference {
    /// The prompt.
    pub tokens: Vec<u32>,
    /// Rotary positions.
    pub positions: Vec<u32>,
    /// `[tokens, vocab]`.
    pub logits: Vec<f32>,
    /// Its greedy continuation.
    pub greedy: Vec<u32>,
}

/// A committed fixture.
pub fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/models").join(path)
}

/// The reference of a model.
pub fn reference(path: &str) -> Reference {
    let bytes = std::fs::read(fixture(path)).expect("a committed fixture");
    let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    let ids = |name: &str| {
        let data = file.tensor(name).map(|t| t.data().to_vec()).unwrap_or_default();
        data.chunks_exact(8)
            .map(|b| i64::from_le_bytes(b.try_into().expect("8 bytes")) as u32)
            .collect::<Vec<_>>()
    };
    let logits = file.tensor("logits").expect("logits").data().to_vec();
    let tokens = ids("input_ids");
    let mut positions = ids("position_ids");
    if positions.is_empty() {
        positions = (0..tokens.len() as u32).collect();
    }
    Reference {
        tokens,
        positions,
        logits: logits.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes"))).collect(),
        greedy: ids("greedy"),
    }
}

/// Logits of every position `[tokens, vocab]`, through an f32 cache.
pub fn paged_logits<B: Backend>(model: &TextModel<B>, reference: &Reference) -> Vec<f32> {
    let n = reference.tokens.len();
    let table: Vec<u32> = (0..n.div_ceil(KvCache::BLOCK_LEN) as u32).collect();
    let mut batch = Batch::single(&reference.tokens, 0, &table, KvCache::BLOCK_LEN);
    batch.positions.clone_from(&reference.positions);
    batch.logits_rows = (0..n as u32).collect();
    let mut cache =
        KvCache::new::<B>(model.config(), KvType::F32, n, &Default::default()).expect("a small cache");
    let output = model.step(&batch, &mut cache, &Default::default()).expect("a valid batch");
    values(output.logits.expect("every row was wanted"))
}

/// Largest over the positions of max|Δ| / max|logit|.
pub fn worst_position(logits: &[f32], reference: &Reference) -> f32 {
    let vocab = reference.logits.len() / reference.tokens.len();
    let rows = logits.chunks_exact(vocab).zip(reference.logits.chunks_exact(vocab));
    rows.map(|(a, b)| max_relative(a, b)).fold(0.0, f32::max)
}

/// Smallest over the positions of the cosine between logits.
pub fn lowest_cosine(logits: &[f32], reference: &Reference) -> f64 {
    let vocab = reference.logits.len() / reference.tokens.len();
    let rows = logits.chunks_exact(vocab).zip(reference.logits.chunks_exact(vocab));
    rows.map(|(a, b)| cosine(a, b)).fold(1.0, f64::min)
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
    let checkpoint = Checkpoint::open(fixture(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    TextModel::load(&checkpoint, WeightFormat::Packed, &Default::default()).expect("a whole checkpoint")
}

/// F32 files against each of their references.
pub fn f32_logits_equal_the_reference<B: Backend>() {
    for (model, expected) in EXACT {
        let reference = reference(expected);
        let error = worst_position(&paged_logits(&load::<B>(model), &reference), &reference);
        assert!(error < 1e-4, "{model} against {expected}: {error}");
    }
}

/// The reference here is the model with the same rounded weights: what is left is the rounding of activations, if any.
pub fn every_block_type_runs<B: Backend>(least_cosine: f64) {
    let types_32 = ["q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"].map(|ty| ("blocks-32", ty));
    let types_256 = ["q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_xs"].map(|ty| ("blocks-256", ty));
    for (folder, ty) in types_32.into_iter().chain(types_256) {
        let reference = reference(&format!("{folder}/reference-{ty}.safetensors"));
        let model = load::<B>(&format!("{folder}/{ty}.gguf"));
        let cosine = lowest_cosine(&paged_logits(&model, &reference), &reference);
        assert!(cosine > least_cosine, "{ty}: {cosine}");
    }
}

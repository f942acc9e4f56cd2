//! Logits of tiny random models against Hugging Face transformers, and mutations that must not pass.
mod common;

use burn_ndarray::NdArray;
use common::golden::{self, EXACT, fixture, load, lowest_cosine, paged_logits, reference, worst_position};
use common::values;
use ember_loaders::checkpoint::{Checkpoint, ModelConfig, Pairing, RopeScaling};
use ember_models::{TextModel, WeightFormat};

type B = NdArray;

#[test]
fn f32_logits_equal_the_reference() {
    golden::f32_logits_equal_the_reference::<B>();
}

#[test]
fn the_cacheless_forward_equals_the_reference() {
    for (model, expected) in EXACT {
        let reference = reference(expected);
        let ids: Vec<i64> = reference.tokens.iter().map(|&id| i64::from(id)).collect();
        let shape = [1, ids.len()];
        let tokens =
            burn::tensor::Tensor::from_data(burn::tensor::TensorData::new(ids, shape), &Default::default());
        let logits = values(load::<B>(model).forward_at(tokens, &reference.positions));
        let error = worst_position(&logits, &reference);
        assert!(error < 1e-4, "{model} against {expected}: {error}");
    }
}

#[test]
fn greedy_continuations_equal_the_reference() {
    for (model, expected) in EXACT {
        let mut reference = reference(expected);
        let model = load::<B>(model);
        let wanted = std::mem::take(&mut reference.greedy);
        for (i, wanted) in wanted.iter().enumerate() {
            let logits = paged_logits(&model, &reference);
            let vocab = model.config().vocab_size;
            let last = &logits[logits.len() - vocab..];
            let top = (0..vocab).max_by(|&a, &b| last[a].total_cmp(&last[b])).expect("a vocabulary") as u32;
            assert_eq!(top, *wanted, "{expected}, token {i}");
            reference.tokens.push(top);
            reference.positions.push(reference.positions.last().expect("a prompt") + 1);
        }
    }
}

#[test]
fn rounded_weights_stay_close() {
    let files = [
        ("qwen3-tied/f16.gguf", "qwen3-tied/reference.safetensors", 0.9999),
        ("ministral3/f16.gguf", "ministral3/reference.safetensors", 0.9999),
        ("qwen3-tied/q8_0.gguf", "qwen3-tied/reference.safetensors", 0.998),
        ("ministral3/q8_0.gguf", "ministral3/reference.safetensors", 0.998),
    ];
    for (model, expected, floor) in files {
        let reference = reference(expected);
        let cosine = lowest_cosine(&paged_logits(&load::<B>(model), &reference), &reference);
        assert!(cosine > floor, "{model}: {cosine}");
    }
}

#[test]
fn every_block_type_runs() {
    golden::every_block_type_runs::<B>(0.999);
}

/// Breaks one property of the configuration; the golden comparison must notice.
fn assert_mutation_is_caught(model: &str, expected: &str, mutate: impl Fn(&mut ModelConfig)) {
    let checkpoint = Checkpoint::open(fixture(model)).expect("a committed fixture");
    let mut config = checkpoint.config().clone();
    mutate(&mut config);
    assert_ne!(&config, checkpoint.config(), "the mutation changes something");
    let mutant = TextModel::<B>::load_as(&checkpoint, config, WeightFormat::Packed, &Default::default())
        .expect("sizes are unchanged");
    let reference = reference(expected);
    let error = worst_position(&paged_logits(&mutant, &reference), &reference);
    assert!(error > 1e-3, "{model}: the mutation passes with {error}");
}

#[test]
fn mutations_are_caught() {
    let qwen3 = |mutate: &dyn Fn(&mut ModelConfig)| {
        assert_mutation_is_caught("qwen3-tied/f32.gguf", "qwen3-tied/reference.safetensors", mutate);
    };
    qwen3(&|config| config.rope.pairing = Pairing::Adjacent);
    qwen3(&|config| config.qk_norm = false);
    qwen3(&|config| config.rope.freq_base = 1e4);
    qwen3(&|config| {
        config.attention_scale = Some(1.0 / (config.hidden_size as f32 / config.n_heads as f32).sqrt())
    });
    qwen3(&|config| config.norm_eps = 1e-1);
    assert_mutation_is_caught("qwen3-linear/f32.gguf", "qwen3-linear/reference.safetensors", |config| {
        config.rope.scaling = RopeScaling::None;
    });
    let far = |mutate: &dyn Fn(&mut ModelConfig)| {
        assert_mutation_is_caught("ministral3/f32.gguf", "ministral3/reference-far.safetensors", mutate);
    };
    far(&|config| config.rope.pairing = Pairing::Half);
    far(&|config| config.query_scale = None);
    far(&|config| config.rope.scaling = RopeScaling::None);
    far(&|config| {
        let RopeScaling::Yarn { ref mut beta_fast, .. } = config.rope.scaling else {
            panic!("Ministral has YaRN")
        };
        *beta_fast = 4.0;
    });
    assert_mutation_is_caught("qwen3-yarn/f32.gguf", "qwen3-yarn/reference.safetensors", |config| {
        let RopeScaling::Yarn { ref mut attn_factor, .. } = config.rope.scaling else {
            panic!("it has YaRN")
        };
        *attn_factor = 0.9;
    });
}

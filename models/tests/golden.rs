//! Logits of tiny random models against Hugging Face transformers, and mutations that must not pass.
mod common;

use burn_ndarray::NdArray;
use common::golden::{
    self, EXACT, KV_LIMITS, KV_MODELS, assert_within, load, paged_logits, reference, worst_position,
};
use common::values;
use ember_loaders::checkpoint::{Checkpoint, ModelConfig, Pairing, RopeScaling};
use ember_models::{Batch, KvCache, KvType, TextModel, WeightFormat};
use ember_test_support::{Reference, lowest_cosine};
use half::{bf16, f16};
use std::panic::catch_unwind;

type B = NdArray;

#[test]
fn a_checked_step_computes_the_same() {
    golden::a_checked_step_computes_the_same::<B>();
}

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
        assert_within(1e-4, &logits, &reference, &format!("{model} against {expected}"));
    }
}

#[test]
fn greedy_continuations_equal_the_reference() {
    for (model, expected) in EXACT {
        let mut reference = reference(expected);
        let model = load::<B>(model);
        let wanted = std::mem::take(&mut reference.greedy);
        // Files have one where the prompt starts at position 0.
        assert_eq!(wanted.len(), if reference.positions[0] == 0 { 16 } else { 0 }, "{expected}");
        for (i, wanted) in wanted.iter().enumerate() {
            let logits = paged_logits(&model, &reference, KvType::F32);
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
        let logits = paged_logits(&load::<B>(model), &reference, KvType::F32);
        let cosine = lowest_cosine(&logits, &reference.logits, reference.vocab());
        assert!(cosine > floor, "{model}: {cosine}");
    }
}

#[test]
fn every_block_type_runs() {
    golden::every_block_type_runs::<B>(0.999);
}

#[test]
fn every_kv_type_is_within_its_limit() {
    golden::every_kv_type_is_within_its_limit::<B>();
}

/// Multiplies what a slot's row holds, as it holds it: of q8_0 blocks the scale.
fn rescale(ty: KvType, row: &mut [u8], factor: f32) {
    let size = match ty {
        KvType::F32 => 4,
        KvType::F16 | KvType::BF16 => 2,
        KvType::Q8_0 => 34,
    };
    for element in row.chunks_exact_mut(size) {
        let (half, _) = element.split_at_mut(2);
        let bits = [half[0], half[1]];
        match ty {
            KvType::F32 => {
                let value = f32::from_le_bytes([element[0], element[1], element[2], element[3]]);
                element.copy_from_slice(&(factor * value).to_le_bytes());
            }
            KvType::BF16 => {
                half.copy_from_slice(
                    &bf16::from_f32(factor * bf16::from_le_bytes(bits).to_f32()).to_le_bytes(),
                );
            }
            KvType::F16 | KvType::Q8_0 => {
                half.copy_from_slice(
                    &f16::from_f32(factor * f16::from_le_bytes(bits).to_f32()).to_le_bytes(),
                );
            }
        }
    }
}

/// Logits of every position through a cache whose keys and values are rescaled after every token.
fn rescaled_logits(model: &TextModel<B>, reference: &Reference, ty: KvType, factor: f32) -> Vec<f32> {
    let (n, device) = (reference.tokens.len(), Default::default());
    let mut cache = KvCache::new::<B>(model.config(), ty, n, &device).expect("a small cache");
    let layout = cache.layout();
    let table: Vec<u32> = (0..cache.n_blocks() as u32).collect();
    let mut logits = Vec::new();
    for (entry, (&token, &position)) in reference.tokens.iter().zip(&reference.positions).enumerate() {
        let batch = Batch::single(&[token], entry as u32, &table, layout.block_len);
        let batch = Batch { positions: vec![position], logits_rows: vec![0], ..batch };
        let output = model.step(&batch, &mut cache, &device).expect("a valid batch");
        logits.extend(values(output.logits.expect("the row was wanted")));
        for layer in 0..model.config().n_layers {
            let (keys, values) = cache.layer_mut(layer).as_host_mut();
            for pool in [keys, values] {
                for head in 0..layout.n_kv_heads {
                    let block = entry / layout.block_len * layout.n_kv_heads + head;
                    let row = block * layout.block_len + entry % layout.block_len;
                    rescale(ty, &mut pool[row * layout.row_bytes()..][..layout.row_bytes()], factor);
                }
            }
        }
    }
    logits
}

/// The control of the limits: keys and values that are too large by 128 to 127, a q8_0 scale of the wrong maximum.
#[test]
fn a_wrong_scale_in_the_cache_is_caught() {
    for (model, expected) in KV_MODELS {
        let (model, reference) = (load::<B>(model), reference(expected));
        for (ty, limit) in KV_LIMITS {
            let error = |factor| worst_position(&rescaled_logits(&model, &reference, ty, factor), &reference);
            let (right, wrong) = (error(1.0), error(128.0 / 127.0));
            assert!(right < limit && wrong > limit, "{expected}, {ty:?}: {right:.3e} and {wrong:.3e}");
        }
    }
}

/// The control of every comparison with a reference.
#[test]
fn logits_that_are_not_numbers_fail() {
    let reference = reference(EXACT[0].1);
    let refused = |logits: &[f32], found: &str| {
        let failed = catch_unwind(|| assert_within(1e-4, logits, &reference, "a model")).expect_err(found);
        let message = failed.downcast::<String>().expect("a formatted message");
        assert!(message.contains(found), "{message}");
    };
    assert_within(1e-4, &reference.logits, &reference, "the reference");
    refused(&vec![f32::NAN; reference.logits.len()], "element 0 is NaN");
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut logits = reference.logits.clone();
        *logits.last_mut().expect("a vocabulary") = bad;
        refused(&logits, &format!("is {bad}, expected"));
    }
    refused(&reference.logits[reference.vocab()..], "lengths differ");
    refused(&[], "lengths differ");

    // A model whose every logit is NaN.
    let checkpoint = Checkpoint::open(golden::file(EXACT[0].0)).expect("a committed fixture");
    let config = ModelConfig { norm_eps: f32::NAN, ..checkpoint.config().clone() };
    let broken = TextModel::<B>::load_as(&checkpoint, config, WeightFormat::Packed, &Default::default());
    let logits = paged_logits(&broken.expect("sizes are unchanged"), &reference, KvType::F32);
    assert!(logits.iter().all(|logit| logit.is_nan()));
    refused(&logits, "element 0 is NaN");
}

/// Breaks one property of the configuration; the golden comparison must notice.
fn assert_mutation_is_caught(model: &str, expected: &str, mutate: impl Fn(&mut ModelConfig)) {
    let checkpoint = Checkpoint::open(golden::file(model)).expect("a committed fixture");
    let mut config = checkpoint.config().clone();
    mutate(&mut config);
    assert_ne!(&config, checkpoint.config(), "the mutation changes something");
    let mutant = TextModel::<B>::load_as(&checkpoint, config, WeightFormat::Packed, &Default::default())
        .expect("sizes are unchanged");
    let reference = reference(expected);
    let error = worst_position(&paged_logits(&mutant, &reference, KvType::F32), &reference);
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

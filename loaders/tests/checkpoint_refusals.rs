//! Every way in which a well-formed GGUF file is not a usable model, and what the message names.

mod checkpoint_support;

use checkpoint_support::{HEAD_DIM, HIDDEN, TinyModel, assert_names};
use ember_loaders::gguf::Value;

#[test]
fn unknown_architecture_says_what_is_accepted() {
    let message = TinyModel::dense("gemma3").refusal();
    assert_names(&message, &["`gemma3`", "qwen3: dense, with attn_q_norm", "mistral3:", "[SYSTEM_PROMPT]"]);
    assert_names(&message, &["llama: dense", "qwen2: dense, with biases"]);
}

#[test]
fn files_that_are_not_models() {
    let message = TinyModel::qwen3().key("general.type", "mmproj").refusal();
    assert_names(&message, &["general.type", "`mmproj`", "give the text model's file"]);
    let vocabulary = TinyModel::qwen3().without_tensors();
    assert_names(&vocabulary.refusal(), &["the file has no tensors, only metadata"]);
}

#[test]
fn missing_keys() {
    for suffix in [
        "block_count",
        "embedding_length",
        "feed_forward_length",
        "context_length",
        "attention.head_count",
        "attention.layer_norm_rms_epsilon",
    ] {
        let message = TinyModel::qwen3().unset(suffix).refusal();
        assert_names(&message, &[&format!("`qwen3.{suffix}` is missing")]);
    }
}

#[test]
fn zero_and_absurd_sizes() {
    for suffix in [
        "block_count",
        "embedding_length",
        "feed_forward_length",
        "context_length",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "rope.dimension_count",
    ] {
        let message = TinyModel::qwen3().set(suffix, 0_u32).refusal();
        assert_names(&message, &[&format!("`qwen3.{suffix}`: must not be 0")]);
        let message = TinyModel::qwen3().set(suffix, 4_000_000_000_u32).refusal();
        assert_names(&message, &[&format!("`qwen3.{suffix}`: 4000000000 is absurd")]);
    }
    let empty: Vec<String> = Vec::new();
    let message = TinyModel::qwen3().key("tokenizer.ggml.tokens", empty).refusal();
    assert_names(&message, &["`tokenizer.ggml.tokens`: must not be 0"]);
}

#[test]
fn numbers_that_are_not_positive() {
    for value in [0.0, -1e-6, f32::NAN, f32::INFINITY] {
        let message = TinyModel::qwen3().set("attention.layer_norm_rms_epsilon", value).refusal();
        assert_names(&message, &["`qwen3.attention.layer_norm_rms_epsilon`", "not a positive number"]);
    }
    let message = TinyModel::qwen3().set("rope.freq_base", f32::NAN).refusal();
    assert_names(&message, &["`qwen3.rope.freq_base`", "not a finite number"]);
    let message = TinyModel::qwen3().set("rope.freq_base", 1.0_f32).refusal();
    assert_names(&message, &["rope.freq_base is 1"]);
    let message = TinyModel::qwen3().set("rope.scaling.factor", -4.0_f32).refusal();
    assert_names(&message, &["`qwen3.rope.scaling.factor`: -4 is not a positive number"]);
}

#[test]
fn sizes_that_contradict_each_other() {
    let message = TinyModel::qwen3().set("attention.head_count_kv", 3_u32).refusal();
    assert_names(&message, &["4 attention heads are not a multiple of 3 key/value heads", "head_count_kv"]);
    let message = TinyModel::qwen3().set("attention.value_length", 8_u32).refusal();
    assert_names(&message, &["attention.key_length 16 and attention.value_length 8 differ"]);
    let message = TinyModel::qwen3().set("rope.dimension_count", 8_u32).refusal();
    assert_names(&message, &["rope.dimension_count is 8 but the head dimension is 16"]);
    let odd = TinyModel::qwen3().set("attention.key_length", 15_u32).set("attention.value_length", 15_u32);
    assert_names(&odd.refusal(), &["head dimension 15", "odd"]);
    let indivisible = TinyModel::qwen3().set("attention.head_count", 5_u32).unset("attention.key_length");
    assert_names(
        &indivisible.refusal(),
        &["embedding_length 32 is not a multiple of attention.head_count 5"],
    );
}

#[test]
fn rope_scaling() {
    let message = TinyModel::qwen3().set("rope.scaling.type", "longrope").refusal();
    assert_names(&message, &["`qwen3.rope.scaling.type`: `longrope` is not supported", "linear and yarn"]);
    let message = TinyModel::qwen3().set("rope.scaling.type", "yarn").refusal();
    assert_names(&message, &["`qwen3.rope.scaling.factor`: is missing", "yarn"]);
    let message = TinyModel::ministral3().set("rope.scaling.yarn_beta_fast", -1.0_f32).refusal();
    assert_names(&message, &["`mistral3.rope.scaling.yarn_beta_fast`: -1 is not a positive number"]);
    let message = TinyModel::ministral3().set("rope.scaling.original_context_length", 0_u32).refusal();
    assert_names(
        &message,
        &["mistral3.rope.scaling.original_context_length", "must not be 0", "temperature_scale"],
    );
    let message = TinyModel::qwen2().tensor("rope_freqs.weight", &[8]).refusal();
    assert_names(&message, &["qwen2 does not use a tensor", "rope_freqs.weight"]);
    for factor in [0.0, f32::NAN, f32::INFINITY, -1.0] {
        let message = TinyModel::dense("llama").filled("rope_freqs.weight", &[8], factor).refusal();
        assert_names(&message, &["`rope_freqs.weight`", "damaged"]);
    }
}

#[test]
fn keys_of_other_computations() {
    for (suffix, value) in [
        ("logit_scale", 0.5_f32),
        ("residual_scale", 0.5),
        ("embedding_scale", 2.0),
        ("attn_logit_softcapping", 50.0),
        ("final_logit_softcapping", 30.0),
        ("attention.clamp_kqv", 8.0),
        ("attention.max_alibi_bias", 8.0),
        ("rope.scaling.alpha", 2.0),
    ] {
        let message = TinyModel::dense("llama").set(suffix, value).refusal();
        assert_names(&message, &[&format!("`llama.{suffix}`: {value} is not supported")]);
        TinyModel::dense("llama").set(suffix, 0.0_f32).open().unwrap();
    }
    let message = TinyModel::qwen3().set("attention.causal", false).refusal();
    assert_names(&message, &["`qwen3.attention.causal`: false"]);
    let message = TinyModel::qwen3().set("use_parallel_residual", true).refusal();
    assert_names(&message, &["`qwen3.use_parallel_residual`: true"]);
}

#[test]
fn sliding_windows_shorter_than_the_context() {
    let message = TinyModel::dense("llama").set("attention.sliding_window", 1024_u32).refusal();
    assert_names(&message, &["`llama.attention.sliding_window`", "1024", "4096"]);
    for window in [0_u32, 4096] {
        TinyModel::dense("llama").set("attention.sliding_window", window).open().unwrap();
    }
}

#[test]
fn experts() {
    for label in ["llama", "mistral3", "qwen2", "qwen3"] {
        let message = TinyModel::dense(label).set("expert_count", 8_u32).refusal();
        assert_names(&message, &[&format!("`{label}.expert_count`"), "mixture-of-experts"]);
        let message = TinyModel::dense(label).tensor("blk.0.ffn_gate_inp.weight", &[HIDDEN, 8]).refusal();
        assert_names(&message, &["blk.0.ffn_gate_inp.weight", "mixture-of-experts"]);
    }
}

#[test]
fn tensors_that_would_change_the_result() {
    for name in [
        "blk.0.attn_q_norm.weight",
        "blk.1.attn_output.bias",
        "blk.0.ffn_up.bias",
        "blk.0.attn_sinks.weight",
        "blk.2.attn_norm.weight",
        "output.bias",
        "output_norm.bias",
        "token_embd_norm.weight",
        "position_embd.weight",
        "rope_factors_long.weight",
    ] {
        let message = TinyModel::dense("mistral3").tensor(name, &[HIDDEN]).refusal();
        assert_names(&message, &["mistral3 does not use a tensor", name]);
    }
    let message = TinyModel::qwen3().qkv_biases().refusal();
    assert_names(&message, &["blk.0.attn_q.bias", "blk.1.attn_v.bias", "6 tensors", "bias is not part"]);
}

#[test]
fn every_missing_tensor_is_named() {
    let model = TinyModel::qwen3()
        .without("output_norm.weight")
        .without("blk.0.attn_k_norm.weight")
        .without("blk.1.ffn_down.weight");
    let message = model.refusal();
    assert_names(&message, &["qwen3 needs 3 tensors", "output_norm.weight"]);
    assert_names(&message, &["blk.0.attn_k_norm.weight", "blk.1.ffn_down.weight"]);
    let message = TinyModel::dense("qwen2").refusal();
    assert_names(&message, &["qwen2 needs 6 tensors", "blk.0.attn_q.bias"]);
    // A bias in one place is a bias everywhere.
    let partial = TinyModel::dense("mistral3").qkv_biases().without("blk.1.attn_k.bias");
    assert_names(&partial.refusal(), &["mistral3 needs a tensor", "blk.1.attn_k.bias"]);
}

#[test]
fn long_lists_are_cut() {
    let message = TinyModel::qwen3().set("block_count", 100_u32).refusal();
    // 98 blocks of 11 tensors.
    assert_names(&message, &["needs 1078 tensors", "blk.2.attn_norm.weight", "and 1058 more"]);
    assert!(message.len() < 1000, "{} characters", message.len());
}

#[test]
fn wrong_shapes() {
    for (name, dims, expected) in [
        ("blk.0.attn_q.weight", vec![HIDDEN, HIDDEN], "[32, 32] instead of [32, 64]"),
        ("blk.0.attn_k.weight", vec![HIDDEN, 16], "[32, 16] instead of [32, 32]"),
        ("blk.0.attn_v.weight", vec![16, 32], "[16, 32] instead of [32, 32]"),
        ("blk.0.attn_output.weight", vec![HIDDEN, 64], "[32, 64] instead of [64, 32]"),
        ("blk.1.attn_norm.weight", vec![16], "[16] instead of [32]"),
        ("blk.1.attn_q_norm.weight", vec![HIDDEN], "[32] instead of [16]"),
        ("blk.1.attn_k_norm.weight", vec![HEAD_DIM, 2], "[16, 2] instead of [16]"),
        ("blk.1.ffn_gate.weight", vec![HIDDEN, 40], "[32, 40] instead of [32, 48]"),
        ("blk.1.ffn_up.weight", vec![48, HIDDEN], "[48, 32] instead of [32, 48]"),
        ("blk.1.ffn_down.weight", vec![HIDDEN, 48], "[32, 48] instead of [48, 32]"),
        ("token_embd.weight", vec![HIDDEN, 11], "[32, 11] instead of [32, 10]"),
        ("output.weight", vec![HIDDEN, 9], "[32, 9] instead of [32, 10]"),
        ("output_norm.weight", vec![HIDDEN, 1], "[32, 1] instead of [32]"),
    ] {
        let message = TinyModel::qwen3().tensor(name, &dims).refusal();
        assert_names(&message, &[&format!("{name} has shape {expected}")]);
    }
    let message = TinyModel::dense("llama").tensor("rope_freqs.weight", &[16]).refusal();
    assert_names(&message, &["rope_freqs.weight has shape [16] instead of [8]"]);
    let message = TinyModel::qwen2().tensor("blk.0.attn_k.bias", &[64]).refusal();
    assert_names(&message, &["blk.0.attn_k.bias has shape [64] instead of [32]"]);
}

/// Neither Mistral Small 3.x nor a plain llama: the message says why for both.
#[test]
fn llamas_that_fit_nothing() {
    let small = TinyModel::mistral_small_labelled_llama;
    let message = small().set("expert_count", 8_u32).refusal();
    assert_names(
        &message,
        &["not Mistral Small 3.x (llama.expert_count is present", "`llama.expert_count`: 8"],
    );
    let message = small().in_blocks("attn_q_norm.weight", &[HEAD_DIM]).refusal();
    assert_names(&message, &["(the blocks have attn_q_norm.weight)", "blk.0.attn_q_norm.weight"]);
    let message = small().without("blk.0.ffn_up.weight").refusal();
    assert_names(&message, &["(blk.0.ffn_up.weight is missing)", "llama needs a tensor"]);
    let message = small().tensor("blk.0.ffn_gate_inp.weight", &[HIDDEN, 8]).refusal();
    assert_names(&message, &["(blk.0.ffn_gate_inp.weight is present"]);
    let message =
        small().key("tokenizer.ggml.pre", "llama-bpe").set("rope.scaling.type", "longrope").refusal();
    assert_names(&message, &["(tokenizer.ggml.pre is `llama-bpe`, not `tekken`)", "`longrope`"]);
    let message = small().set("rope.scaling.type", "longrope").refusal();
    assert_names(&message, &["(llama.rope.scaling.type is `longrope`"]);
    let tokens = vec![String::from("[INST]"); 10];
    let message = small().key("tokenizer.ggml.tokens", tokens).without("output_norm.weight").refusal();
    assert_names(&message, &["(the vocabulary has no [/INST], [SYSTEM_PROMPT], [/SYSTEM_PROMPT])"]);
}

/// No value under any key makes reading panic, and what is accepted can be computed with.
#[test]
fn hostile_values_under_every_key() {
    let values = [
        Value::U32(0),
        Value::U32(1),
        Value::U32(u32::MAX),
        Value::U64(u64::MAX),
        Value::I32(-1),
        Value::F32(0.0),
        Value::F32(-1.0),
        Value::F32(f32::NAN),
        Value::F32(f32::MIN_POSITIVE / 4.0),
        Value::F32(f32::MAX),
        Value::Bool(true),
        Value::from(""),
        Value::from("none"),
        Value::from(vec![1_u32]),
        Value::from(Vec::<String>::new()),
    ];
    let model = || TinyModel::ministral3().set("rope.scaling.yarn_ext_factor", 1.0_f32);
    let keys: Vec<String> = model().keys().map(str::to_owned).collect();
    let mut accepted = 0;
    for key in &keys {
        for value in &values {
            let Ok(checkpoint) = model().key(key, value.clone()).open() else { continue };
            accepted += 1;
            let rope = &checkpoint.config().rope;
            let finite = rope.inv_freq(None).into_iter().chain([rope.magnitude()]).all(f32::is_finite);
            assert!(finite, "{key} = {value:?}");
        }
    }
    // Most combinations are refused; the rest are names, contexts and strengths that may have such values.
    assert!(accepted * 4 < keys.len() * values.len(), "{accepted} accepted");
}

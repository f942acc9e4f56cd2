//! What is read from GGUF files of every architecture.

mod checkpoint_support;

use checkpoint_support::{FFN, HEAD_DIM, HEADS, HIDDEN, KV_HEADS, LAYERS, TinyModel};
use ember_loaders::checkpoint::{
    Arch, ModelConfig, Pairing, QueryScale, RopeConfig, RopeScaling, TensorSource,
};
use ember_loaders::gguf::GgmlType;

#[track_caller]
fn config(model: &TinyModel) -> ModelConfig {
    model.open().unwrap().config().clone()
}

/// Fields that every tiny model shares.
fn base(arch: Arch, pairing: Pairing) -> ModelConfig {
    ModelConfig {
        arch,
        name: Some("Tiny".into()),
        n_layers: LAYERS,
        hidden_size: HIDDEN,
        ffn_size: FFN,
        n_heads: HEADS,
        n_kv_heads: KV_HEADS,
        head_dim: HEAD_DIM,
        vocab_size: 10,
        context_length: 4096,
        norm_eps: 1e-5,
        rope: RopeConfig { dim: HEAD_DIM, freq_base: 1e6, pairing, scaling: RopeScaling::None },
        query_scale: None,
        attention_scale: None,
        qk_norm: false,
        qkv_bias: false,
        tied_embeddings: false,
        relabelled_from: None,
    }
}

#[test]
fn every_architecture() {
    let qwen3 = ModelConfig { qk_norm: true, ..base(Arch::Qwen3, Pairing::Half) };
    assert_eq!(config(&TinyModel::qwen3()), qwen3);
    let qwen2 = ModelConfig { qkv_bias: true, ..base(Arch::Qwen2, Pairing::Half) };
    assert_eq!(config(&TinyModel::qwen2()), qwen2);
    assert_eq!(config(&TinyModel::dense("llama")), base(Arch::Llama, Pairing::Adjacent));
    assert_eq!(config(&TinyModel::dense("mistral3")), base(Arch::Mistral3, Pairing::Adjacent));
}

#[test]
fn ministral3_scales_rope_and_queries() {
    let config = config(&TinyModel::ministral3());
    let yarn = RopeScaling::Yarn {
        factor: 16.0,
        original_context: 16384,
        beta_fast: 32.0,
        beta_slow: 1.0,
        ext_factor: 1.0,
        attn_factor: 1.0,
        log_multiplier: 1.0,
    };
    assert_eq!(config.rope.scaling, yarn);
    assert_eq!(config.rope.magnitude(), 1.0);
    assert_eq!(config.query_scale, Some(QueryScale { beta: 0.1, original_context: 16384 }));
    assert_eq!(config.context_length, 262144);
}

/// The names that Ollama's converter writes for the same model.
#[test]
fn ministral3_under_other_key_names() {
    let model = TinyModel::dense("mistral3")
        .set("context_length", 262144_u32)
        .set("rope.scaling.type", "yarn")
        .set("rope.scaling.factor", 16.0_f32)
        .set("rope.scaling.original_context_length", 16384_u32)
        .set("rope.scaling.beta_fast", 32.0_f32)
        .set("rope.scaling.beta_slow", 1.0_f32)
        .set("rope.scaling.mscale", 1.0_f32)
        .set("rope.scaling.mscale_all_dim", 1.0_f32)
        .set("rope.scaling.extrapolation_factor", 1.0_f32)
        .set("rope.scaling_beta", 0.1_f32);
    assert_eq!(config(&model), config(&TinyModel::ministral3()));
}

/// Distinct from the defaults, so that no key can be read for another.
#[test]
fn every_yarn_key_is_read() {
    let model = TinyModel::qwen3()
        .set("rope.scaling.type", "yarn")
        .set("rope.scaling.factor", 4.0_f32)
        .set("rope.scaling.original_context_length", 1024_u32)
        .set("rope.scaling.yarn_beta_fast", 30.0_f32)
        .set("rope.scaling.yarn_beta_slow", 2.0_f32)
        .set("rope.scaling.yarn_ext_factor", 0.5_f32)
        .set("rope.scaling.attn_factor", 1.5_f32)
        .set("rope.scaling.yarn_attn_factor", 7.0_f32)
        .set("rope.scaling.yarn_log_multiplier", 0.25_f32);
    let yarn = RopeScaling::Yarn {
        factor: 4.0,
        original_context: 1024,
        beta_fast: 30.0,
        beta_slow: 2.0,
        ext_factor: 0.5,
        attn_factor: 1.5,
        log_multiplier: 0.25,
    };
    assert_eq!(config(&model).rope.scaling, yarn);
    // llama.cpp uses yarn_attn_factor only where the ramp is off.
    let off = config(&model.set("rope.scaling.yarn_ext_factor", 0.0_f32)).rope;
    assert!(matches!(off.scaling, RopeScaling::Yarn { ext_factor: 0.0, attn_factor: 10.5, .. }), "{off:?}");
    assert_eq!(off.magnitude(), 10.5);
}

#[test]
fn yarn_defaults() {
    let model = TinyModel::qwen3().set("rope.scaling.type", "yarn").set("rope.scaling.factor", 4.0_f32);
    let yarn = RopeScaling::Yarn {
        factor: 4.0,
        original_context: 4096,
        beta_fast: 32.0,
        beta_slow: 1.0,
        ext_factor: 1.0,
        attn_factor: 1.0,
        log_multiplier: 0.0,
    };
    assert_eq!(config(&model).rope.scaling, yarn);
    // -1 is llama.cpp's "not set".
    assert_eq!(config(&model.set("rope.scaling.yarn_ext_factor", -1.0_f32)).rope.scaling, yarn);
}

/// `mscale` and `mscale_all_dim` that differ give HF's ratio.
#[test]
fn mscale_ratio() {
    let model = TinyModel::qwen3()
        .set("rope.scaling.type", "yarn")
        .set("rope.scaling.factor", 40.0_f32)
        .set("rope.scaling.mscale", 0.7_f32)
        .set("rope.scaling.mscale_all_dim", 1.2_f32);
    let expected = (0.07 * 40.0_f64.ln() + 1.0) / (0.12 * 40.0_f64.ln() + 1.0);
    let magnitude = f64::from(config(&model).rope.magnitude());
    assert!((magnitude / expected - 1.0).abs() < 1e-6, "{magnitude} is not {expected}");
}

#[test]
fn linear_scaling_needs_a_factor() {
    let scaling = |model: TinyModel| config(&model).rope.scaling;
    let linear = RopeScaling::Linear { factor: 4.0 };
    assert_eq!(scaling(TinyModel::qwen3().set("rope.scaling.factor", 4.0_f32)), linear);
    assert_eq!(scaling(TinyModel::qwen3().set("rope.scale_linear", 4.0_f32)), linear);
    let typed = TinyModel::qwen3().set("rope.scaling.type", "linear");
    assert_eq!(scaling(typed), RopeScaling::None);
    let none = TinyModel::qwen3().set("rope.scaling.type", "none").set("rope.scaling.factor", 4.0_f32);
    assert_eq!(scaling(none), RopeScaling::None);
    // What Ollama's converter wrote for models without scaling.
    let empty = TinyModel::qwen3().set("rope.scaling.type", "").set("rope.scaling.factor", 0.0_f32);
    assert_eq!(scaling(empty), RopeScaling::None);
}

#[test]
fn query_scale_only_where_its_key_is() {
    let yarn_only = TinyModel::ministral3().unset("attention.temperature_scale");
    assert_eq!(config(&yarn_only).query_scale, None);
    let zero = TinyModel::ministral3().set("attention.temperature_scale", 0.0_f32);
    assert_eq!(config(&zero).query_scale, None);
    let unscaled = TinyModel::dense("mistral3").set("attention.temperature_scale", 0.2_f32);
    let expected = QueryScale { beta: 0.2, original_context: 4096 };
    assert_eq!(config(&unscaled).query_scale, Some(expected));
}

#[test]
fn defaults_of_absent_keys() {
    let model = TinyModel::dense("llama")
        .unset("attention.key_length")
        .unset("attention.value_length")
        .unset("attention.head_count_kv")
        .unset("rope.freq_base")
        .without("output.weight")
        .in_blocks("attn_q.weight", &[HIDDEN, HIDDEN])
        .in_blocks("attn_k.weight", &[HIDDEN, HIDDEN])
        .in_blocks("attn_v.weight", &[HIDDEN, HIDDEN])
        .in_blocks("attn_output.weight", &[HIDDEN, HIDDEN]);
    let config = config(&model);
    assert_eq!((config.head_dim, config.n_kv_heads), (HIDDEN / HEADS, HEADS));
    assert_eq!(config.rope.freq_base, 10_000.0);
    assert!(config.tied_embeddings);
}

#[test]
fn attention_scale() {
    let plain = config(&TinyModel::dense("mistral3").set("attention.scale", 0.0_f32));
    assert_eq!((plain.attention_scale, plain.score_scale()), (None, 0.25));
    let scaled = config(&TinyModel::dense("mistral3").set("attention.scale", 0.5_f32));
    assert_eq!((scaled.attention_scale, scaled.score_scale()), (Some(0.5), 0.5));
}

#[test]
fn biases_are_found() {
    for label in ["llama", "mistral3"] {
        assert!(config(&TinyModel::dense(label).qkv_biases()).qkv_bias);
    }
}

/// A file without a tokenizer is measured by its embedding.
#[test]
fn vocabulary_of_a_file_without_tokenizer() {
    let keyed = TinyModel::dense("llama").key("tokenizer.ggml.tokens", "removed");
    assert!(keyed.open().is_err(), "a tokenizer of the wrong type is not skipped");
    let wide = TinyModel::dense("llama")
        .key("tokenizer.ggml.tokens", vec![String::from("t"); 12])
        .tensor("token_embd.weight", &[HIDDEN, 12])
        .tensor("output.weight", &[HIDDEN, 12]);
    assert_eq!(config(&wide).vocab_size, 12);
}

#[test]
fn llama3_frequency_factors_are_accepted() {
    for label in ["llama", "mistral3"] {
        let checkpoint = TinyModel::dense(label).filled("rope_freqs.weight", &[8], 2.0).open().unwrap();
        let factors = checkpoint.tensor("rope_freqs.weight").unwrap().to_f32();
        assert_eq!(factors, [2.0; 8]);
        let rope = &checkpoint.config().rope;
        assert_eq!(rope.inv_freq(Some(&factors))[0], 0.5);
    }
}

#[test]
fn a_mistral_small_labelled_llama_is_served_as_mistral3() {
    let config = config(&TinyModel::mistral_small_labelled_llama().set("rope.freq_base", 1e9_f32));
    assert_eq!(config.arch, Arch::Mistral3);
    assert_eq!(config.relabelled_from.as_deref(), Some("llama"));
    // Read under llama.*, the only keys the file has.
    assert_eq!((config.rope.freq_base, config.n_layers, config.query_scale), (1e9, LAYERS, None));
    let yarn = TinyModel::mistral_small_labelled_llama()
        .set("rope.scaling.type", "yarn")
        .set("rope.scaling.factor", 4.0_f32);
    assert_eq!(yarn.open().unwrap().config().arch, Arch::Mistral3);
}

/// With any of the five checks failed, what fits a plain llama is a plain llama.
#[test]
fn other_llamas_stay_llamas() {
    let small = TinyModel::mistral_small_labelled_llama;
    let without_system_prompt: Vec<String> = (0..10).map(|id| format!("[INST] {id}")).collect();
    for model in [
        small().key("tokenizer.ggml.pre", "llama-bpe"),
        small().key("tokenizer.ggml.tokens", without_system_prompt),
        small().set("expert_count", 0_u32),
        small().tensor("rope_freqs.weight", &[8]),
        small().set("rope.scaling.type", "linear"),
    ] {
        let config = config(&model);
        assert_eq!((config.arch, config.relabelled_from), (Arch::Llama, None));
    }
}

#[test]
fn harmless_tensors_are_listed() {
    let model = TinyModel::qwen3()
        .tensor("v.blk.0.attn_q.weight", &[4, 4])
        .tensor("cls.output.weight", &[HIDDEN, 2])
        .tensor("blk.0.attn_rot_embd.weight", &[8]);
    let expected = ["cls.output.weight", "v.blk.0.attn_q.weight", "blk.0.attn_rot_embd.weight"];
    assert_eq!(model.open().unwrap().unused_tensors(), expected);
    assert!(TinyModel::qwen3().open().unwrap().unused_tensors().is_empty());
}

#[test]
fn tensors_by_name() {
    let checkpoint = TinyModel::qwen3().filled("blk.1.attn_k_norm.weight", &[HEAD_DIM], 0.5).open().unwrap();
    let matrix = checkpoint.tensor("blk.1.attn_q.weight").unwrap();
    assert_eq!((matrix.cols(), matrix.rows(), matrix.ty), (HIDDEN, HEADS * HEAD_DIM, GgmlType::F32));
    assert_eq!(matrix.bytes.len(), HIDDEN * HEADS * HEAD_DIM * 4);
    let norm = checkpoint.tensor("blk.1.attn_k_norm.weight").unwrap();
    assert_eq!((norm.rows(), norm.to_f32()), (1, vec![0.5; HEAD_DIM]));
    assert!(checkpoint.opt_tensor("blk.1.attn_q.bias").is_none());
    let error = checkpoint.tensor("blk.9.attn_q.weight").unwrap_err();
    assert_eq!(error.to_string(), "the checkpoint has no tensor `blk.9.attn_q.weight`");
    assert!(checkpoint.gguf().is_some());
}

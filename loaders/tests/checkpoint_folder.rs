//! HF folders: variants of config.json and of tensor names, and what is refused.

mod checkpoint_support;

use checkpoint_support::assert_names;
use checkpoint_support::folder::TinyFolder;
use ember_loaders::checkpoint::{
    Arch, Checkpoint, ModelConfig, Pairing, QueryScale, RopeScaling, TensorSource,
};
use ember_loaders::gguf::GgmlType;
use ember_test_support::Dtype;
use serde_json::{Value, json};

#[track_caller]
fn config(folder: &TinyFolder) -> ModelConfig {
    folder.open().unwrap().config().clone()
}

#[test]
fn a_llama_folder() {
    let checkpoint = TinyFolder::llama("a_llama_folder").open().unwrap();
    let config = checkpoint.config();
    assert_eq!((config.arch, config.rope.pairing), (Arch::Llama, Pairing::Adjacent));
    assert_eq!(config.name.as_deref(), Some("a_llama_folder"));
    assert_eq!((config.hidden_size, config.ffn_size, config.n_layers), (32, 48, 1));
    assert_eq!((config.n_heads, config.n_kv_heads, config.head_dim), (4, 2, 16));
    assert_eq!((config.vocab_size, config.context_length, config.norm_eps), (10, 131072, 1e-5));
    assert_eq!((config.rope.freq_base, config.rope.scaling), (5e5, RopeScaling::None));
    assert_eq!((config.tied_embeddings, config.qkv_bias, config.qk_norm), (false, false, false));
    let matrix = checkpoint.tensor("blk.0.ffn_down.weight").unwrap();
    assert_eq!((matrix.ty, matrix.cols(), matrix.rows()), (GgmlType::BF16, 48, 32));
    assert!(checkpoint.path().ends_with("a_llama_folder"));
}

#[test]
fn model_types() {
    let folder = TinyFolder::llama("model_types");
    assert_eq!(config(&folder.set("model_type", json!("mistral"))).arch, Arch::Llama);
    let folder = TinyFolder::llama("model_types_class").set("model_type", Value::Null);
    assert_eq!(config(&folder).arch, Arch::Llama);
    let folder = TinyFolder::llama("model_types_ministral3").set("model_type", json!("ministral3"));
    assert_eq!(config(&folder).arch, Arch::Mistral3);
    let message = TinyFolder::llama("model_types_gemma").set("model_type", json!("gemma3")).refusal();
    assert_names(&message, &["`gemma3`", "accepted are", "qwen3: dense"]);
}

/// The three ways in which the text model of a vision model has been named.
#[test]
fn mistral3_prefixes() {
    for (name, rename) in [
        ("mistral3_v4", (|name| format!("language_model.{name}")) as fn(&str) -> String),
        ("mistral3_v5", |name| name.replace("model.", "model.language_model.")),
        ("mistral3_text", str::to_owned),
    ] {
        let checkpoint = TinyFolder::mistral3(name, rename).open().unwrap();
        assert_eq!(checkpoint.config().arch, Arch::Mistral3);
        assert_eq!(checkpoint.config().rope.freq_base, 1e9);
        assert_eq!(checkpoint.unused_tensors(), ["vision_tower.ln_pre.weight"]);
        checkpoint.tensor("output.weight").unwrap();
    }
    let mut folder = TinyFolder::mistral3("mistral4", str::to_owned);
    folder.config["text_config"]["model_type"] = json!("mistral4");
    assert_names(&folder.refusal(), &["mistral3 with mistral4 text"]);
}

#[test]
fn llama3_rope_becomes_frequency_factors() {
    let scaling = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192});
    let folder = TinyFolder::llama("llama3_rope").set("rope_scaling", scaling.clone());
    let checkpoint = folder.open().unwrap();
    assert_eq!(checkpoint.config().rope.scaling, RopeScaling::None);
    let factors = checkpoint.tensor("rope_freqs.weight").unwrap();
    assert_eq!((factors.ty, factors.dims.as_slice()), (GgmlType::F32, [8].as_slice()));
    // The converter's formula, evaluated in Python for head_dim 16 and theta 5e5.
    let expected = LLAMA3_FACTORS;
    for (factor, expected) in factors.to_f32().into_iter().zip(expected) {
        assert!((f64::from(factor) / expected - 1.0).abs() < 1e-6, "{factor} is not {expected}");
    }
    let folder = TinyFolder::llama("llama3_rope_qwen").set("rope_scaling", scaling);
    let message = folder.set("model_type", json!("qwen2")).refusal();
    assert_names(&message, &["`rope_scaling.rope_type`: `llama3` is not supported for qwen2"]);
}

const LLAMA3_FACTORS: [f64; 8] = [1.0, 1.0, 1.0, 1.0, 2.6945296878947333, 8.0, 8.0, 8.0];

#[test]
fn rope_sections() {
    let rope =
        |name: &str, section: Value| config(&TinyFolder::llama(name).set("rope_parameters", section)).rope;
    let plain = rope("rope_default", json!({"rope_type": "default", "rope_theta": 1e6}));
    assert_eq!((plain.freq_base, plain.scaling), (1e6, RopeScaling::None));
    let linear = rope("rope_linear", json!({"type": "linear", "factor": 4}));
    assert_eq!((linear.freq_base, linear.scaling), (5e5, RopeScaling::Linear { factor: 4.0 }));
    let yarn =
        rope("rope_yarn", json!({"rope_type": "yarn", "factor": 4.0, "beta_fast": 30, "beta_slow": 2}));
    let expected = RopeScaling::Yarn {
        factor: 4.0,
        original_context: 131072,
        beta_fast: 30.0,
        beta_slow: 2.0,
        ext_factor: 1.0,
        attn_factor: 1.0,
        log_multiplier: 0.0,
    };
    assert_eq!(yarn.scaling, expected);
    let given = rope("rope_given", json!({"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.25}));
    assert!((given.magnitude() - 1.25).abs() < 1e-6);
    let mscale =
        rope("rope_mscale", json!({"rope_type": "yarn", "factor": 4.0, "mscale": 1, "mscale_all_dim": 1}));
    assert_eq!(mscale.magnitude(), 1.0);
}

#[test]
fn query_scale() {
    let section = json!({"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "llama_4_scaling_beta": 0.1,
        "original_max_position_embeddings": 16384, "mscale": 1.0, "mscale_all_dim": 1.0});
    let folder = TinyFolder::llama("query_scale").set("model_type", json!("ministral3"));
    let config = config(&folder.set("rope_parameters", section));
    assert_eq!(config.query_scale, Some(QueryScale { beta: 0.1, original_context: 16384 }));
    assert_eq!(config.rope.magnitude(), 1.0);
}

#[test]
fn tied_heads() {
    let stated = TinyFolder::llama("tied_stated").set("tie_word_embeddings", json!(true));
    let checkpoint = stated.open().unwrap();
    assert!(checkpoint.config().tied_embeddings);
    assert!(checkpoint.opt_tensor("output.weight").is_none(), "config.json says that it is not used");
    assert_eq!(checkpoint.unused_tensors(), ["output.weight"]);
    let unstated = TinyFolder::llama("tied_unstated").set("tie_word_embeddings", Value::Null);
    assert!(!config(&unstated).tied_embeddings);
    assert!(config(&unstated.without("lm_head.weight")).tied_embeddings);
    let message = TinyFolder::llama("tied_missing").without("lm_head.weight").refusal();
    assert_names(&message, &["llama needs a tensor", "output.weight"]);
}

#[test]
fn values_of_config_json() {
    let refusal = |key: &str, value: Value| TinyFolder::llama("values").set(key, value).refusal();
    assert_names(&refusal("hidden_size", json!(0)), &["`hidden_size`: must not be 0"]);
    assert_names(&refusal("hidden_size", json!("32")), &["`hidden_size`: must be a whole number"]);
    assert_names(&refusal("hidden_size", Value::Null), &["`hidden_size`: is missing from config.json"]);
    assert_names(
        &refusal("num_hidden_layers", json!(1e9 as u64)),
        &["`num_hidden_layers`: 1000000000 is absurd"],
    );
    assert_names(&refusal("num_attention_heads", json!(-4)), &["`num_attention_heads`"]);
    assert_names(
        &refusal("rms_norm_eps", json!(-1e-5)),
        &["`rms_norm_eps`: -0.00001 is not a positive number"],
    );
    assert_names(&refusal("rms_norm_eps", json!(1e300)), &["`rms_norm_eps`: is too large"]);
    assert_names(&refusal("num_key_value_heads", json!(3)), &["4 attention heads are not a multiple of 3"]);
    assert_names(&refusal("hidden_act", json!("gelu")), &["`hidden_act`: `gelu` is not supported"]);
    assert_names(&refusal("sliding_window", json!(4096)), &["`sliding_window`", "4096", "131072"]);
    assert_names(&refusal("partial_rotary_factor", json!(0.5)), &["`partial_rotary_factor`: 0.5"]);
    assert_names(&refusal("rope_scaling", json!([1])), &["`rope_scaling`: must be an object"]);
    let quantized = refusal("quantization_config", json!({"quant_method": "fp8"}));
    assert_names(&quantized, &["`quantization_config`", "fp8", "GGUF"]);
}

#[test]
fn rope_that_cannot_be_computed() {
    let refusal = |section: Value| TinyFolder::llama("rope_refused").set("rope_scaling", section).refusal();
    assert_names(&refusal(json!({"rope_type": "dynamic"})), &["`rope_scaling.rope_type`: `dynamic`"]);
    assert_names(&refusal(json!({"rope_type": "linear"})), &["`rope_scaling.factor`: is missing"]);
    let truncate = json!({"rope_type": "yarn", "factor": 4.0, "truncate": false});
    assert_names(&refusal(truncate), &["`rope_scaling.truncate`: false"]);
    let inverted = json!({"type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 4.0});
    assert_names(&refusal(inverted), &["`rope_scaling.high_freq_factor`: 4 must be greater"]);
}

#[test]
fn tensors() {
    let folder = || TinyFolder::llama("tensors");
    let shape = folder().tensor("model.layers.0.self_attn.q_proj.weight", Dtype::BF16, &[32, 32]);
    assert_names(&shape.refusal(), &["blk.0.attn_q.weight has shape [32, 32] instead of [32, 64]"]);
    let missing = folder().without("model.layers.0.mlp.up_proj.weight").without("model.norm.weight");
    assert_names(&missing.refusal(), &["blk.0.ffn_up.weight", "output_norm.weight"]);
    let fp8 = folder().tensor("model.layers.0.mlp.up_proj.weight", Dtype::F8_E4M3, &[48, 32]);
    assert_names(&fp8.refusal(), &["blk.0.ffn_up.weight has type F8_E4M3 instead of F32, F16 or BF16"]);
    let bias = folder().tensor("model.layers.0.self_attn.o_proj.bias", Dtype::BF16, &[32]);
    assert_names(&bias.refusal(), &["llama does not use a tensor", "blk.0.attn_output.bias"]);
    let experts = folder().tensor("model.layers.0.mlp.experts.0.up_proj.weight", Dtype::BF16, &[4, 4]);
    assert_names(&experts.refusal(), &["blk.0.mlp.experts.0.up_proj.weight", "mixture-of-experts"]);
    let twice = folder().tensor("language_model.model.norm.weight", Dtype::BF16, &[32]);
    assert_names(&twice.refusal(), &["norm.weight twice"]);
    let old = folder().tensor("model.layers.0.self_attn.rotary_emb.inv_freq", Dtype::F32, &[8]);
    assert_eq!(old.open().unwrap().unused_tensors(), ["blk.0.attn_rot_freqs.weight"]);
}

/// Q and K biases belong to the rows of their matrices and move with them; V's stay.
#[test]
fn biases_are_paired_like_their_rows() {
    let folder = TinyFolder::llama("biases")
        .tensor("model.layers.0.self_attn.q_proj.bias", Dtype::BF16, &[64])
        .tensor("model.layers.0.self_attn.k_proj.bias", Dtype::BF16, &[32])
        .tensor("model.layers.0.self_attn.v_proj.bias", Dtype::BF16, &[32]);
    let checkpoint = folder.open().unwrap();
    assert!(checkpoint.config().qkv_bias);
    // Two heads of 16: element i of the first half, then element i of the second.
    let paired: Vec<u16> =
        (0..2).flat_map(|head| (0..8).flat_map(move |i| [head * 16 + i, head * 16 + i + 8])).collect();
    let elements = |name: &str| -> Vec<u16> {
        let bytes = checkpoint.tensor(name).unwrap().bytes;
        bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect()
    };
    assert_eq!(elements("blk.0.attn_k.bias"), paired);
    assert_eq!(elements("blk.0.attn_q.bias")[..32], paired);
    assert_eq!(elements("blk.0.attn_v.bias"), (0..32).collect::<Vec<u16>>());
}

#[test]
fn folders_without_what_is_needed() {
    let folder = TinyFolder::llama("incomplete");
    let refusal = |files: &[(&str, &[u8])]| Checkpoint::open(folder.write(files)).err().unwrap().to_string();
    let config = folder.config.to_string();
    let config = ("config.json", config.as_bytes());
    assert_names(&refusal(&[]), &["incomplete: has no config.json"]);
    assert_names(&refusal(&[("params.json", b"{}")]), &["params.json", "Mistral's own layout"]);
    assert_names(&refusal(&[config]), &["neither model.safetensors nor model.safetensors.index.json"]);
    assert_names(&refusal(&[config, ("pytorch_model.bin", b"")]), &["pytorch_model.bin", "convert"]);
    let message = refusal(&[config, ("consolidated.safetensors", b"")]);
    assert_names(&message, &["Mistral's own consolidated.safetensors", "but no model.safetensors"]);
    let html: &[u8] = b"<!DOCTYPE html><html></html>";
    assert_names(&refusal(&[("config.json", html)]), &["config.json: expected value at line 1"]);
    assert_names(&refusal(&[("config.json", b"[]")]), &["config.json: invalid type"]);
    let file = folder.write(&[("model.safetensors", &folder.weights())]).join("model.safetensors");
    assert_names(&Checkpoint::open(file).err().unwrap().to_string(), &["give the folder that holds it"]);
}

#[test]
fn indexes() {
    let folder = TinyFolder::llama("indexes");
    let (config, weights) = (folder.config.to_string(), folder.weights());
    let open = |index: Value| {
        let index = index.to_string();
        Checkpoint::open(folder.write(&[
            ("config.json", config.as_bytes()),
            ("model.safetensors.index.json", index.as_bytes()),
            ("model-00001-of-00001.safetensors", &weights),
        ]))
    };
    let refusal = |index: Value| open(index).err().unwrap().to_string();
    let whole: serde_json::Map<String, Value> =
        folder.tensors.keys().map(|name| (name.clone(), json!("model-00001-of-00001.safetensors"))).collect();
    let with = |name: &str, file: &str| {
        let mut map = whole.clone();
        map.insert(name.to_owned(), json!(file));
        json!({ "weight_map": map })
    };
    open(json!({ "weight_map": whole })).unwrap();
    let message = refusal(with("model.norm.weight", "model-00002-of-00002.safetensors"));
    assert_names(&message, &["model-00002-of-00002.safetensors", "not in the folder"]);
    let message = refusal(with("model.norm.weight", "../model-00001-of-00001.safetensors"));
    assert_names(&message, &["../model-00001-of-00001.safetensors", "not a plain file name"]);
    let message = refusal(with("model.layers.9.input_layernorm.weight", "model-00001-of-00001.safetensors"));
    assert_names(&message, &["model.layers.9.input_layernorm.weight", "does not have it (1 such"]);
    assert_names(&refusal(json!({})), &["index.json: missing field `weight_map`"]);
}

/// Safetensors files cut, padded or made to lie.
#[test]
fn hostile_safetensors() {
    let folder = TinyFolder::llama("hostile");
    let (config, weights) = (folder.config.to_string(), folder.weights());
    let refusal = |content: &[u8]| {
        let path = folder.write(&[("config.json", config.as_bytes()), ("model.safetensors", content)]);
        Checkpoint::open(path).err().unwrap().to_string()
    };
    let header_len = u64::from_le_bytes(weights[..8].try_into().unwrap()) as usize;
    assert_names(&refusal(&[]), &["model.safetensors: the file is empty"]);
    assert_names(&refusal(&weights[..7]), &["only 7 bytes long"]);
    assert_names(&refusal(&weights[..100]), &["header should be", "ends after 92 of them"]);
    assert_names(&refusal(&weights[..weights.len() - 1]), &["interrupted download"]);
    assert_names(&refusal(&[&weights[..], b"x"].concat()), &["the tensors should take"]);
    assert_names(&refusal(b"<!DOCTYPE html><html><body>404</body></html>"), &["HTML page"]);
    for cut in (0..8 + header_len).step_by(97).chain([8 + header_len, weights.len() - 2]) {
        assert_names(&refusal(&weights[..cut]), &["model.safetensors: "]);
    }
    let with_header =
        |header: &str| refusal(&[&(header.len() as u64).to_le_bytes(), header.as_bytes(), &[0; 64]].concat());
    for header in [
        "",
        "{",
        "[]",
        r#"{"a": 1}"#,
        r#"{"a": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}}"#,
        r#"{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}"#,
        r#"{"a": {"dtype": "F32", "shape": [17], "data_offsets": [0, 64]}}"#,
        r#"{"a": {"dtype": "F32", "shape": [1], "data_offsets": [64, 68]}}"#,
        r#"{"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}"#,
        r#"{"a": {"dtype": "F32", "shape": [4611686018427387904, 4], "data_offsets": [0, 0]}}"#,
        r#"{"a": {"dtype": "F32", "shape": [18446744073709551616], "data_offsets": [0, 4]}}"#,
    ] {
        assert_names(&with_header(header), &["model.safetensors: the header is malformed"]);
    }
    let beyond =
        r#"{"a": {"dtype": "U8", "shape": [2000000000000000000], "data_offsets": [0, 2000000000000000000]}}"#;
    assert_names(&with_header(beyond), &["should take 2000000000000000000 bytes but the file has 64"]);
    // Several, whose sizes together overflow.
    let mut sum = String::new();
    for (i, start) in (0..8).map(|i| (i, i * 2_305_843_009_213_693_951_u64)) {
        let (size, end) = (2_305_843_009_213_693_951_u64, start + 2_305_843_009_213_693_951);
        let comma = if i == 0 { '{' } else { ',' };
        sum += &format!(
            r#"{comma}"t{i}": {{"dtype": "U8", "shape": [{size}], "data_offsets": [{start}, {end}]}}"#
        );
    }
    assert_names(&with_header(&(sum + "}")), &["model.safetensors: the tensors should take"]);
}

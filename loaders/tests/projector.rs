//! Projector files: what is read from both layouts, and every way in which a file is refused.

mod checkpoint_support;

use checkpoint_support::{TinyModel, assert_names};
use ember_loaders::checkpoint::{Pairing, TensorSource};
use ember_loaders::projector::{Activation, PixtralConfig, Projector, ProjectorLayout};
use ember_test_support::fixture;

const LAYERS: usize = 2;
const HIDDEN: usize = 32;
const FFN: usize = 48;
const PATCH: usize = 14;
/// Of the text model.
const TEXT: usize = 40;

/// A projector in llama.cpp's layout that merges 2 x 2 patches.
fn llama_cpp() -> TinyModel {
    let projector = TinyModel::empty("clip.vision")
        .key("general.architecture", "clip")
        .key("general.type", "mmproj")
        .key("clip.projector_type", "pixtral")
        .key("clip.has_vision_encoder", true)
        .key("clip.use_silu", true)
        .set("embedding_length", HIDDEN as u32)
        .set("feed_forward_length", FFN as u32)
        .set("block_count", LAYERS as u32)
        .set("attention.head_count", 2_u32)
        .set("attention.layer_norm_epsilon", 1e-5_f32)
        .set("image_size", 1540_u32)
        .set("patch_size", PATCH as u32)
        .set("projection_dim", TEXT as u32)
        .set("spatial_merge_size", 2_u32)
        .tensor("v.patch_embd.weight", &[PATCH, PATCH, 3, HIDDEN])
        .tensor("v.pre_ln.weight", &[HIDDEN])
        .tensor("v.token_embd.img_break", &[TEXT])
        .tensor("mm.input_norm.weight", &[HIDDEN])
        .tensor("mm.patch_merger.weight", &[4 * HIDDEN, HIDDEN])
        .tensor("mm.1.weight", &[HIDDEN, TEXT])
        .tensor("mm.2.weight", &[TEXT, TEXT]);
    with_blocks(projector, ["ln1", "ln2", "attn_out"])
}

/// The same in Ollama's layout, with its keys.
fn ollama() -> TinyModel {
    let projector = TinyModel::empty("mistral3.vision")
        .key("general.architecture", "mistral3")
        .key("mistral3.spatial_merge_size", 2_u32)
        .set("embedding_length", HIDDEN as u32)
        .set("feed_forward_length", FFN as u32)
        .set("block_count", LAYERS as u32)
        .set("attention.head_count", 2_u32)
        .set("attention.key_length", 16_u32)
        .set("image_size", 1540_u32)
        .set("patch_size", PATCH as u32)
        .set("rope.freq_base", 0.0_f32)
        .tensor("v.patch_conv.weight", &[PATCH, PATCH, 3, HIDDEN])
        .tensor("v.encoder_norm.weight", &[HIDDEN])
        .tensor("mm.norm.weight", &[HIDDEN])
        .tensor("mm.patch_merger.merging_layer.weight", &[4 * HIDDEN, HIDDEN])
        .tensor("mm.linear_1.weight", &[HIDDEN, TEXT])
        .tensor("mm.linear_2.weight", &[TEXT, TEXT]);
    with_blocks(projector, ["attn_norm", "ffn_norm", "attn_output"])
}

fn with_blocks(projector: TinyModel, [attn_norm, ffn_norm, attn_output]: [&str; 3]) -> TinyModel {
    (0..LAYERS).fold(projector, |projector, layer| {
        let of_layer: [(&str, &[usize]); 9] = [
            (attn_norm, &[HIDDEN]),
            (ffn_norm, &[HIDDEN]),
            ("attn_q", &[HIDDEN, HIDDEN]),
            ("attn_k", &[HIDDEN, HIDDEN]),
            ("attn_v", &[HIDDEN, HIDDEN]),
            (attn_output, &[HIDDEN, HIDDEN]),
            ("ffn_gate", &[HIDDEN, FFN]),
            ("ffn_up", &[HIDDEN, FFN]),
            ("ffn_down", &[FFN, HIDDEN]),
        ];
        of_layer.iter().fold(projector, |projector, (name, dims)| {
            projector.tensor(&format!("v.blk.{layer}.{name}.weight"), dims)
        })
    })
}

#[track_caller]
fn open(file: &TinyModel) -> Projector {
    Projector::from_gguf(file.gguf()).unwrap_or_else(|error| panic!("{error}"))
}

/// The message with which a file is refused.
#[track_caller]
fn refusal(file: &TinyModel) -> String {
    match Projector::from_gguf(file.gguf()) {
        Ok(projector) => panic!("accepted as {:?}", projector.config()),
        Err(error) => error.to_string(),
    }
}

#[test]
fn both_layouts_give_one_configuration() {
    let expected = PixtralConfig {
        layout: ProjectorLayout::LlamaCpp,
        n_layers: LAYERS,
        hidden_size: HIDDEN,
        ffn_size: FFN,
        n_heads: 2,
        head_dim: 16,
        norm_eps: 1e-5,
        rope_freq_base: 1e4,
        rope_pairing: Pairing::Adjacent,
        activation: Activation::Silu,
        activation_named: true,
        patch_size: PATCH,
        image_size: 1540,
        merge_size: 2,
        has_merger: true,
        projector_size: TEXT,
        text_hidden_size: TEXT,
        image_mean: [0.48145466, 0.4578275, 0.40821073],
        image_std: [0.26862954, 0.2613026, 0.2757771],
    };
    assert_eq!(open(&llama_cpp()).config(), &expected);
    // Neither activation is named: Ollama has no key for it.
    let expected = PixtralConfig {
        layout: ProjectorLayout::Ollama,
        rope_pairing: Pairing::Half,
        activation: Activation::Gelu,
        activation_named: false,
        ..expected
    };
    assert_eq!(open(&ollama()).config(), &expected);
}

#[test]
fn ollama_s_names_may_come_with_clip_s_keys() {
    let mut file = llama_cpp();
    for (theirs, dims) in [
        ("v.patch_embd.weight", vec![PATCH, PATCH, 3, HIDDEN]),
        ("v.pre_ln.weight", vec![HIDDEN]),
        ("mm.input_norm.weight", vec![HIDDEN]),
        ("mm.patch_merger.weight", vec![4 * HIDDEN, HIDDEN]),
        ("mm.1.weight", vec![HIDDEN, TEXT]),
        ("mm.2.weight", vec![TEXT, TEXT]),
    ] {
        let ours = match theirs {
            "v.patch_embd.weight" => "v.patch_conv.weight",
            "v.pre_ln.weight" => "v.encoder_norm.weight",
            "mm.input_norm.weight" => "mm.norm.weight",
            "mm.patch_merger.weight" => "mm.patch_merger.merging_layer.weight",
            "mm.1.weight" => "mm.linear_1.weight",
            _ => "mm.linear_2.weight",
        };
        file = file.without(theirs).tensor(ours, &dims);
    }
    for layer in 0..LAYERS {
        for name in ["ln1", "ln2", "attn_out"] {
            file = file.without(&format!("v.blk.{layer}.{name}.weight"));
        }
    }
    let projector = open(&with_blocks(file, ["attn_norm", "ffn_norm", "attn_output"]));
    let config = projector.config();
    assert_eq!((config.layout, config.activation), (ProjectorLayout::Ollama, Activation::Silu));
    assert_eq!(config.rope_pairing, Pairing::Half);
}

#[test]
fn tensors_have_one_name_whatever_the_layout() {
    for file in [llama_cpp(), ollama()] {
        let projector = open(&file);
        let kernel = projector.tensor("v.patch_conv.weight").unwrap();
        assert_eq!((kernel.cols(), kernel.rows()), (3 * PATCH * PATCH, HIDDEN));
        assert_eq!(projector.tensor("v.blk.1.attn_output.weight").unwrap().dims, [HIDDEN, HIDDEN]);
        assert_eq!(projector.tensor("mm.linear_2.weight").unwrap().rows(), TEXT);
        assert!(projector.opt_tensor("mm.linear_2.bias").is_none());
    }
}

#[test]
fn a_file_without_merging_needs_no_merger() {
    let plain = llama_cpp()
        .set("spatial_merge_size", 1_u32)
        .without("mm.input_norm.weight")
        .without("mm.patch_merger.weight")
        .tensor("mm.1.bias", &[TEXT])
        .tensor("mm.2.bias", &[TEXT]);
    let projector = open(&plain);
    assert_eq!((projector.config().merge_size, projector.config().has_merger), (1, false));
    assert_eq!(projector.preprocessor(None).rule.cell, PATCH);
    // With one but not the other.
    let message = refusal(&plain.tensor("mm.input_norm.weight", &[HIDDEN]));
    assert_names(&message, &["Pixtral needs a tensor", "mm.patch_merger.weight"]);
}

#[test]
fn the_preprocessor_follows_the_file() {
    let file =
        llama_cpp().set("image_mean", vec![0.1_f32, 0.2, 0.3]).set("image_std", vec![0.5_f32, 0.6, 0.7]);
    let preprocessor = open(&file).preprocessor(Some(1000));
    assert_eq!((preprocessor.mean, preprocessor.std), ([0.1, 0.2, 0.3], [0.5, 0.6, 0.7]));
    let rule = preprocessor.rule;
    assert_eq!((rule.longest_edge, rule.cell, rule.max_tokens), (1540, 28, Some(1000)));
}

#[test]
fn missing_tensors_are_named_as_the_file_would() {
    let message = refusal(&llama_cpp().without("v.blk.1.ln2.weight").without("mm.2.weight"));
    assert_names(&message, &["Pixtral needs 2 tensors", "v.blk.1.ln2.weight", "mm.2.weight"]);
    let message = refusal(&ollama().without("v.blk.1.ffn_norm.weight"));
    assert_names(&message, &["v.blk.1.ffn_norm.weight"]);
    // Merging says that there must be a merger.
    let message = refusal(&llama_cpp().without("mm.patch_merger.weight").without("mm.input_norm.weight"));
    assert_names(&message, &["mm.input_norm.weight", "mm.patch_merger.weight"]);
}

#[test]
fn tensors_that_the_encoder_would_not_apply_are_refused() {
    for name in ["v.post_ln.weight", "v.blk.0.attn_q.bias", "mm.patch_merger.bias", "mm.3.weight"] {
        let message = refusal(&llama_cpp().tensor(name, &[HIDDEN]));
        assert_names(&message, &["Pixtral does not use a tensor", "wrong results", name]);
    }
}

#[test]
fn shapes_are_checked() {
    let message = refusal(&llama_cpp().tensor("v.blk.0.attn_q.weight", &[HIDDEN, HIDDEN + 1]));
    assert_names(&message, &["v.blk.0.attn_q.weight has shape [32, 33] instead of [32, 32]"]);
    let message = refusal(&llama_cpp().tensor("v.patch_embd.weight", &[16, 16, 3, HIDDEN]));
    assert_names(&message, &["v.patch_embd.weight has shape [16, 16, 3, 32] instead of [14, 14, 3, 32]"]);
    let message = refusal(&llama_cpp().tensor("mm.2.weight", &[TEXT + 1, TEXT]));
    assert_names(&message, &["mm.2.weight has shape [41, 40] instead of [40, 40]"]);
}

#[test]
fn keys_that_cannot_be_used() {
    let message = refusal(&llama_cpp().key("clip.use_gelu", true));
    assert_names(&message, &["`clip.use_gelu`: clip.use_silu is set too"]);
    let message = refusal(&llama_cpp().key("clip.projector_type", "qwen2.5vl_merger"));
    assert_names(
        &message,
        &["`clip.projector_type`: `qwen2.5vl_merger` is not supported, only `pixtral` is"],
    );
    for suffix in ["embedding_length", "block_count", "patch_size", "image_size", "attention.head_count"] {
        assert_names(&refusal(&llama_cpp().unset(suffix)), &[&format!("`clip.vision.{suffix}` is missing")]);
        let message = refusal(&llama_cpp().set(suffix, 0_u32));
        assert_names(&message, &[&format!("`clip.vision.{suffix}`: must not be 0")]);
        let message = refusal(&llama_cpp().set(suffix, 4_000_000_000_u32));
        assert_names(&message, &[&format!("`clip.vision.{suffix}`: 4000000000 is absurd")]);
    }
    let message = refusal(&llama_cpp().set("attention.head_count", 3_u32));
    assert_names(&message, &["`clip.vision.attention.head_count`: 3 does not divide embedding_length 32"]);
    let message = refusal(&llama_cpp().set("attention.head_count", 16_u32));
    assert_names(&message, &["2 wide, which is not a multiple of 4"]);
    let message = refusal(&llama_cpp().set("image_std", vec![0.5_f32, 0.0, 0.5]));
    assert_names(&message, &["`clip.vision.image_std`: 0 is not positive"]);
    let message = refusal(&llama_cpp().set("image_mean", vec![0.5_f32]));
    assert_names(&message, &["`clip.vision.image_mean`", "not three finite numbers"]);
}

#[test]
fn other_files_are_not_projectors() {
    let message = refusal(&TinyModel::qwen3());
    assert_names(&message, &["not a Pixtral projector", "v.patch_embd.weight", "v.patch_conv.weight"]);
    assert!(!Projector::is_in(&TinyModel::qwen3().gguf()));
    assert!(Projector::is_in(&llama_cpp().gguf()) && Projector::is_in(&ollama().gguf()));
}

#[test]
fn a_projector_of_another_width_does_not_fit() {
    let text = TinyModel::qwen3().open().unwrap();
    let message = open(&llama_cpp()).check_fits(text.config()).unwrap_err().to_string();
    assert_names(&message, &["mm.2.weight gives embeddings of width 40, the text model's are 32 wide"]);
    let message = open(&ollama()).check_fits(text.config()).unwrap_err().to_string();
    assert_names(&message, &["mm.linear_2.weight gives embeddings of width 40"]);
}

#[test]
fn the_converter_s_files_open() {
    let folder = fixture("vision");
    let config = |file: &str| Projector::open(folder.join(file)).unwrap().config().clone();
    let gelu = config("gelu-2/mmproj-f32.gguf");
    assert_eq!((gelu.activation, gelu.activation_named, gelu.merge_size), (Activation::Gelu, true, 2));
    let whole = config("gelu-2/ollama-f16.gguf");
    assert_eq!((whole.layout, whole.activation_named), (ProjectorLayout::Ollama, false));
    let plain = config("silu-1/mmproj-f32.gguf");
    assert_eq!((plain.activation, plain.merge_size, plain.has_merger), (Activation::Silu, 1, false));
    assert_ne!(plain.image_mean, gelu.image_mean);
}

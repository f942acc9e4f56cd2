//! Models made by transformers and converted by scripts of the repository: GGUF files and HF folders of the same
//! weights must be the same checkpoint.

use ember_loaders::checkpoint::{Arch, Checkpoint, ModelConfig, QueryScale, RopeScaling, TensorSource};
use ember_loaders::gguf::GgmlType;
use ember_test_support::{TensorFile, fixture};

fn open(model: &str) -> Checkpoint {
    Checkpoint::open(fixture("models").join(model)).unwrap()
}

/// Asserts that both hold the same configuration (names aside) and the same values of every tensor.
#[track_caller]
fn assert_same(folder: &Checkpoint, file: &Checkpoint) {
    let named = |config: &ModelConfig| ModelConfig { name: None, ..config.clone() };
    assert_eq!(named(folder.config()), named(file.config()));
    let tensors = file.gguf().unwrap().tensors();
    assert!(tensors.len() > 20, "{} tensors", tensors.len());
    for info in tensors {
        let (ours, theirs) = (folder.tensor(&info.name).unwrap(), file.tensor(&info.name).unwrap());
        assert_eq!(ours.dims, theirs.dims, "{}", info.name);
        assert!(ours.to_f32() == theirs.to_f32(), "{} differs", info.name);
    }
    assert!(folder.gguf().is_none());
}

#[test]
fn ministral3_folder_equals_its_gguf() {
    assert_same(&open("ministral3-short/hf"), &open("ministral3-short/f32.gguf"));
}

/// The comparison above sees the order of rows: as the folder stores them, Q and K would differ and V would not.
#[test]
fn adjacent_pairs_need_other_rows_than_the_folder_has() {
    let folder = open("ministral3-short/hf");
    let stored = TensorFile::open(folder.path().join("model.safetensors"));
    for (part, moved) in [("q", true), ("k", true), ("v", false)] {
        let stored = stored.bytes(&format!("model.layers.0.self_attn.{part}_proj.weight"));
        let ours = folder.tensor(&format!("blk.0.attn_{part}.weight")).unwrap();
        assert_eq!(*ours.bytes != *stored, moved, "{part}");
    }
}

#[test]
fn qwen3_folder_of_two_shards_equals_its_gguf() {
    assert_same(&open("qwen3-untied/hf"), &open("qwen3-untied/f32.gguf"));
}

/// Biases and a tied head; bf16 on both sides, so that matrices are the same bytes.
#[test]
fn qwen2_folder_equals_its_gguf() {
    let (folder, file) = (open("qwen2/hf"), open("qwen2/bf16.gguf"));
    assert_same(&folder, &file);
    assert!(folder.config().qkv_bias && folder.config().tied_embeddings);
    let [ours, theirs] = [&folder, &file].map(|checkpoint| checkpoint.tensor("blk.1.ffn_up.weight").unwrap());
    assert_eq!((ours.ty, theirs.ty), (GgmlType::BF16, GgmlType::BF16));
    assert_eq!(*ours.bytes, *theirs.bytes);
}

#[test]
fn every_gguf_fixture_is_recognised() {
    for (fixture, arch) in [
        ("llama/f32.gguf", Arch::Llama),
        ("llama3-rope/f32.gguf", Arch::Llama),
        ("ministral3/f16.gguf", Arch::Mistral3),
        ("ministral3/q8_0.gguf", Arch::Mistral3),
        ("mistral-small/f32.gguf", Arch::Mistral3),
        ("mistral-small-llama/f32.gguf", Arch::Mistral3),
        ("qwen2/f32.gguf", Arch::Qwen2),
        ("qwen3-linear/f32.gguf", Arch::Qwen3),
        ("qwen3-tied/f32.gguf", Arch::Qwen3),
        ("qwen3-yarn/f32.gguf", Arch::Qwen3),
    ] {
        let checkpoint = open(fixture);
        assert_eq!(checkpoint.config().arch, arch, "{fixture}");
        assert!(checkpoint.unused_tensors().is_empty(), "{fixture}: {:?}", checkpoint.unused_tensors());
        assert!(checkpoint.path().ends_with(fixture));
    }
}

#[test]
fn what_tells_the_fixtures_apart() {
    let relabelled = open("mistral-small-llama/f32.gguf");
    assert_eq!(relabelled.config().relabelled_from.as_deref(), Some("llama"));
    let mistral3 = ModelConfig { relabelled_from: None, name: None, ..relabelled.config().clone() };
    assert_eq!(mistral3, ModelConfig { name: None, ..open("mistral-small/f32.gguf").config().clone() });
    assert!(open("qwen3-tied/f32.gguf").config().tied_embeddings);
    assert!(!open("qwen3-untied/f32.gguf").config().tied_embeddings);
    assert!(matches!(open("qwen3-linear/f32.gguf").config().rope.scaling, RopeScaling::Linear { .. }));
    assert!(matches!(open("qwen3-yarn/f32.gguf").config().rope.scaling, RopeScaling::Yarn { .. }));
    assert!(open("llama3-rope/f32.gguf").opt_tensor("rope_freqs.weight").is_some());
    let short = open("ministral3-short/f32.gguf");
    assert_eq!(short.config().query_scale, Some(QueryScale { beta: 0.1, original_context: 16 }));
}

//! The longest context of a model: what it states, or what YaRN makes of its original one.

mod checkpoint_support;

use checkpoint_support::folder::TinyFolder;
use checkpoint_support::{TinyModel, assert_names};
use ember_loaders::checkpoint::{Checkpoint, CheckpointError, RopeScaling};
use serde_json::json;

#[track_caller]
fn limit(checkpoint: Result<Checkpoint, CheckpointError>) -> (usize, String) {
    let limit = checkpoint.unwrap().config().context_limit();
    (limit.tokens(), limit.to_string())
}

/// Qwen3's, stated as its files do.
fn qwen3(original: u32, factor: f32) -> TinyModel {
    TinyModel::qwen3()
        .set("context_length", 40960_u32)
        .set("rope.scaling.type", "yarn")
        .set("rope.scaling.factor", factor)
        .set("rope.scaling.original_context_length", original)
}

#[test]
fn yarn_in_gguf_files() {
    let text = "the 131072 that the model allows (its context length is 40960, and YaRN stretches 32768 by 4 to 131072)";
    assert_eq!(limit(qwen3(32768, 4.0).open()), (131072, text.to_owned()));
    assert_eq!(limit(qwen3(32768, 1.0).open()).0, 40960, "the larger of the two");
    assert_eq!(limit(qwen3(32768, 2.5).open()).0, 81920);
    assert_eq!(limit(qwen3(1000, 41.5).open()).0, 41500);
    // An original context that is not stated is the context length, as for the frequencies.
    assert_eq!(limit(qwen3(32768, 4.0).unset("rope.scaling.original_context_length").open()).0, 163840);
    assert_eq!(limit(qwen3(32768, 1e30).open()).0, 1 << 31, "positions are 32-bit numbers");
    assert_eq!(limit(TinyModel::ministral3().open()).0, 262144);
}

#[test]
fn models_without_yarn_allow_what_they_state() {
    let stated = (4096, "the 4096 that the model allows".to_owned());
    // Qwen3's files do not ask for YaRN, which would make short texts worse: it is off.
    let scaling = TinyModel::qwen3().open().unwrap().config().rope.scaling;
    assert_eq!(scaling, RopeScaling::None);
    assert_eq!(limit(TinyModel::qwen3().open()), stated);
    let linear = TinyModel::qwen3().set("rope.scaling.type", "linear").set("rope.scaling.factor", 4.0_f32);
    assert_eq!(limit(linear.open()), stated);
}

#[test]
fn yarn_in_folders() {
    let yarn = |name: &str, section: &str, kind: &str| {
        let yarn = json!({
            kind: "yarn", "factor": 4.0, "original_max_position_embeddings": 32768, "rope_theta": 1e6,
        });
        TinyFolder::llama(name).set("max_position_embeddings", json!(40960)).set(section, yarn)
    };
    assert_eq!(limit(yarn("limit_v4", "rope_scaling", "type").open()).0, 131072);
    assert_eq!(limit(yarn("limit_v5", "rope_parameters", "rope_type").open()).0, 131072);
}

/// A window that the stated context never leaves, but the stretched one does.
#[test]
fn windows_within_the_longest_context_are_refused() {
    let message = qwen3(32768, 4.0).set("attention.sliding_window", 65536_u32).refusal();
    assert_names(&message, &["attention.sliding_window", "65536", "131072"]);
    qwen3(32768, 4.0).set("attention.sliding_window", 131072_u32).open().unwrap();
    let folder = TinyFolder::llama("limit_window").set("max_position_embeddings", json!(40960)).set(
        "rope_scaling",
        json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}),
    );
    assert_names(&folder.set("sliding_window", json!(65536)).refusal(), &["sliding_window", "131072"]);
}

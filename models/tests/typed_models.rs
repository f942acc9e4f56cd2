//! The typed models: their own files give the reference's logits, files of other families are refused.
mod common;

use burn::tensor::{Int, Tensor};
use burn_ndarray::NdArray;
use common::golden::{assert_within, file, reference};
use common::values;
use ember_loaders::checkpoint::Arch;
use ember_loaders::gguf::Gguf;
use ember_models::{Mistral3, ModelError, Qwen3};
use ember_test_support::Reference;

type B = NdArray;

fn gguf(model: &str) -> Gguf {
    Gguf::open(file(model)).expect("a committed fixture")
}

/// The prompt, `[1, tokens]`.
fn tokens(reference: &Reference) -> Tensor<B, 2, Int> {
    let ids: Vec<i64> = reference.tokens.iter().map(|&id| i64::from(id)).collect();
    Tensor::<B, 1, Int>::from_ints(&ids[..], &Default::default()).unsqueeze()
}

#[test]
fn qwen3_from_a_file_gives_the_references_logits() {
    for name in ["qwen3-tied", "qwen3-untied", "qwen3-yarn", "qwen3-linear"] {
        let reference = reference(&format!("{name}/reference.safetensors"));
        let model = Qwen3::<B>::from_gguf(gguf(&format!("{name}/f32.gguf")), &Default::default());
        let logits = model.expect("a Qwen3 file").forward(tokens(&reference));
        assert_eq!(logits.dims(), [1, reference.tokens.len(), reference.vocab()]);
        assert_within(1e-4, &values(logits), &reference, name);
    }
}

#[test]
fn mistral3_from_a_file_gives_the_references_logits() {
    for name in ["ministral3", "ministral3-short", "mistral-small", "mistral-small-llama"] {
        let reference = reference(&format!("{name}/reference.safetensors"));
        let model = Mistral3::<B>::from_gguf(gguf(&format!("{name}/f32.gguf")), &Default::default());
        let logits = model.expect("a Mistral 3 file").forward(tokens(&reference));
        assert_within(1e-4, &values(logits), &reference, name);
    }
}

#[test]
fn files_of_other_families_are_refused() {
    for (name, arch) in [("llama", Arch::Llama), ("qwen2", Arch::Qwen2), ("ministral3", Arch::Mistral3)] {
        let error = Qwen3::<B>::from_gguf(gguf(&format!("{name}/f32.gguf")), &Default::default());
        let error = error.map(drop).expect_err("another family");
        assert!(matches!(error, ModelError::WrongArchitecture { found, .. } if found == arch), "{error}");
        let message = error.to_string();
        assert!(message.contains(&format!("{arch:?}")) && message.contains("Qwen3"), "{message}");
    }
    let error = Mistral3::<B>::from_gguf(gguf("qwen3-tied/f32.gguf"), &Default::default());
    let error = error.map(drop).expect_err("another family");
    assert!(matches!(error, ModelError::WrongArchitecture { found: Arch::Qwen3, .. }), "{error}");
}

//! The models on a Vulkan device: every operation against its definition, and whole models against Hugging Face.
mod common;

use burn_cubecl::CubeBackend;
use burn_wgpu::WgpuRuntime;
use common::golden::{EXACT, fixture, lowest_cosine, paged_logits, reference, worst_position};
use common::invariance;
use ember_loaders::checkpoint::Checkpoint;
use ember_models::backend::conformance;
use ember_models::{Decoder, KvType, WeightFormat};

type B = CubeBackend<WgpuRuntime, f32, i32, u32>;

/// Kernels for a few rows and for many add in different orders.
fn close(a: &[f32], b: &[f32], what: &str) {
    let error = common::max_relative(a, b);
    assert!(error < 1e-3, "{what}: {error}");
}

#[test]
fn operations_equal_their_definitions() {
    conformance::operations::<B>(&Default::default(), &mut |finding| assert!(finding.holds(), "{finding}"))
        .expect("a healthy device");
}

fn load(path: &str) -> Decoder<B> {
    let checkpoint = Checkpoint::open(fixture(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    Decoder::load(&checkpoint, WeightFormat::Packed, &Default::default()).expect("a whole checkpoint")
}

#[test]
fn f32_logits_equal_the_reference() {
    for (model, expected) in EXACT {
        let reference = reference(expected);
        let error = worst_position(&paged_logits(&load(model), &reference), &reference);
        assert!(error < 1e-4, "{model} against {expected}: {error}");
    }
}

#[test]
fn the_cacheless_forward_equals_the_reference() {
    let (model, expected) = EXACT[0];
    let reference = reference(expected);
    let ids: Vec<i64> = reference.tokens.iter().map(|&id| i64::from(id)).collect();
    let shape = [1, ids.len()];
    let tokens =
        burn::tensor::Tensor::from_data(burn::tensor::TensorData::new(ids, shape), &Default::default());
    let logits = common::values(load(model).forward_at(tokens, &reference.positions));
    let error = worst_position(&logits, &reference);
    assert!(error < 1e-4, "{model} against {expected}: {error}");
}

/// The reference here is the model with the same rounded weights.
#[test]
fn every_block_type_runs() {
    let types_32 = ["q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"].map(|ty| ("blocks-32", ty));
    let types_256 = ["q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_xs"].map(|ty| ("blocks-256", ty));
    for (folder, ty) in types_32.into_iter().chain(types_256) {
        let reference = reference(&format!("{folder}/reference-{ty}.safetensors"));
        let cosine =
            lowest_cosine(&paged_logits(&load(&format!("{folder}/{ty}.gguf")), &reference), &reference);
        assert!(cosine > 0.99999, "{ty}: {cosine}");
    }
}

#[test]
fn decode_equals_prefill_for_every_length_up_to_260() {
    invariance::decode_equals_prefill::<B>(&[KvType::F16], close);
}

#[test]
fn a_batch_of_sequences_equals_each_alone() {
    invariance::batch_equals_single::<B>(close);
}

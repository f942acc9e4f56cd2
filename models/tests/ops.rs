//! The CPU operations against their definitions in plain tensor operations.
mod common;

use burn_ndarray::NdArray;
use common::values;
use ember_loaders::gguf::GgmlType;
use ember_models::backend::{Pairing, conformance, default};

type B = NdArray;

#[test]
fn operations_equal_their_definitions() {
    let mut findings = Vec::new();
    conformance::operations::<B>(&Default::default(), &mut |finding| findings.push(finding))
        .expect("no device");
    assert!(findings.len() > 50, "{} comparisons", findings.len());
    for finding in findings {
        assert!(finding.holds(), "{finding}");
    }
}

/// Activations are rounded to int8 for quantized weights.
#[test]
fn products_of_every_type_are_close_to_their_definitions() {
    for ty in GgmlType::ALL {
        let matrices = [conformance::random_matrix(ty, 1, 7, 512), conformance::random_matrix(ty, 2, 5, 512)];
        conformance::products::<B>(&matrices, &[1, 6], 2e-2, &Default::default(), &mut |finding| {
            assert!(finding.holds(), "{finding}");
        })
        .expect("no device");
    }
}

#[test]
fn rope_rotates_the_documented_pairs() {
    let device = Default::default();
    let x = burn::tensor::Tensor::<B, 3>::from_floats([[[1.0, 2.0, 3.0, 4.0]]], &device);
    let cos = burn::tensor::Tensor::<B, 2>::from_floats([[0.0, 1.0]], &device);
    let sin = burn::tensor::Tensor::<B, 2>::from_floats([[1.0, 0.0]], &device);
    let turned = |pairing| values(default::rope(x.clone(), cos.clone(), sin.clone(), pairing));
    assert_eq!(turned(Pairing::Adjacent), [-2.0, 1.0, 3.0, 4.0]);
    assert_eq!(turned(Pairing::Half), [-3.0, 2.0, 1.0, 4.0]);
}

#[test]
fn the_likeliest_tokens() {
    let rows = [[0.5, 2.0, -1.0, 2.0, f32::NEG_INFINITY], [1.0, f32::NAN, 3.0, 2.0, 0.0]];
    let logits = burn::tensor::Tensor::<B, 2>::from_floats(rows, &Default::default());
    let picks = default::top_k(logits, 3).expect("no device");
    assert_eq!(picks[0], [(1, 2.0), (3, 2.0), (0, 0.5)]);
    assert_eq!(picks[1].iter().map(|pick| pick.0).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(picks[1][0].1.is_nan());
}

//! The CPU operations against their definitions in plain tensor operations.
mod common;

use burn_ndarray::NdArray;
use common::{ops, values};
use ember_models::backend::{Pairing, default};

type B = NdArray;

#[test]
fn packed_linear() {
    ops::packed_linear::<B>();
}

#[test]
fn packed_rows() {
    ops::packed_rows::<B>();
}

#[test]
fn norms_and_gates() {
    ops::norms_and_gates::<B>();
}

#[test]
fn rope_both_pairings_and_partial_width() {
    ops::rope::<B>();
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
fn attention_with_causal_rows_and_segments() {
    ops::dense_attention::<B>();
}

#[test]
fn paged_attention_of_every_page_type() {
    ops::paged_attention::<B>();
}

#[test]
fn the_likeliest_tokens() {
    ops::top_k::<B>();
}

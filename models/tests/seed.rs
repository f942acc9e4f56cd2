//! The seed of a model without a file, in a process of its own: tests side by side would draw from one generator.
use burn::tensor::{Tensor, backend::Backend};
use burn_ndarray::NdArray;
use ember_models::Qwen3Config;

type B = NdArray;

#[test]
fn the_seed_decides_a_model_without_a_file() {
    let device = Default::default();
    let config = Qwen3Config::new()
        .with_vocab_size(50)
        .with_hidden_size(16)
        .with_ffn_size(24)
        .with_n_layers(2)
        .with_n_heads(4)
        .with_n_kv_heads(2)
        .with_head_dim(8);
    let logits = |seed| {
        B::seed(&device, seed);
        let logits = config.init::<B>(&device).forward(Tensor::from_ints([[1, 2, 3]], &device));
        logits.into_data().to_vec::<f32>().expect("f32 logits")
    };
    assert_eq!(logits(1), logits(1));
    assert_ne!(logits(1), logits(2));
}

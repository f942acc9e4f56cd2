//! The same modules train: gradients of a dense model against finite differences.
mod common;

use burn::backend::Autodiff;
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Int, Tensor, backend::Backend as _};
use burn_ndarray::NdArray;
use common::{synthetic, values};
use ember_models::backend::Backend;
use ember_models::{Qwen3, WeightFormat};

type Inner = NdArray;
type Train = Autodiff<Inner>;

const TOKENS: [[i64; 6]; 2] = [[5, 1, 88, 3, 20, 7], [9, 9, 2, 41, 60, 13]];

/// Mean negative log-likelihood of the next token.
fn loss<B: Backend>(model: &Qwen3<B>, device: &B::Device) -> Tensor<B, 1> {
    let tokens = Tensor::<B, 2, Int>::from_ints(TOKENS, device);
    let logits = model.forward(tokens.clone().slice([0..2, 0..5]));
    let targets = tokens.slice([0..2, 1..6]).unsqueeze_dim::<3>(2);
    -burn::tensor::activation::log_softmax(logits, 2).gather(2, targets).mean()
}

struct Count(usize);

impl<B: burn::tensor::backend::Backend> ModuleVisitor<B> for Count {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.0 += usize::from(param.val().is_require_grad());
    }
}

#[test]
fn gradients_match_finite_differences() {
    let device = Default::default();
    let checkpoint = synthetic::checkpoint(false);
    let model = Qwen3::<Train>::from_checkpoint(&checkpoint, WeightFormat::Dense, &device)
        .expect("a whole checkpoint");
    let mut count = Count(0);
    model.visit(&mut count);
    assert_eq!(count.0, 3 + 2 * 11, "every tensor of the checkpoint takes a gradient");
    let gradients = loss(&model, &device).backward();
    let weight = &model.decoder.blk[0].attention.attn_k_norm.as_ref().expect("Qwen3 has it").weight;
    let analytic = values(weight.val().grad(&gradients).expect("the norm is on the path to the loss"));
    let inner = Qwen3::<Inner>::from_checkpoint(&checkpoint, WeightFormat::Dense, &device)
        .expect("a whole checkpoint");
    for (i, analytic) in analytic.iter().enumerate().step_by(5) {
        let at = |delta: f32| {
            let mut model = inner.clone();
            let norm = model.decoder.blk[0].attention.attn_k_norm.as_mut().expect("Qwen3 has it");
            let mut shifted = values(norm.weight.val());
            shifted[i] += delta;
            norm.weight =
                Param::from_data(burn::tensor::TensorData::new(shifted.clone(), [shifted.len()]), &device);
            f64::from(loss(&model, &device).into_scalar())
        };
        let numeric = (at(0.02) - at(-0.02)) / 0.04;
        assert!(
            (numeric - f64::from(*analytic)).abs() < 2e-4 + 0.02 * numeric.abs(),
            "{i}: {numeric} {analytic}"
        );
    }
    Train::sync(&device).expect("the CPU has nothing to wait for");
}

#[test]
fn gradients_flow_through_packed_weights_to_the_norms() {
    let device = Default::default();
    let model = Qwen3::<Train>::from_checkpoint(&synthetic::checkpoint(true), WeightFormat::Packed, &device)
        .expect("a whole checkpoint");
    let gradients = loss(&model, &device).backward();
    let gradient =
        model.decoder.blk[0].attn_norm.weight.val().grad(&gradients).expect("the norm is on the path");
    let gradient = values(gradient);
    assert!(gradient.iter().all(|g| g.is_finite()) && gradient.iter().any(|g| g.abs() > 1e-4));
}

#[test]
fn dense_forward_equals_the_paged_step() {
    let device = Default::default();
    let model = Qwen3::<Inner>::from_checkpoint(&synthetic::checkpoint(false), WeightFormat::Packed, &device)
        .expect("a whole checkpoint");
    let dense = values(model.forward(Tensor::from_ints([TOKENS[0]], &device)));
    let ids: Vec<u32> = TOKENS[0].iter().map(|&id| id as u32).collect();
    let mut batch = ember_models::Batch::single(&ids, 0, &[0], ember_models::KvCache::BLOCK_LEN);
    batch.logits_rows = (0..6).collect();
    let mut cache =
        ember_models::KvCache::new::<Inner>(model.decoder.config(), ember_models::KvType::F32, 6, &device)
            .expect("small");
    let output = model.decoder.step(&batch, &mut cache, &device).expect("a valid batch");
    let error = ember_test_support::max_relative(&dense, &values(output.logits.expect("all rows")));
    assert!(error < 1e-5, "{error}");
}

//! A row's result never depends on what else is in the batch, on how the prompt is cut, or on whether it is decoded.
mod common;

use burn_ndarray::NdArray;
use common::invariance::{self, BLOCK, in_pieces, run, tokens};
use common::{synthetic, values};
use ember_models::{Batch, KvCache, KvType};

type B = NdArray;

/// The bits of results that are numbers: those of NaN are equal too.
fn bits(values: &[f32]) -> Vec<u32> {
    assert!(values.iter().all(|value| value.is_finite()), "not finite");
    values.iter().map(|v| v.to_bits()).collect()
}

fn same_bits(a: &[f32], b: &[f32], what: &str) {
    assert_eq!(bits(a), bits(b), "{what}");
}

#[test]
fn decode_equals_prefill_for_every_length_up_to_260() {
    invariance::decode_equals_prefill::<B>(
        &[KvType::F16, KvType::BF16, KvType::F32, KvType::Q8_0],
        same_bits,
    );
}

#[test]
fn the_prompt_may_be_cut_anywhere() {
    let model = synthetic::qwen3::<B>(true);
    let tokens = tokens(130);
    let whole = in_pieces(&model, KvType::F16, &tokens, &[130]);
    for pieces in [&[1, 129][..], &[31, 33, 66], &[64], &[7], &[3, 1, 4, 1, 59, 2, 65]] {
        assert_eq!(bits(&whole), bits(&in_pieces(&model, KvType::F16, &tokens, pieces)), "{pieces:?}");
    }
}

#[test]
fn a_batch_of_sequences_equals_each_alone() {
    invariance::batch_equals_single::<B>(same_bits);
}

#[test]
fn ready_embeddings_replace_token_rows() {
    let model = synthetic::qwen3::<B>(false);
    let hidden = model.config().hidden_size;
    let tokens = tokens(6);
    let plain = in_pieces(&model, KvType::F32, &tokens, &[6]);
    // A table of which parts are used: its rows 1 and 2 for row 2 and for row 4.
    let rows = values(model.decoder().token_embd.forward(&[0, tokens[2], tokens[4]], &Default::default()));
    let rows: std::sync::Arc<[f32]> = rows.into();
    let mut batch = Batch::single(&[tokens[0], tokens[1], 0, tokens[3], 0, tokens[5]], 0, &[0], BLOCK);
    for (start, first) in [(2, 1), (4, 2)] {
        batch.embeddings.push(ember_models::EmbeddingRows { start, values: rows.clone(), first, n: 1 });
    }
    assert_eq!(rows.len(), 3 * hidden);
    let mut cache =
        KvCache::new::<B>(model.config(), KvType::F32, 6, &Default::default()).expect("a small cache");
    assert_eq!(bits(&run(&model, &mut cache, batch)), bits(&plain));
}

#[test]
fn a_segment_sees_itself_and_a_causal_row_does_not_see_ahead() {
    let model = synthetic::qwen3::<B>(false);
    let tokens = tokens(8);
    let with_segment = |segment: Option<std::ops::Range<u32>>| {
        let mut batch = Batch::single(&tokens, 0, &[0], BLOCK);
        batch.sequences[0].segments = segment.into_iter().collect();
        run(
            &model,
            &mut KvCache::new::<B>(model.config(), KvType::F32, 8, &Default::default())
                .expect("a small cache"),
            batch,
        )
    };
    let (causal, segment) = (with_segment(None), with_segment(Some(3..6)));
    let vocab = model.config().vocab_size;
    assert_eq!(causal[..3 * vocab], segment[..3 * vocab], "rows before the segment");
    assert_ne!(causal[3 * vocab..4 * vocab], segment[3 * vocab..4 * vocab], "its first row sees its last");
}

#[test]
fn wanted_rows_come_in_the_order_asked() {
    let model = synthetic::qwen3::<B>(false);
    let tokens = tokens(5);
    let all = in_pieces(&model, KvType::F32, &tokens, &[5]);
    let mut cache =
        KvCache::new::<B>(model.config(), KvType::F32, 5, &Default::default()).expect("a small cache");
    let batch =
        Batch { logits_rows: vec![4, 1], hidden_rows: vec![0], ..Batch::single(&tokens, 0, &[0], BLOCK) };
    let output = model.step(&batch, &mut cache, &Default::default()).expect("a valid batch");
    let vocab = model.config().vocab_size;
    let expected = [&all[4 * vocab..5 * vocab], &all[vocab..2 * vocab]].concat();
    assert_eq!(values(output.logits.expect("two rows")), expected);
    assert_eq!(output.hidden.expect("one row").dims(), [1, model.config().hidden_size]);
}

#[test]
fn batches_that_do_not_fit_are_refused() {
    let model = synthetic::qwen3::<B>(false);
    let mut cache =
        KvCache::new::<B>(model.config(), KvType::F32, BLOCK, &Default::default()).expect("a small cache");
    let good = Batch::single(&[1, 2, 3], 0, &[0], BLOCK);
    let cases: [(Batch, &str); 6] = [
        (Batch { tokens: vec![1, 96, 3], ..good.clone() }, "token id 96"),
        (Batch { positions: vec![0], ..good.clone() }, "1 positions"),
        (Batch { slots: vec![0, 1, 32], ..good.clone() }, "KV slot 32"),
        (Batch { logits_rows: vec![3], ..good.clone() }, "row 3"),
        (Batch { sequences: Vec::new(), ..good.clone() }, "cover 0 of 3"),
        (Batch::single(&[1], 0, &[0], BLOCK), "adapter 4"),
    ];
    for (mut batch, message) in cases {
        if message.starts_with("adapter") {
            batch.sequences[0].adapter = Some(4);
        }
        let error = model.step(&batch, &mut cache, &Default::default()).expect_err(message).to_string();
        assert!(error.contains(message), "{error}");
    }
    assert!(model.step(&good, &mut cache, &Default::default()).is_ok());
}

//! The engine's bookkeeping, on a runner that counts instead of a model.
mod engine_support;

use ember::device::{BackendKind, CacheOptions, DeviceOptions, KvType, LoadOptions, load};
use ember::engine::{
    Chunk, EncodedImage, Engine, EngineError, FinishReason, GenerateLimits, Generation, ImageSpan, Sequence,
    Step, Tokens, Wanted,
};
use ember::sampling::{Sampler, SamplingParams};
use ember_loaders::checkpoint::Checkpoint;
use ember_loaders::image::ImageGrid;
use ember_models::Batch;
use ember_test_support::fixture;
use engine_support::{Counting, VOCAB};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

fn engine(n_blocks: usize) -> (Engine, Arc<Mutex<Vec<Batch>>>) {
    let model = Counting { max_logits_rows: 3, ..Counting::new(n_blocks) };
    let batches = model.batches.clone();
    (Engine::new(Box::new(model)), batches)
}

/// Generates until the end, or until `stop_after` tokens (0: after the first chunk of the prompt).
fn answer<'a>(
    engine: &mut Engine,
    sequence: &mut Sequence,
    prompt: impl Into<Tokens<'a>>,
    max_tokens: usize,
    stop_after: usize,
) -> Result<Generation, EngineError> {
    let limits =
        GenerateLimits { max_tokens: Some(max_tokens), end_tokens: vec![20], ..GenerateLimits::default() };
    let mut sampler = Sampler::new(SamplingParams::default()).expect("greedy is valid");
    let mut generation = Generation::start(engine, sequence, prompt, limits)?;
    loop {
        let step = generation.advance(engine, sequence, &mut sampler)?;
        let stops = match step {
            Step::Prefill { .. } => stop_after == 0,
            Step::Token(_) => generation.tokens().len() == stop_after,
            Step::End(_) => true,
        };
        if stops {
            return Ok(generation);
        }
    }
}

#[test]
fn a_generation_ends_for_the_reason_it_names() {
    let cases = [
        (&[1, 2, 3][..], 5, 99, Some(FinishReason::MaxTokens), vec![4, 5, 6, 7, 8]),
        (&[17], 9, 99, Some(FinishReason::EndOfGeneration), vec![18, 19]),
        (&[19], 9, 99, Some(FinishReason::EndOfGeneration), vec![]),
        (&[1, 2], 9, 2, None, vec![3, 4]),
        (&[1, 2], 9, 0, None, vec![]),
        (&[1, 2], 0, 99, Some(FinishReason::MaxTokens), vec![]),
        // Eight slots: two prompt tokens, six generated ones in the cache, a seventh that was only sampled.
        (&[1, 2], 99, 99, Some(FinishReason::ContextFull), vec![3, 4, 5, 6, 7, 8, 9]),
    ];
    for (prompt, max_tokens, stop_after, reason, tokens) in cases {
        let (mut engine, _) = engine(2);
        let mut sequence = Sequence::default();
        let generation = answer(&mut engine, &mut sequence, prompt, max_tokens, stop_after).expect("it fits");
        assert_eq!((generation.finish_reason(), generation.tokens()), (reason, &tokens[..]), "{prompt:?}");
    }
}

#[test]
fn the_common_prefix_is_not_run_again() {
    let (mut engine, batches) = engine(8);
    let mut sequence = Sequence::default();
    let first = answer(&mut engine, &mut sequence, &[1, 2, 3], 3, 99).expect("it fits");
    assert_eq!((first.cached_tokens(), sequence.tokens()), (0, &[1, 2, 3, 4, 5][..]));
    batches.lock().expect("no panic").clear();
    let second = answer(&mut engine, &mut sequence, &[1, 2, 3, 4, 5, 6, 30], 1, 99).expect("it fits");
    assert_eq!((second.cached_tokens(), second.prompt_tokens()), (5, 7));
    assert_eq!(batches.lock().expect("no panic")[0].tokens, [6, 30]);
    assert_eq!(batches.lock().expect("no panic")[0].positions, [5, 6]);
    batches.lock().expect("no panic").clear();
    let other = answer(&mut engine, &mut sequence, &[1, 2, 9], 1, 99).expect("it fits");
    assert_eq!((other.cached_tokens(), batches.lock().expect("no panic")[0].tokens.clone()), (2, vec![9]));
}

#[test]
fn prompts_are_cut_into_chunks_and_only_the_last_row_wants_logits() {
    let (mut engine, batches) = engine(8);
    engine.set_prefill_chunk(4);
    let mut sequence = Sequence::default();
    let prompt: Vec<u32> = (0..10).collect();
    engine.extend(&mut sequence, &prompt, Wanted::Last, &mut |_| true).expect("it fits");
    let batches = batches.lock().expect("no panic");
    assert_eq!(batches.iter().map(Batch::len).collect::<Vec<_>>(), [4, 4, 2]);
    assert_eq!(batches.iter().map(|b| b.logits_rows.clone()).collect::<Vec<_>>(), [vec![], vec![], vec![1]]);
}

#[test]
fn steps_are_shorter_when_every_row_wants_logits() {
    let (mut engine, batches) = engine(8);
    let mut sequence = Sequence::default();
    let output = engine.extend(&mut sequence, &[5, 6, 7, 8], Wanted::All, &mut |_| true).expect("it fits");
    assert_eq!(output.logits.len(), 4 * VOCAB as usize);
    assert_eq!(batches.lock().expect("no panic").iter().map(Batch::len).collect::<Vec<_>>(), [3, 1]);
}

#[test]
fn greedy_answers_ask_for_one_token_and_penalties_for_all_logits() {
    let params = |repeat_penalty| SamplingParams { repeat_penalty, ..SamplingParams::default() };
    for (params, picks) in [(params(1.0), 1), (params(1.1), 0)] {
        let (mut engine, batches) = engine(8);
        let mut sampler = Sampler::new(params).expect("valid settings");
        let limits = GenerateLimits { max_tokens: Some(3), ..GenerateLimits::default() };
        let mut sequence = Sequence::default();
        let mut answer = Generation::start(&mut engine, &mut sequence, &[1, 2], limits).expect("it fits");
        answer.run(&mut engine, &mut sequence, &mut sampler).expect("it fits");
        assert_eq!(answer.tokens(), [3, 4, 5]);
        for batch in batches.lock().expect("no panic").iter() {
            assert_eq!((batch.likeliest_rows.len(), batch.logits_rows.len()), (picks, 1 - picks));
            assert_eq!(batch.likeliest, picks);
        }
    }
}

#[test]
fn rows_of_one_step_get_as_many_likeliest_tokens_as_each_wants() {
    let (mut engine, batches) = engine(8);
    let wanted = [
        (7, Wanted::Likeliest(2)),
        (1, Wanted::Last),
        (20, Wanted::Likeliest(5)),
        (30, Wanted::Likeliest(1)),
        (3, Wanted::Nothing),
    ];
    let mut sequences = wanted.map(|_| Sequence::default());
    let tokens = wanted.map(|(token, _)| [token]);
    let mut chunks: Vec<Chunk> = Vec::new();
    for ((sequence, tokens), (_, wanted)) in sequences.iter_mut().zip(&tokens).zip(wanted) {
        chunks.push(Chunk { sequence, tokens: tokens.into(), wanted });
    }
    let output = engine.step(&mut chunks).expect("it fits");
    assert_eq!(
        batches.lock().expect("no panic")[0].likeliest,
        5,
        "the device picks for all rows what the third one needs"
    );
    let expected = [
        vec![(8, 1.0), (9, 0.5)],
        vec![(21, 1.0), (22, 0.5), (23, 0.25), (24, 0.125), (25, 0.0625)],
        vec![(31, 1.0)],
    ];
    assert_eq!(output.likeliest, expected);
    assert_eq!(output.logits.len(), VOCAB as usize);
}

/// The top-k of a real model's rows beside each other, by values: a row of 5 beside one of 64.
#[test]
fn a_row_samples_from_its_own_top_k_beside_a_larger_one() {
    let checkpoint = Checkpoint::open(fixture("models/qwen3-tied/f32.gguf")).expect("a committed fixture");
    let options = LoadOptions {
        device: DeviceOptions { backend: BackendKind::Ndarray, device: 0, threads: None },
        cache: CacheOptions { context_size: 64, kv_type: KvType::F32 },
    };
    let mut engine = Engine::new(load(&checkpoint, &options, &mut |_| ()).expect("it fits").runner);
    let prompts = [&[5, 9, 70][..], &[11, 3]];
    // All logits of the last rows, sorted: what the lists must begin with.
    let sorted = prompts.map(|prompt| {
        let mut sequence = Sequence::default();
        let output = engine.extend(&mut sequence, prompt, Wanted::Last, &mut |_| true).expect("it fits");
        engine.truncate(&mut sequence, 0);
        let mut sorted: Vec<(u32, f32)> = (0..).zip(output.logits).collect();
        sorted.sort_by(|a, b| b.1.total_cmp(&a.1));
        sorted
    });
    let [mut a, mut b] = [(); 2].map(|()| Sequence::default());
    let output = engine
        .step(&mut [
            Chunk { sequence: &mut a, tokens: prompts[0].into(), wanted: Wanted::Likeliest(5) },
            Chunk { sequence: &mut b, tokens: prompts[1].into(), wanted: Wanted::Likeliest(64) },
        ])
        .expect("it fits");
    assert_eq!(output.likeliest, [sorted[0][..5].to_vec(), sorted[1][..64].to_vec()]);

    // Hot enough that every one of the candidates comes up.
    let params = SamplingParams { temperature: 50.0, top_k: 5, seed: Some(1), ..SamplingParams::default() };
    let mut sampler = Sampler::new(params).expect("valid settings");
    let mut draw = || sampler.sample_likeliest(&output.likeliest[0]).expect("finite logits");
    let drawn: BTreeSet<u32> = (0..500).map(|_| draw()).collect();
    assert_eq!(drawn, sorted[0][..5].iter().map(|&(token, _)| token).collect());
}

#[test]
fn one_step_serves_several_sequences_on_blocks_of_their_own() {
    let (mut engine, batches) = engine(4);
    let (mut a, mut b) = (Sequence::default(), Sequence::default());
    let output = engine
        .step(&mut [
            Chunk { sequence: &mut a, tokens: (&[1, 2, 3, 4, 5]).into(), wanted: Wanted::Last },
            Chunk { sequence: &mut b, tokens: (&[7]).into(), wanted: Wanted::All },
        ])
        .expect("it fits");
    assert_eq!(output.logits.len(), 2 * VOCAB as usize);
    let batch = batches.lock().expect("no panic")[0].clone();
    assert_eq!((batch.logits_rows, batch.positions), (vec![4, 5], vec![0, 1, 2, 3, 4, 0]));
    assert_eq!((a.block_table(), b.block_table()), (&[0, 1][..], &[2][..]));
    let full = engine.step(&mut [Chunk { sequence: &mut b, tokens: (&[0; 9]).into(), wanted: Wanted::Last }]);
    assert!(matches!(full, Err(EngineError::ContextFull { tokens: 10, context: 16 })), "{full:?}");
    assert_eq!((b.len(), b.block_table()), (1, &[2][..]));
}

#[test]
fn impossible_prompts_are_refused_before_any_work() {
    let (mut engine, batches) = engine(2);
    let mut sequence = Sequence::default();
    let empty = answer(&mut engine, &mut sequence, &[][..], 5, 99);
    assert!(matches!(empty, Err(EngineError::EmptyPrompt)), "{empty:?}");
    let long = answer(&mut engine, &mut sequence, &[1; 9], 5, 99);
    assert!(matches!(long, Err(EngineError::ContextFull { tokens: 9, context: 8 })), "{long:?}");
    assert!(batches.lock().expect("no panic").is_empty());
}

/// `[IMG]`, `[IMG_BREAK]` and `[IMG_END]`.
const IMAGE: [u32; 3] = [40, 41, 42];

/// An image of 2 rows of 3 cells, whose row `i` of embeddings is `100 * name + i` throughout.
fn image(start: usize, name: u8) -> ImageSpan {
    let config = engine(1).0.runner().config().clone();
    let row = |cell: usize| vec![f32::from(name) * 100.0 + cell as f32; config.hidden_size];
    let grid = ImageGrid { rows: 2, cols: 3 };
    let embeddings = (0..grid.cells()).flat_map(row).collect();
    ImageSpan { start, image: Arc::new(EncodedImage { hash: [name; 32], grid, embeddings }) }
}

/// Two tokens, an image, two tokens, an image, two tokens.
fn prompt_with_two_images() -> Vec<u32> {
    let [cell, row_break, end] = IMAGE;
    let image = [cell, cell, cell, row_break, cell, cell, cell, end];
    [&[1, 2][..], &image, &[3, 4], &image, &[5, 6]].concat()
}

/// The input that each position of the sequence was run with: a token, or the first value of an embedding.
fn inputs(batches: &[Batch]) -> Vec<Result<u32, f32>> {
    let mut inputs = Vec::new();
    for batch in batches {
        let mut rows: Vec<Result<u32, f32>> = batch.tokens.iter().copied().map(Ok).collect();
        for part in &batch.embeddings {
            let hidden = part.values.len() / 6;
            for i in 0..part.n {
                rows[part.start + i] = Err(part.values[(part.first + i) * hidden]);
            }
        }
        inputs.extend(rows);
    }
    inputs
}

#[test]
fn images_take_their_embeddings_wherever_chunks_end() {
    let (ids, images) = (prompt_with_two_images(), [image(2, 1), image(12, 2)]);
    let [_, row_break, end] = IMAGE;
    let expected = |name: f32| {
        let cell = |i: f32| Err(100.0 * name + i);
        [cell(0.0), cell(1.0), cell(2.0), Ok(row_break), cell(3.0), cell(4.0), cell(5.0), Ok(end)]
    };
    let expected =
        [&[Ok(1), Ok(2)][..], &expected(1.0), &[Ok(3), Ok(4)], &expected(2.0), &[Ok(5), Ok(6)]].concat();
    for chunk in 1..=ids.len() {
        let (mut engine, batches) = engine(8);
        engine.set_prefill_chunk(chunk);
        let mut sequence = Sequence::default();
        let tokens = Tokens { ids: &ids, images: &images };
        engine.extend(&mut sequence, tokens, Wanted::Last, &mut |_| true).expect("it fits");
        assert_eq!(inputs(&batches.lock().expect("no panic")), expected, "chunks of {chunk}");
    }
}

#[test]
fn another_image_of_the_same_size_is_run_from_its_first_token_on() {
    let ids = prompt_with_two_images();
    let (mut engine, batches) = engine(8);
    let mut sequence = Sequence::default();
    let mut cached = |images: &[ImageSpan]| {
        batches.lock().expect("no panic").clear();
        let prompt = Tokens { ids: &ids, images };
        let cached = answer(&mut engine, &mut sequence, prompt, 1, 99).expect("it fits").cached_tokens();
        let inputs = inputs(&batches.lock().expect("no panic"));
        assert_eq!(inputs.len(), ids.len() - cached);
        (cached, inputs.into_iter().find_map(Result::err))
    };
    assert_eq!(cached(&[image(2, 1), image(12, 2)]), (0, Some(100.0)));
    assert_eq!(cached(&[image(2, 1), image(12, 2)]), (ids.len() - 1, None));
    assert_eq!(cached(&[image(2, 1), image(12, 3)]), (12, Some(300.0)));
    assert_eq!(cached(&[image(2, 2), image(12, 3)]), (2, Some(200.0)));
}

#[test]
fn a_prompt_stopped_within_an_image_can_be_followed_by_one_with_another_image() {
    let ids = prompt_with_two_images();
    let (mut engine, batches) = engine(8);
    engine.set_prefill_chunk(5);
    let mut sequence = Sequence::default();
    let mut run = |name, stop_after| {
        let images = [image(2, name), image(12, 9)];
        let prompt = Tokens { ids: &ids, images: &images };
        answer(&mut engine, &mut sequence, prompt, 1, stop_after).expect("it fits")
    };
    assert_eq!(run(1, 0).finish_reason(), None);
    assert_eq!(
        batches.lock().expect("no panic").iter().map(Batch::len).sum::<usize>(),
        5,
        "stopped after three cells"
    );
    assert_eq!(run(2, 99).cached_tokens(), 2);
    let cells = inputs(&batches.lock().expect("no panic")[1..]).into_iter().filter_map(Result::err);
    assert_eq!(cells.take(2).collect::<Vec<_>>(), [200.0, 201.0]);
    batches.lock().expect("no panic").clear();
    assert_eq!(run(1, 0).cached_tokens(), 2);
    assert_eq!(run(1, 99).cached_tokens(), 7, "the image goes on where it was cut");
}

#[test]
fn images_that_do_not_fit_the_tokens_are_refused_before_any_work() {
    let ids = prompt_with_two_images();
    let (mut engine, batches) = engine(8);
    let mut sequence = Sequence::default();
    let mut refused = |images: &[ImageSpan]| {
        let prompt = Tokens { ids: &ids, images };
        answer(&mut engine, &mut sequence, prompt, 1, 99).expect_err("it does not fit").to_string()
    };
    let behind = refused(&[image(15, 1)]);
    assert_eq!(behind, "the image at token 15 ends at 23, behind the prompt of 22 tokens");
    let overlapping = refused(&[image(2, 1), image(9, 2)]);
    assert_eq!(overlapping, "the image at token 9 begins before token 10, the end of the image before it");
    assert!(batches.lock().expect("no panic").is_empty());
}

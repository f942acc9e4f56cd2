//! The engine of many requests on tiny models: what one request gets does not depend on the others, on the cache, on
//! preemption or on the length of steps.
mod engine_support;

use ember::device::{CacheOptions, DeviceOptions, KvType, LoadOptions, load};
use ember::engine::{
    BatchLimits, Batcher, EncodedImage, FinishReason, GenerateLimits, GenerateRequest, ImageSpan, Runner,
    Sink,
};
use ember::sampling::{SamplingParams, TokenLogprobs};
use ember_loaders::checkpoint::{Checkpoint, ModelConfig};
use ember_loaders::image::ImageGrid;
use ember_test_support::{fixture, random};
use engine_support::{Listener, request, run, submit};
use std::sync::Arc;

const FAMILIES: [&str; 6] = ["llama", "llama3-rope", "ministral3", "mistral-small", "qwen2", "qwen3-tied"];

fn runner(model: &str, entries: usize, kv_type: KvType) -> Box<dyn Runner> {
    let checkpoint = Checkpoint::open(fixture(format!("models/{model}/f32.gguf"))).expect("a fixture");
    let cache = CacheOptions { context_size: entries, kv_type };
    let options = LoadOptions { device: DeviceOptions::default(), cache };
    load(&checkpoint, &options, &mut |_| ()).expect("it loads").runner
}

fn batcher(model: &str, entries: usize, kv_type: KvType, running: usize) -> Batcher {
    let limits = BatchLimits { context: entries, running, queued: 1000 };
    Batcher::new(runner(model, entries, kv_type), limits).expect("limits")
}

/// The answer of an engine that has nothing else to do, and has never done anything.
fn alone(model: &str, kv_type: KvType, request: &GenerateRequest) -> Vec<u32> {
    let mut batcher = batcher(model, 512, kv_type, 1);
    let listener = submit(&mut batcher, request);
    run(&mut batcher);
    listener.tokens()
}

/// Prompts of different lengths, two of them with a common beginning of more than two blocks.
fn prompts(vocab: u32) -> Vec<Vec<u32>> {
    let token = |i: u32, j: u32| (i * 31 + j * j * 7 + j) % vocab;
    let mut prompts: Vec<Vec<u32>> = [3, 40, 1, 17, 90]
        .into_iter()
        .enumerate()
        .map(|(i, n)| (0..n).map(|j| token(i as u32, j)).collect())
        .collect();
    let mut related = prompts[4].clone();
    related.truncate(70);
    related.extend([5, 6, 7]);
    prompts.push(related);
    prompts
}

fn config(model: &str) -> ModelConfig {
    let checkpoint = Checkpoint::open(fixture(format!("models/{model}/f32.gguf"))).expect("a fixture");
    checkpoint.config().clone()
}

fn vocab(model: &str) -> u32 {
    config(model).vocab_size as u32
}

#[test]
fn a_batch_gives_what_each_request_gets_alone() {
    for model in FAMILIES {
        let head_dim = config(model).head_dim;
        for kv_type in [KvType::F32, KvType::F16, KvType::Q8_0] {
            // A block of q8_0 has 32 elements of one head.
            if kv_type == KvType::Q8_0 && !head_dim.is_multiple_of(32) {
                continue;
            }
            let requests: Vec<_> = prompts(vocab(model)).iter().map(|prompt| request(prompt, 12)).collect();
            let mut together = batcher(model, 2048, kv_type, 16);
            let listeners: Vec<_> = requests.iter().map(|request| submit(&mut together, request)).collect();
            run(&mut together);
            for (request, listener) in requests.iter().zip(&listeners) {
                assert_eq!(listener.tokens(), alone(model, kv_type, request), "{model}, {kv_type}");
                assert_eq!(listener.finished().reason, FinishReason::MaxTokens);
            }
        }
    }
}

#[test]
fn a_warm_cache_gives_what_a_cold_one_does() {
    for model in FAMILIES {
        let mut warm = batcher(model, 2048, KvType::F16, 4);
        for (i, prompt) in prompts(vocab(model)).iter().enumerate() {
            let request = request(prompt, 8);
            let first = submit(&mut warm, &request);
            run(&mut warm);
            let second = submit(&mut warm, &request);
            run(&mut warm);
            assert_eq!(first.tokens(), second.tokens(), "{model}, prompt {i}");
            assert_eq!(first.tokens(), alone(model, KvType::F16, &request), "{model}, prompt {i}");
            let block_len = warm.runner().block_len();
            assert_eq!(second.finished().cached_tokens, (prompt.len() - 1) / block_len * block_len);
        }
    }
}

#[test]
fn preempted_requests_give_what_undisturbed_ones_do() {
    let model = "qwen3-tied";
    let block_len = batcher(model, 512, KvType::F32, 1).runner().block_len();
    let requests: Vec<_> = (0..4).map(|i| request(&[i, 7, 9, 1 + i], 3 * block_len)).collect();
    // Six blocks for four sequences that grow to four each.
    let mut small = batcher(model, 6 * block_len, KvType::F32, 4);
    let listeners: Vec<_> = requests.iter().map(|request| submit(&mut small, request)).collect();
    run(&mut small);
    assert!(small.metrics().preemptions > 0, "there was too little room");
    for (request, listener) in requests.iter().zip(&listeners) {
        assert_eq!(listener.tokens(), alone(model, KvType::F32, request));
    }
}

#[test]
fn a_seed_gives_its_text_whatever_else_is_in_the_batch() {
    let model = "ministral3";
    let sampled = |i: u32, seed| GenerateRequest {
        sampling: SamplingParams {
            temperature: 1.5,
            top_k: if i.is_multiple_of(2) { 20 } else { 0 },
            presence_penalty: if i.is_multiple_of(3) { 0.5 } else { 0.0 },
            seed: Some(seed),
            ..SamplingParams::default()
        },
        ..request(&[i, 2, 3, 4], 10)
    };
    let requests: Vec<_> = (0..6).map(|i| sampled(i, u64::from(i) + 40)).collect();
    let mut together = batcher(model, 1024, KvType::F16, 8);
    let listeners: Vec<_> = requests.iter().map(|request| submit(&mut together, request)).collect();
    run(&mut together);
    let texts: Vec<_> = listeners.iter().map(Listener::tokens).collect();
    for (request, tokens) in requests.iter().zip(&texts) {
        assert_eq!(*tokens, alone(model, KvType::F16, request));
    }
    assert_ne!(texts[1], alone(model, KvType::F16, &sampled(1, 99)), "another seed gives another text");
}

#[test]
fn several_continuations_share_their_prompt() {
    let model = "qwen3-tied";
    let prompt: Vec<u32> = (0..70).map(|i| i % 50).collect();
    let sampling = SamplingParams { temperature: 1.0, seed: Some(5), ..SamplingParams::default() };
    let request = GenerateRequest { sampling: sampling.clone(), ..request(&prompt, 6) };
    let mut batcher = batcher(model, 1024, KvType::F16, 8);
    let listeners: Vec<Listener> = (0..3).map(|_| Listener::default()).collect();
    batcher.submit(&request, listeners.iter().map(|l| Box::new(l.clone()) as Box<dyn Sink>).collect());
    run(&mut batcher);
    let block_len = batcher.runner().block_len();
    for (i, listener) in listeners.iter().enumerate() {
        let seed = Some(5 + i as u64);
        let own =
            GenerateRequest { sampling: SamplingParams { seed, ..sampling.clone() }, ..request.clone() };
        assert_eq!(listener.tokens(), alone(model, KvType::F16, &own), "continuation {i}");
        let shared = if i == 0 { 0 } else { 69 / block_len * block_len };
        assert_eq!(listener.finished().cached_tokens, shared, "continuation {i}");
    }
}

#[test]
fn log_probabilities_are_those_of_the_logits() {
    let model = "llama";
    let prompt = [3, 1, 4, 1, 5, 9, 2, 6];
    let wanted = GenerateRequest { logprobs: Some(2), prompt_logprobs: Some(1), ..request(&prompt, 3) };
    let mut batcher = batcher(model, 256, KvType::F32, 2);
    // What is cached does not matter.
    submit(&mut batcher, &request(&prompt, 3));
    run(&mut batcher);
    let listener = submit(&mut batcher, &wanted);
    run(&mut batcher);
    let heard = listener.heard();
    assert_eq!(heard.prompt.iter().map(|report| report.token).collect::<Vec<_>>(), prompt[1..]);
    assert_eq!(heard.logprobs.iter().map(|report| report.token).collect::<Vec<_>>(), heard.tokens);
    for report in &heard.logprobs {
        assert_eq!(report.likeliest.len(), 2);
        assert_eq!(report.likeliest[0], (report.token, report.logprob), "greedy takes the likeliest");
    }
    // The generated tokens as a prompt have the same log-probabilities.
    let whole: Vec<u32> = prompt.iter().chain(&heard.tokens).copied().collect();
    let again = GenerateRequest { prompt_logprobs: Some(1), ..request(&whole, 0) };
    let second = submit(&mut batcher, &again);
    run(&mut batcher);
    assert_eq!(second.finished().reason, FinishReason::MaxTokens);
    let second = second.heard();
    assert!(second.tokens.is_empty());
    let (of_prompt, of_answer) = second.prompt.split_at(prompt.len() - 1);
    let values = |reports: &[TokenLogprobs]| reports.iter().map(|r| r.logprob).collect::<Vec<_>>();
    assert_eq!(values(of_prompt), values(&heard.prompt));
    assert_eq!(values(of_answer), values(&heard.logprobs));
}

#[test]
fn ends_are_banned_until_the_least_number_of_tokens() {
    let model = "qwen3-tied";
    let free = alone(model, KvType::F16, &request(&[1, 2, 3], 1));
    let end_tokens = vec![free[0]];
    let limits = GenerateLimits { max_tokens: Some(5), end_tokens, ..GenerateLimits::default() };
    let with = |min_tokens| GenerateRequest { limits: limits.clone(), min_tokens, ..request(&[1, 2, 3], 5) };
    assert!(alone(model, KvType::F16, &with(0)).is_empty());
    let answer = alone(model, KvType::F16, &with(3));
    assert!(answer.len() >= 3 && !answer[..3].contains(&free[0]), "{answer:?}");
}

#[test]
fn a_continuation_that_nobody_waits_for_gives_its_blocks_back() {
    let mut batcher = batcher("qwen3-tied", 512, KvType::F16, 4);
    let (left, kept) =
        (submit(&mut batcher, &request(&[1; 40], 99)), submit(&mut batcher, &request(&[2; 40], 9)));
    for _ in 0..4 {
        assert!(batcher.step());
    }
    left.close();
    run(&mut batcher);
    assert!(left.heard().end.is_none(), "nobody is told");
    assert_eq!(kept.finished().generated_tokens, 9);
}

#[test]
fn what_cannot_be_run_is_refused_with_both_sizes() {
    let mut batcher = batcher("qwen3-tied", 64, KvType::F16, 4);
    let long = submit(&mut batcher, &request(&[1; 64], 1));
    assert_eq!(long.error(), "65 tokens do not fit into the context of 64");
    let empty = submit(&mut batcher, &request(&[], 1));
    assert_eq!(empty.error(), "the prompt is empty");
    let sampling = SamplingParams { temperature: -1.0, ..SamplingParams::default() };
    let insane = submit(&mut batcher, &GenerateRequest { sampling, ..request(&[1], 1) });
    assert!(insane.error().starts_with("temperature is -1"), "{}", insane.error());
    let image =
        EncodedImage { hash: [1; 32], grid: ImageGrid { rows: 1, cols: 1 }, embeddings: [0.0; 3].into() };
    let images = vec![ImageSpan { start: 0, image: Arc::new(image) }];
    let wrong = submit(&mut batcher, &GenerateRequest { images, ..request(&[1; 9], 1) });
    assert!(wrong.error().starts_with("the image at token 0"), "{}", wrong.error());
    assert!(!batcher.step(), "nothing is left of them");
}

#[test]
fn images_keep_their_answers_apart() {
    let model = "mistral-small";
    let hidden = config(model).hidden_size;
    let grid = ImageGrid { rows: 3, cols: 9 };
    let with_image = |seed: u64| {
        let embeddings = random(seed, grid.cells() * hidden).into();
        let image = EncodedImage { hash: [seed as u8; 32], grid, embeddings };
        let images = vec![ImageSpan { start: 2, image: Arc::new(image) }];
        GenerateRequest { images, ..request(&[1; 40], 6) }
    };
    let mut together = batcher(model, 1024, KvType::F16, 8);
    for requests in [[with_image(1), with_image(2)], [with_image(2), with_image(1)]] {
        let listeners = requests.each_ref().map(|request| submit(&mut together, request));
        run(&mut together);
        for (request, listener) in requests.iter().zip(&listeners) {
            assert_eq!(listener.tokens(), alone(model, KvType::F16, request));
        }
    }
    assert_ne!(alone(model, KvType::F16, &with_image(1)), alone(model, KvType::F16, &with_image(2)));
}

//! The sampling chain as a whole; values of the penalty and temperature tests from llama.cpp's tests/test-sampling.cpp.

use ember::sampling::{ResolvedSampling, Sampler, SamplingError, SamplingOptions, SamplingParams, Source};
use ember_loaders::gguf::Metadata;

/// The token after the answer so far, of no prompt.
fn sample(params: SamplingParams, logits: &[f32], generated: &[u32]) -> Result<u32, SamplingError> {
    sample_after(params, logits, &[], generated)
}

fn sample_after(
    params: SamplingParams,
    logits: &[f32],
    prompt: &[u32],
    generated: &[u32],
) -> Result<u32, SamplingError> {
    Sampler::new(params).unwrap().sample(&mut logits.to_vec(), prompt, generated)
}

/// Number of times that each token is drawn in 20000 tries after the answer so far.
fn frequencies(params: SamplingParams, probabilities: &[f32], generated: &[u32]) -> Vec<f64> {
    let mut sampler = Sampler::new(SamplingParams { seed: Some(7), ..params }).unwrap();
    let mut counts = vec![0.0; probabilities.len()];
    for _ in 0..20_000 {
        let mut logits: Vec<f32> = probabilities.iter().map(|p| p.ln()).collect();
        counts[sampler.sample(&mut logits, &[], generated).unwrap() as usize] += 1.0 / 20_000.0;
    }
    counts
}

fn assert_near(got: &[f64], expected: &[f64]) {
    let near = got.iter().zip(expected).all(|(g, e)| (g - e).abs() < 0.015);
    assert!(near && got.len() == expected.len(), "{got:?} instead of {expected:?}");
}

const WARM: SamplingParams = SamplingParams {
    temperature: 1.0,
    top_k: 0,
    top_p: 1.0,
    min_p: 0.0,
    typical_p: 1.0,
    repeat_penalty: 1.0,
    repeat_last_n: 64,
    presence_penalty: 0.0,
    frequency_penalty: 0.0,
    logit_bias: Vec::new(),
    seed: None,
};

#[test]
fn greedy_takes_the_lowest_of_equal_tokens() {
    assert_eq!(sample(SamplingParams::default(), &[1.0, 3.0, 3.0, -1.0], &[]), Ok(1));
    assert_eq!(sample(SamplingParams { top_k: 1, ..WARM }, &[1.0, 3.0, 3.0, -1.0], &[]), Ok(1));
}

#[test]
fn draws_follow_the_probabilities() {
    let four = [0.1, 0.2, 0.3, 0.4];
    assert_near(&frequencies(WARM, &four, &[]), &[0.1, 0.2, 0.3, 0.4]);
    assert_near(
        &frequencies(SamplingParams { top_k: 3, ..WARM }, &four, &[]),
        &[0.0, 0.22222, 0.33333, 0.44444],
    );
    assert_near(
        &frequencies(SamplingParams { top_p: 0.7, ..WARM }, &four, &[]),
        &[0.0, 0.0, 0.428571, 0.571429],
    );
    assert_near(
        &frequencies(SamplingParams { min_p: 0.49, ..WARM }, &four, &[]),
        &[0.0, 2.0 / 9.0, 3.0 / 9.0, 4.0 / 9.0],
    );
    // p^(1/T) at T = 0.5: squares over their sum.
    let squares = [1.0 / 30.0, 4.0 / 30.0, 9.0 / 30.0, 16.0 / 30.0];
    assert_near(&frequencies(SamplingParams { temperature: 0.5, ..WARM }, &four, &[]), &squares);
}

#[test]
fn penalties_count_recent_tokens() {
    let five = [0.2; 5];
    let repeat = SamplingParams { repeat_penalty: 50.0, ..WARM };
    assert_near(&frequencies(repeat.clone(), &five, &[0]), &[0.0, 0.25, 0.25, 0.25, 0.25]);
    assert_near(&frequencies(repeat, &five, &[0, 1, 2, 0, 0]), &[0.0, 0.0, 0.0, 0.5, 0.5]);
    // Equal logits ln 0.2, token 0 seen once: weight exp(-1 - 0.5) against 1.
    let additive = SamplingParams { presence_penalty: 1.0, frequency_penalty: 0.5, ..WARM };
    let (once, thrice) = ((-1.5_f64).exp(), (-2.5_f64).exp());
    let total = 3.0 + once + thrice;
    let expected = [once / total, thrice / total, 1.0 / total, 1.0 / total, 1.0 / total];
    assert_near(&frequencies(additive, &five, &[1, 0, 1, 1]), &expected);
}

#[test]
fn the_window_bounds_the_repeat_penalty() {
    let logits = [2.0, 1.9, 0.1];
    let penal =
        |repeat_last_n| SamplingParams { repeat_penalty: 2.0, repeat_last_n, ..SamplingParams::default() };
    // The last three tokens are 0, 2, 2, wherever the answer begins.
    for begin in 0..=3 {
        let (prompt, generated) = [0, 2, 2].split_at(begin);
        let sample = |repeat_last_n| sample_after(penal(repeat_last_n), &logits, prompt, generated);
        assert_eq!(sample(2), Ok(0), "token 0 is out of the window, {begin} tokens are the prompt's");
        assert_eq!(sample(3), Ok(1));
        assert_eq!(sample(-1), Ok(1));
        assert_eq!(sample(0), Ok(0));
    }
    let placeholder = sample_after(penal(-1), &logits, &[900_000], &[]);
    assert_eq!(placeholder, Ok(0), "a placeholder beyond the vocabulary has no logit");
}

/// OpenAI's definition: every token that the answer holds, however long ago, and no other.
#[test]
fn presence_and_frequency_penalties_count_the_answer_alone() {
    let logits = [2.0, 1.9, 0.0];
    for (presence_penalty, frequency_penalty) in [(1.0, 0.0), (0.0, 1.0)] {
        // The window is the repeat penalty's.
        let params = SamplingParams {
            presence_penalty,
            frequency_penalty,
            repeat_last_n: 1,
            ..SamplingParams::default()
        };
        let sample = |prompt: &[u32], generated: &[u32]| {
            sample_after(params.clone(), &logits, prompt, generated).unwrap()
        };
        assert_eq!(sample(&[0, 0, 0], &[]), 0, "tokens of the prompt are not punished");
        assert_eq!(sample(&[0, 0, 0], &[2]), 0);
        assert_eq!(sample(&[], &[0, 2, 2, 2]), 1, "nor are those of the answer forgotten");
        assert_eq!(sample(&[1], &[0]), 1);
    }
    // By the number of times: 2.0 - 2 * 0.04 < 1.95 < 2.0 - 0.04.
    let params = SamplingParams { frequency_penalty: 0.04, ..SamplingParams::default() };
    assert_eq!(sample_after(params.clone(), &[2.0, 1.95], &[0, 0], &[0]), Ok(0));
    assert_eq!(sample_after(params, &[2.0, 1.95], &[], &[0, 0]), Ok(1));
}

#[test]
fn a_bias_can_force_or_ban() {
    let bias = |token, bias| SamplingParams { logit_bias: vec![(token, bias)], ..SamplingParams::default() };
    assert_eq!(sample(bias(2, 100.0), &[1.0, 2.0, 0.0], &[]), Ok(2));
    assert_eq!(sample(bias(1, f32::NEG_INFINITY), &[1.0, 2.0, 0.0], &[]), Ok(0));
    assert_eq!(sample(bias(9, 1.0), &[1.0], &[]), Err(SamplingError::UnknownToken { token: 9, vocab: 1 }));
}

#[test]
fn broken_logits_are_errors() {
    for params in [SamplingParams::default(), WARM] {
        let nan = sample(params.clone(), &[0.0, f32::NAN], &[]);
        assert!(matches!(nan, Err(SamplingError::NotFinite { token: 1, .. })), "{nan:?}");
        let infinite = Err(SamplingError::NotFinite { token: 0, value: f32::INFINITY });
        assert_eq!(sample(params.clone(), &[f32::INFINITY, 0.0], &[]), infinite);
        let none = Err(SamplingError::NoCandidate);
        assert_eq!(sample(params.clone(), &[f32::NEG_INFINITY; 2], &[]), none);
        assert_eq!(sample(params, &[f32::NEG_INFINITY, -5.0], &[]), Ok(1));
    }
}

#[test]
fn the_same_seed_draws_the_same_tokens() {
    let draw = |seed| {
        let mut sampler = Sampler::new(SamplingParams { seed: Some(seed), ..WARM }).unwrap();
        (0..50).map(|_| sampler.sample(&mut [0.0; 1000], &[], &[]).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
    let chosen = Sampler::new(WARM).unwrap();
    assert_ne!(chosen.seed(), Sampler::new(WARM).unwrap().seed());
}

#[test]
fn insane_settings_are_named() {
    for (params, message) in [
        (SamplingParams { temperature: -0.5, ..WARM }, "temperature is -0.5: it must be 0 (greedy) or more"),
        (
            SamplingParams { temperature: f32::NAN, ..WARM },
            "temperature is NaN: it must be 0 (greedy) or more",
        ),
        (SamplingParams { top_p: 1.5, ..WARM }, "top_p is 1.5: it must be between 0 and 1"),
        (SamplingParams { min_p: -1.0, ..WARM }, "min_p is -1: it must be between 0 and 1"),
        (SamplingParams { typical_p: 2.0, ..WARM }, "typical_p is 2: it must be between 0 and 1"),
        (
            SamplingParams { repeat_penalty: 0.0, ..WARM },
            "repeat_penalty is 0: it must be more than 0 (1 is off)",
        ),
        (
            SamplingParams { repeat_last_n: -2, ..WARM },
            "repeat_last_n is -2: it must be -1 (all), 0 (none) or more",
        ),
    ] {
        assert_eq!(Sampler::new(params).unwrap_err().to_string(), message);
    }
}

#[test]
fn the_request_wins_over_the_file_and_the_file_over_greedy() {
    let mut metadata = Metadata::new("m.gguf");
    metadata.insert("general.sampling.temp", 0.6_f32);
    metadata.insert("general.sampling.top_k", 20_i32);
    let file = SamplingOptions::from_metadata(&metadata).unwrap();
    let request = SamplingOptions { top_k: Some(5), seed: Some(3), ..SamplingOptions::default() };
    let resolved = ResolvedSampling::new(&[(Source::Request, &request), (Source::File, &file)]).unwrap();
    assert_eq!((resolved.params.temperature, resolved.params.top_k, resolved.params.seed), (0.6, 5, Some(3)));
    assert_eq!(resolved.source("temperature"), Some(Source::File));
    assert_eq!(resolved.source("min_p"), Some(Source::Default));
    assert_eq!(resolved.to_string(), "temperature 0.6 (file), top_k 5 (request), seed 3");
    let greedy = ResolvedSampling::new(&[]).unwrap();
    assert_eq!(greedy.params, SamplingParams::default());
    assert_eq!(greedy.to_string(), "greedy (default)");
    metadata.insert("general.sampling.temp", "hot");
    assert!(SamplingOptions::from_metadata(&metadata).is_err());
}

#[test]
fn the_likeliest_tokens_decide_as_all_logits_do() {
    let logits: Vec<f32> = (0..500).map(|i| ((i * 7919) % 500) as f32 / 40.0).collect();
    let settings = [
        SamplingParams::default(),
        SamplingParams { top_k: 40, ..WARM },
        SamplingParams { top_k: 20, top_p: 0.9, min_p: 0.01, typical_p: 0.95, temperature: 0.7, ..WARM },
    ];
    for params in settings {
        let new = || Sampler::new(SamplingParams { seed: Some(5), ..params.clone() }).unwrap();
        let (mut full, mut few) = (new(), new());
        let k = few.likeliest_needed().expect("few tokens decide");
        let mut likeliest: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
        likeliest.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        likeliest.truncate(k);
        for _ in 0..200 {
            let expected = full.sample(&mut logits.clone(), &[], &[]);
            assert_eq!(few.sample_likeliest(&likeliest), expected, "{params:?}");
        }
    }
}

#[test]
fn all_logits_are_needed_where_any_token_may_win() {
    let needed = |params| Sampler::new(params).unwrap().likeliest_needed();
    let bias = vec![(3, 1.0)];
    assert_eq!(needed(SamplingParams::default()), Some(1));
    assert_eq!(needed(SamplingParams { top_k: 64, ..WARM }), Some(64));
    assert_eq!(needed(SamplingParams { top_k: 65, ..WARM }), None);
    assert_eq!(needed(WARM), None);
    assert_eq!(needed(SamplingParams { logit_bias: bias, ..SamplingParams::default() }), None);
    assert_eq!(needed(SamplingParams { presence_penalty: 0.1, ..SamplingParams::default() }), None);
}

#[test]
fn numbers_that_broke_down_are_refused_among_the_likeliest_too() {
    let mut greedy = Sampler::new(SamplingParams::default()).unwrap();
    let nan = greedy.sample_likeliest(&[(7, f32::NAN)]);
    assert!(matches!(nan, Err(SamplingError::NotFinite { token: 7, .. })), "{nan:?}");
    assert_eq!(greedy.sample_likeliest(&[(7, f32::NEG_INFINITY)]), Err(SamplingError::NoCandidate));
}

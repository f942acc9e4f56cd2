//! The end of an answer and its settings, on models whose every answer is known.
use ember::engine::MAX_REPEATED;
use ember::sampling::{SamplingOptions, Source};
use ember::{AnswerOptions, AnswerResult, Ending, Model, ModelFiles, ModelOptions};
use ember_loaders::checkpoint::Checkpoint;
use ember_loaders::gguf::Gguf;
use ember_test_support::Scripted;

const START: u32 = Scripted::WORD;

fn open(script: &Scripted) -> Model {
    let gguf = Gguf::from_bytes(script.gguf().into_bytes()).expect("a valid file");
    let checkpoint = Checkpoint::from_gguf(gguf).expect("a whole checkpoint");
    ModelFiles::of_checkpoint(checkpoint, ModelOptions::default()).expect("it fits").load().expect("a CPU")
}

/// The answer to the raw prompt `text`.
fn complete(model: &mut Model, text: &str, options: AnswerOptions) -> AnswerResult {
    let prompt = model.files().chat().expect("a tokenizer").raw_prompt(text.to_owned(), &[]).expect("text");
    let mut session = model.session(options).expect("valid settings");
    session.complete(&prompt, &[]).expect("it fits").finish().expect("a healthy model")
}

fn limited(max_tokens: usize) -> AnswerOptions {
    AnswerOptions { max_tokens: Some(max_tokens), ..AnswerOptions::default() }
}

fn sampling(sampling: SamplingOptions) -> AnswerOptions {
    AnswerOptions { sampling, ..AnswerOptions::default() }
}

/// After `a`, `lead` words, and then a cycle of `cycle` other words for ever.
fn cycle_of(cycle: u32, lead: u32) -> Scripted {
    let words: Vec<u32> = (START..START + lead + cycle).collect();
    let chain = [&[Scripted::byte(b'a')], &words[..], &[words[lead as usize]]].concat();
    Scripted::new("llama").walk(&chain)
}

#[test]
fn an_answer_ends_where_the_model_ends_it() {
    // Longer than any default limit used to be short.
    let words: Vec<u32> = (START..START + 130).collect();
    let chain = [&[Scripted::byte(b'a')], &words[..], &[Scripted::END]].concat();
    let mut model = open(&Scripted::new("llama").walk(&chain));
    let whole = complete(&mut model, "a", AnswerOptions::default());
    assert_eq!((whole.ending.clone(), whole.tokens), (Ending::EndOfGeneration, words.clone()));
    assert_eq!((whole.ending.finish_reason(), whole.ending.limit()), ("stop", None));
    let cut = complete(&mut model, "a", limited(129));
    assert_eq!((cut.ending.clone(), &cut.tokens[..]), (Ending::MaxTokens, &words[..129]));
    assert_eq!((cut.ending.finish_reason(), cut.ending.limit()), ("length", Some("max_tokens")));
    assert_eq!(complete(&mut model, "a", limited(131)).ending, Ending::EndOfGeneration);
}

#[test]
fn an_endless_answer_ends_with_the_context() {
    // No multiple of a block of the cache.
    let script = cycle_of(65, 0).set("context_length", 61_u32);
    for options in [AnswerOptions::default(), limited(5000)] {
        let result = complete(&mut open(&script), "a", options);
        // The prompt's token and 60 of the answer in the cache, and one that was only sampled.
        assert_eq!((result.ending.clone(), result.tokens.len()), (Ending::ContextFull, 61));
        assert_eq!((result.ending.finish_reason(), result.ending.limit()), ("length", Some("context")));
        assert_eq!(result.context_size, 61);
    }
}

#[test]
fn a_cycle_of_at_most_64_tokens_ends_an_answer_after_1024() {
    for (cycle, lead) in [(1, 0), (5, 3), (64, 10)] {
        let end = lead + MAX_REPEATED;
        let result = complete(&mut open(&cycle_of(cycle, lead as u32)), "a", AnswerOptions::default());
        let expected = Ending::Repetition { cycle: cycle as usize };
        assert_eq!((result.ending.clone(), result.tokens.len()), (expected, end), "{cycle}");
        assert_eq!((result.ending.finish_reason(), result.ending.limit()), ("repetition", None));
        assert_eq!(result.decode_steps, end - 1, "no step is run for a token that does not come");
    }
}

#[test]
fn other_answers_go_on() {
    let mut model = open(&cycle_of(64, 10));
    assert_eq!(complete(&mut model, "a", limited(10 + 1023)).ending, Ending::MaxTokens, "1023 are none");
    let options = AnswerOptions { no_loop_check: true, ..limited(1100) };
    assert_eq!(complete(&mut model, "a", options).ending, Ending::MaxTokens, "it is off");
    let long = complete(&mut open(&cycle_of(65, 0)), "a", limited(1500));
    assert_eq!(long.ending, Ending::MaxTokens, "a cycle of 65");
}

#[test]
fn each_answer_of_a_chat_is_watched_alone() {
    let template = "{% for m in messages %}{{ m.content }}{% endfor %}a";
    let mut model = open(&cycle_of(3, 0).template(template).set("context_length", 8192_u32));
    let mut session = model.session(limited(700)).expect("greedy");
    for _ in 0..2 {
        let result = session.say("a", &[]).expect("it fits").finish().expect("a healthy model");
        assert_eq!((result.ending, result.tokens.len()), (Ending::MaxTokens, 700));
    }
}

/// `x` follows everything, and `y` is a little less likely.
fn x_before_y() -> Scripted {
    let [a, x, y] = [b'a', b'x', b'y'].map(Scripted::byte);
    [a, x, y, Scripted::CLOSE_THINK]
        .into_iter()
        .fold(Scripted::new("llama"), |script, from| script.logit(from, x, 2.0).logit(from, y, 1.0))
}

#[test]
fn presence_and_frequency_penalties_see_the_answer_and_the_repeat_penalty_the_prompt_too() {
    let mut model = open(&x_before_y());
    let mut text = |prompt, options| {
        complete(&mut model, prompt, AnswerOptions { sampling: options, ..limited(3) }).text
    };
    let none = SamplingOptions::default();
    assert_eq!(text("xxxa", none.clone()), "xxx");
    // x at 2.0, then at 2.0 - 1.5, then y at 1.0 - 1.5 below it.
    let presence = SamplingOptions { presence_penalty: Some(1.5), ..none.clone() };
    assert_eq!(text("xxxa", presence), "xyx");
    // 2.0, 1.3, then 0.6 below y's 1.0.
    let frequency = SamplingOptions { frequency_penalty: Some(0.7), ..none.clone() };
    assert_eq!(text("xxxa", frequency), "xxy");
    // 2.0 / 3 from the prompt on, below 1.0; then both are below, x ahead.
    let repeat = SamplingOptions { repeat_penalty: Some(3.0), ..none.clone() };
    assert_eq!(text("xxxa", repeat.clone()), "yxx");
    assert_eq!(text("xaaa", SamplingOptions { repeat_last_n: Some(3), ..repeat }), "xyx");
}

#[test]
fn a_chat_begins_each_answer_without_presence_penalties() {
    let template = "{% for m in messages %}{{ m.content }}{% endfor %}a";
    let mut model = open(&x_before_y().template(template));
    let options = SamplingOptions { presence_penalty: Some(1.5), ..SamplingOptions::default() };
    let mut session =
        model.session(AnswerOptions { sampling: options, ..limited(2) }).expect("valid settings");
    for _ in 0..3 {
        let result = session.say("x", &[]).expect("it fits").finish().expect("a healthy model");
        assert_eq!(result.text, "xy");
    }
}

#[test]
fn reasoning_counts_for_the_presence_penalty() {
    let [a, x] = [b'a', b'x'].map(Scripted::byte);
    // `<think>x</think>`, and then x again, were it not for the penalty.
    let script = x_before_y().logit(a, Scripted::OPEN_THINK, 9.0).logit(Scripted::OPEN_THINK, x, 9.0).logit(
        x,
        Scripted::CLOSE_THINK,
        5.0,
    );
    let template = "{# <think></think> #}{% for m in messages %}{{ m.content }}{% endfor %}a";
    let mut model = open(&script.template(template));
    for (penalty, expected) in [(0.0, "x"), (1.5, "y")] {
        let sampling = SamplingOptions { presence_penalty: Some(penalty), ..SamplingOptions::default() };
        let mut session = model.session(AnswerOptions { sampling, ..limited(4) }).expect("valid settings");
        let result = session.say("x", &[]).expect("it fits").finish().expect("a healthy model");
        assert_eq!((&*result.reasoning, &*result.text), ("x", expected));
    }
}

const QWEN3_TEMPLATE: &str = include_str!("fixtures/chat/templates/Qwen-Qwen3-0.6B.jinja");

/// A Qwen3 that ends every answer at once.
fn qwen3() -> Scripted {
    let newline = Scripted::byte(b'\n');
    Scripted::new("qwen3").template(QWEN3_TEMPLATE).logit(newline, Scripted::END, 100.0)
}

/// The sampling settings of an answer to `hi`, in words.
fn sampling_of(model: &mut Model, options: AnswerOptions, think: Option<bool>) -> String {
    let mut session = model.session(options).expect("valid settings");
    session.set_think(think).expect("Qwen3's template has a switch");
    let announced = session.sampling();
    let result = session.say("hi", &[]).expect("it fits").finish().expect("a healthy model");
    assert_eq!(result.sampling, announced);
    result.sampling.to_string()
}

#[test]
fn qwen3_answers_with_the_settings_of_its_card() {
    let mut model = open(&qwen3());
    let seed = SamplingOptions { seed: Some(7), ..SamplingOptions::default() };
    let thinking = "temperature 0.6 (card), top_k 20 (card), top_p 0.95 (card), min_p 0 (card), seed 7";
    let plain = "temperature 0.7 (card), top_k 20 (card), top_p 0.8 (card), min_p 0 (card), seed 7";
    assert_eq!(sampling_of(&mut model, sampling(seed.clone()), None), thinking);
    assert_eq!(sampling_of(&mut model, sampling(seed.clone()), Some(true)), thinking);
    assert_eq!(sampling_of(&mut model, sampling(seed.clone()), Some(false)), plain);
    // The caller's settings win one by one, greedy decoding among them.
    let top_p = SamplingOptions { top_p: Some(0.5), ..seed };
    assert_eq!(
        sampling_of(&mut model, sampling(top_p), None),
        "temperature 0.6 (card), top_k 20 (card), top_p 0.5 (request), min_p 0 (card), seed 7"
    );
    let greedy = SamplingOptions { temperature: Some(0.0), ..SamplingOptions::default() };
    assert_eq!(sampling_of(&mut model, sampling(greedy), None), "greedy (request)");
    // A prompt of one's own is no matter of the card's, nor is a model that does not think.
    let raw = complete(&mut model, "hi\n", AnswerOptions::default());
    assert_eq!(raw.sampling.to_string(), "greedy (default)");
    let mut plain = open(&qwen3().template("{{ messages[0].content }}\n"));
    let mut session = plain.session(AnswerOptions::default()).expect("greedy");
    let result = session.say("hi", &[]).expect("it fits").finish().expect("a healthy model");
    assert_eq!(result.sampling.to_string(), "greedy (default)");
    let mut llama = open(&Scripted::new("llama").template(QWEN3_TEMPLATE).walk(&[Scripted::byte(b'\n'), 2]));
    assert_eq!(sampling_of(&mut llama, AnswerOptions::default(), None), "greedy (default)");
}

#[test]
fn the_file_wins_over_the_card() {
    let script =
        qwen3().key("general.sampling.temp", 1.5_f32).key("general.sampling.penalty_repeat", 1.25_f32);
    let seed = SamplingOptions { seed: Some(7), ..SamplingOptions::default() };
    assert_eq!(
        sampling_of(&mut open(&script), sampling(seed), None),
        "temperature 1.5 (file), top_k 20 (card), top_p 0.95 (card), min_p 0 (card), repeat_penalty 1.25 \
         (file), seed 7"
    );
    let wrong = qwen3().key("general.sampling.top_p", 1.5_f32);
    let error = open(&wrong).session(AnswerOptions::default()).map(drop).expect_err("out of range");
    assert!(error.to_string().ends_with("top_p is 1.5: it must be between 0 and 1"), "{error}");
    let mine = SamplingOptions { top_p: Some(0.9), ..SamplingOptions::default() };
    assert!(open(&wrong).session(sampling(mine)).is_ok(), "it is not in force");
}

#[test]
fn the_seed_that_was_chosen_gives_the_same_answer_again() {
    let [a, x, y] = [b'a', b'x', b'y'].map(Scripted::byte);
    let script = [a, x, y]
        .into_iter()
        .fold(Scripted::new("llama"), |script, from| script.logit(from, x, 9.0).logit(from, y, 9.0));
    let mut model = open(&script);
    let warm = |seed| SamplingOptions { temperature: Some(1.0), seed, ..SamplingOptions::default() };
    let mut answer = |seed| complete(&mut model, "a", AnswerOptions { sampling: warm(seed), ..limited(64) });
    let first = answer(None);
    let seed = first.sampling.params.seed.expect("the one that was used");
    assert_eq!(first.sampling.source("temperature"), Some(Source::Request));
    assert_eq!(answer(Some(seed)).tokens, first.tokens);
    let other = answer(None);
    assert_ne!((other.sampling.params.seed, &other.tokens), (Some(seed), &first.tokens));
    assert!(seed < 1 << 53, "JSON's readers hold it exactly");
}

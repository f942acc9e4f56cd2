//! The library as its users call it: a model, a session, answers.
mod vision_support;

use ember::sampling::SamplingOptions;
use ember::{AnswerOptions, Ending, Error, Message, Model, ModelOptions, Progress, Reporter};
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::path::Path;
use std::rc::Rc;

fn fixture(path: &str) -> String {
    format!("{}/tests/fixtures/models/{path}", env!("CARGO_MANIFEST_DIR"))
}

fn open(path: &str) -> Model {
    Model::open(fixture(path), ModelOptions::default()).expect("a committed fixture")
}

fn limited(max_tokens: usize) -> AnswerOptions {
    AnswerOptions { max_tokens: Some(max_tokens), ..AnswerOptions::default() }
}

#[test]
fn pieces_add_up_to_the_answer() {
    let mut model = open("qwen2/f32.gguf");
    let mut session = model.session(limited(12)).expect("greedy");
    let mut answer = session.say("hello there", &[]).expect("it fits");
    let mut text = String::new();
    for piece in &mut answer {
        text.push_str(&piece.expect("a healthy model").content);
    }
    let result = answer.finish().expect("it has ended");
    assert_eq!(result.text, text);
    assert_eq!((result.ending.clone(), result.tokens.len()), (Ending::MaxTokens, 12));
    assert_eq!((result.cached_tokens, result.prefilled_tokens), (0, result.prompt_tokens));
    assert_eq!(result.decode_steps, 11);
    // The same without looking at the pieces.
    let mut fresh = open("qwen2/f32.gguf");
    let again =
        fresh.session(limited(12)).expect("greedy").say("hello there", &[]).expect("it fits").finish();
    assert_eq!(again.expect("a healthy model").text, text);
}

#[test]
fn a_second_turn_continues_the_first_from_the_cache() {
    let mut model = open("qwen2/f32.gguf");
    let mut session = model.session(limited(4)).expect("greedy");
    let first = session.say("one", &[]).expect("it fits").finish().expect("a healthy model");
    let second = session.say("two", &[]).expect("it fits").finish().expect("a healthy model");
    assert!(second.cached_tokens >= first.prompt_tokens, "{} cached", second.cached_tokens);
    let roles: Vec<String> = session.messages().into_iter().map(|message| message.role).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant"]);
    // The last answer again: greedy, so the same, and in place of the old one.
    let again = session.regenerate().expect("it fits").finish().expect("a healthy model");
    assert_eq!((again.text, session.messages().len()), (second.text, 4));
    session.reset();
    assert!(matches!(session.regenerate(), Err(Error::NoAnswerYet)));
}

#[test]
fn an_answer_that_is_dropped_or_refused_leaves_the_conversation_as_it_was() {
    let mut model = open("qwen2/f32.gguf");
    let mut session = model.session(limited(6)).expect("greedy");
    session.say("one", &[]).expect("it fits").finish().expect("a healthy model");
    let before = session.messages();
    let mut dropped = session.say("two", &[]).expect("it fits");
    dropped.next().expect("a first piece").expect("a healthy model");
    drop(dropped);
    assert_eq!(session.messages(), before);
    drop(session.regenerate().expect("there is an answer"));
    assert_eq!(session.messages(), before);
    let long = "word ".repeat(9000);
    let refused = session.say(long, &[]).map(|_| ()).expect_err("longer than the context");
    assert!(matches!(refused, Error::PromptTooLong { context: 4096, .. }), "{refused}");
    assert!(!refused.to_string().contains("--"), "{refused}");
    assert_eq!(session.messages(), before);
}

#[test]
fn an_answer_can_be_stopped_and_stays_in_the_conversation() {
    let mut model = open("qwen2/f32.gguf");
    let mut session = model.session(limited(50)).expect("greedy");
    let mut answer = session.say("one", &[]).expect("it fits");
    answer.next().expect("a first piece").expect("a healthy model");
    answer.next().expect("a second piece").expect("a healthy model");
    answer.stop();
    let result = answer.finish().expect("a healthy model");
    assert_eq!((result.ending, result.tokens.len()), (Ending::Cancelled, 2));
    assert_eq!(session.messages().len(), 2);
}

#[test]
fn progress_is_reported_and_can_stop_the_prompt() {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let stop = Rc::new(RefCell::new(false));
    let progress = {
        let (seen, stop) = (seen.clone(), stop.clone());
        Reporter::new(Box::new(move |progress| {
            seen.borrow_mut().push(progress);
            if *stop.borrow() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }))
    };
    let options = ModelOptions { progress, ..ModelOptions::default() };
    let mut model = Model::open(fixture("qwen2/f32.gguf"), options).expect("a committed fixture");
    let loaded = seen.borrow().iter().rev().find_map(|progress| match *progress {
        Progress::LoadingModel { done, total } => Some((done, total)),
        _ => None,
    });
    let (done, total) = loaded.expect("loading is reported");
    assert_eq!(done, total);
    assert_eq!(seen.borrow().last(), Some(&Progress::Done));
    model.engine().set_prefill_chunk(4);
    let mut session = model.session(limited(4)).expect("greedy");
    *stop.borrow_mut() = true;
    let result = session.say("one two three", &[]).expect("it fits").finish().expect("a healthy model");
    assert_eq!((result.ending, result.prefilled_tokens), (Ending::Cancelled, 4));
    assert!(session.messages().is_empty(), "nothing was said");
}

#[test]
fn settings_go_from_the_caller_to_the_file_to_the_default() {
    let mut model = open("qwen2/f32.gguf");
    let sampling = SamplingOptions { temperature: Some(0.5), seed: Some(7), ..SamplingOptions::default() };
    let mut session =
        model.session(AnswerOptions { sampling, ..limited(3) }).expect("settings within their ranges");
    let result = session.say("one", &[]).expect("it fits").finish().expect("a healthy model");
    assert_eq!(result.sampling.to_string(), "temperature 0.5 (request), seed 7");
    assert_eq!((result.sampling.params.top_k, result.max_tokens), (0, Some(3)));
    let wrong = SamplingOptions { temperature: Some(-1.0), ..SamplingOptions::default() };
    let error = session.set_options(AnswerOptions { sampling: wrong, ..AnswerOptions::default() });
    assert!(matches!(error, Err(Error::Setting(_))));
}

#[test]
fn a_tool_result_is_a_message_of_the_conversation() {
    let mut model = open("qwen2/f32.gguf");
    let mut session = model.session(limited(2)).expect("greedy");
    session.system = Some("Be brief.".to_owned());
    let tool = Message::text("tool", "21 degrees");
    session.say("How warm is it?", &[]).expect("it fits").finish().expect("a healthy model");
    session.send(tool, &[]).expect("it fits").finish().expect("a healthy model");
    let roles: Vec<String> = session.messages().into_iter().map(|message| message.role).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "assistant"]);
}

#[test]
fn several_sessions_in_turn_use_all_of_the_cache() {
    let options = ModelOptions { context_size: Some(64), ..ModelOptions::default() };
    let mut model = Model::open(fixture("qwen2/f32.gguf"), options).expect("a committed fixture");
    for _ in 0..4 {
        let mut session = model.session(limited(8)).expect("greedy");
        let result = session.say("one", &[]).expect("it fits").finish().expect("a healthy model");
        assert_eq!((result.cached_tokens, result.tokens.len()), (0, 8));
    }
}

#[test]
fn images_that_a_prompt_has_no_place_for_are_refused() {
    let folder = vision_support::folder("library");
    let mut model =
        Model::open(vision_support::with_template(&folder), ModelOptions::default()).expect("a model");
    let picture = vision_support::image(&folder, "a.bmp", (2, 3), 1);
    let image = model.vision().expect("a projector beside it").read(Path::new(&picture)).expect("a picture");
    let prompt =
        model.files().chat().expect("a tokenizer").raw_prompt("hi".to_owned(), &[]).expect("plain text");
    let mut session = model.session(limited(2)).expect("greedy");
    let error =
        session.complete(&prompt, std::slice::from_ref(&image)).map(drop).expect_err("no place for it");
    assert_eq!(error.to_string(), "1 image given for 0 places ([IMG]) in the prompt");
    let answer = session.say("What is this?", &[image]).expect("it fits").finish().expect("a healthy model");
    assert_eq!(answer.image_tokens, [2 * 4]);
}

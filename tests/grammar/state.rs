//! The state of an answer: end tokens, thoughts, characters in several tokens, clones, other threads.

use super::{
    GrammarMatcher, GrammarStart, TOKENIZER, VOCABULARY, Verdict, byte_ids, choices, follow, grammar, id,
    ids, lark, regex, schema,
};
use ember::grammar::{GrammarError, GrammarSpec, MaskWorkers};
use ember::sampling::{Sampler, SamplingParams, TokenMask};
use serde_json::json;

const THOUGHT: &str = "Hmm, <|im_start|> {\"a\": <think> 1 2 3";

fn is_text(token: u32) -> bool {
    !TOKENIZER.is_control(token) && TOKENIZER.token_bytes(token).is_some_and(|bytes| !bytes.is_empty())
}

#[test]
fn every_end_token_ends_a_grammar_that_is_met_and_none_another() {
    let grammar = grammar(regex("[0-9]{1,2}"));
    for &end in TOKENIZER.eog() {
        let mut matcher = grammar.matcher(GrammarStart::Now);
        assert!(!matcher.mask().unwrap().allows(end) && !matcher.may_end());
        assert_eq!(matcher.clone().accept(end), Err(GrammarError::NotAllowed { token: end }));
        matcher.accept_all(&ids("1")).unwrap();
        assert!(matcher.mask().unwrap().allows(end) && matcher.may_end() && !matcher.is_finished());
        let mut longer = matcher.clone();
        matcher.accept(end).unwrap();
        assert!(matcher.is_finished() && matcher.may_end());
        // Behind two digits only an end token can follow: the answer is complete without one.
        longer.accept_all(&ids("2")).unwrap();
        assert!(longer.is_finished() && longer.may_end());
        for mut finished in [matcher, longer] {
            assert_eq!(finished.mask().unwrap().tokens().collect::<Vec<_>>(), TOKENIZER.eog());
            assert_eq!(finished.clone().accept(end), Ok(()));
            let token = ids("3")[0];
            assert_eq!(finished.accept(token), Err(GrammarError::NotAllowed { token }));
            assert_eq!(finished.mask(), Err(GrammarError::NotAllowed { token }), "the first error stays");
        }
    }
}

#[test]
fn control_tokens_are_no_text() {
    for spec in [regex("(?s:.)*"), schema(json!({"type": "string"})), lark("start: /(?s:.*)/")] {
        let mut matcher = grammar(spec.clone()).matcher(GrammarStart::Now);
        matcher.accept_all(&ids("\"a")).unwrap();
        let mask = matcher.mask().unwrap();
        for token in (0..TOKENIZER.vocab_size() as u32).filter(|token| !TOKENIZER.is_eog(*token)) {
            assert!(!mask.allows(token) || is_text(token), "{spec:?}: token {token}");
        }
        assert!(mask.allows(id("<think>")), "a user-defined token is text");
    }
}

#[test]
fn a_lark_grammar_may_name_control_tokens() {
    let turn = grammar(lark(&format!("start: <|im_start|> /[a-z]+/ <[{}]>", id("<|box_end|>"))));
    let mut matcher = turn.matcher(GrammarStart::Now);
    assert_eq!(matcher.mask().unwrap().tokens().collect::<Vec<_>>(), [id("<|im_start|>")]);
    let tokens = [vec![id("<|im_start|>")], ids("user"), vec![id("<|box_end|>")]].concat();
    assert_eq!(follow(&mut matcher, &tokens), Verdict::Met);
}

#[test]
fn the_grammar_begins_behind_the_thought() {
    let (open, close) = (id("<think>"), id("</think>"));
    let grammar = grammar(schema(json!({"type": "object", "maxProperties": 0})));
    let mut matcher = grammar.matcher(GrammarStart::InThought { close });
    for token in ids(THOUGHT) {
        let mask = matcher.mask().unwrap();
        assert_eq!(mask.count(), TOKENIZER.vocab_size() - TOKENIZER.eog().len());
        assert!(matcher.in_thought() && !matcher.may_end() && !matcher.is_finished());
        matcher.accept(token).unwrap();
    }
    for &end in TOKENIZER.eog() {
        assert_eq!(matcher.clone().accept(end), Err(GrammarError::NotAllowed { token: end }));
    }
    matcher.accept(close).unwrap();
    assert!(!matcher.in_thought());
    assert_eq!(follow(&mut matcher, &ids("{}")), Verdict::Met);
    assert!(matcher.clone().accept(close).is_err());

    // The answer may open the thought itself, or do without.
    let before = || grammar.matcher(GrammarStart::BeforeThought { open, close });
    assert!(before().mask().unwrap().allows(open) && !before().mask().unwrap().allows(close));
    assert_eq!(follow(&mut before(), &ids("Hm")), Verdict::Stops("Hm".into()));
    assert_eq!(follow(&mut before(), &ids("{}")), Verdict::Met);
    let thought = [&[open], &ids(THOUGHT)[..], &[close], &ids("{}")].concat();
    assert_eq!(follow(&mut before(), &thought), Verdict::Met);
    let mut without = before();
    without.accept_all(&ids("{")).unwrap();
    assert!(!without.mask().unwrap().allows(open), "only as the first token");
}

#[test]
fn characters_in_several_tokens_are_whole() {
    let face = grammar(choices(&["é😀"]));
    let tokens = byte_ids("é😀");
    let mut matcher = face.matcher(GrammarStart::Now);
    for (at, &token) in tokens.iter().enumerate() {
        let mask = matcher.mask().unwrap();
        let bytes = "é😀".as_bytes();
        let right = |id: &u32| bytes[at..].starts_with(TOKENIZER.token_bytes(*id).unwrap()) && is_text(*id);
        let expected: Vec<u32> = (0..TOKENIZER.vocab_size() as u32).filter(right).collect();
        assert_eq!(mask.tokens().collect::<Vec<_>>(), expected, "byte {at}");
        assert!(expected.contains(&token) && !matcher.may_end());
        matcher.accept(token).unwrap();
    }
    assert!(matcher.is_finished());

    let any = grammar(regex(".{2}"));
    let mut matcher = any.matcher(GrammarStart::Now);
    let euro = byte_ids("€");
    assert_eq!(follow(&mut matcher, &euro[..2]), Verdict::Begun);
    let quote = ids("\"");
    assert_eq!(follow(&mut matcher.clone(), &quote), Verdict::Stops("\"".into()), "inside a character");
    assert_eq!(follow(&mut matcher, &euro[2..]), Verdict::Begun);
    assert_eq!(follow(&mut matcher, &quote), Verdict::Met);
}

/// The masks of every step of an answer, the first one included.
fn masks(mut matcher: GrammarMatcher, tokens: &[u32]) -> Vec<TokenMask> {
    let mut masks = vec![matcher.mask().unwrap()];
    masks.extend(tokens.iter().map(|&token| {
        matcher.accept(token).unwrap();
        matcher.mask().unwrap()
    }));
    masks
}

#[test]
fn clones_and_replays_are_equal() {
    let close = id("</think>");
    let start = GrammarStart::InThought { close };
    let grammar = grammar(GrammarSpec::JsonObject);
    let text = "{\"a\": [1, {\"b\": \"é\\\"😀\"}], \"c\": null}";
    let tokens = [&ids("Hm")[..], &[close], &ids(text)].concat();
    let expected = masks(grammar.matcher(start), &tokens);
    for cut in 0..=tokens.len() {
        let mut first = grammar.matcher(start);
        first.accept_all(&tokens[..cut]).unwrap();
        let second = first.clone();
        // What one does, even a fault, is nothing to the other.
        assert!(first.accept(u32::MAX).is_err());
        assert_eq!(masks(second, &tokens[cut..]), expected[cut..], "cut at {cut}");
    }
}

#[test]
fn workers_make_the_same_masks() {
    let specs =
        [GrammarSpec::JsonObject, regex("\\{\"[a-z]\": [0-9 ,\\[\\]]+\\}"), choices(&["{\"a\": [1, 2]}"])];
    let tokens = ids("{\"a\": [1, 2]}");
    let grammars: Vec<_> = specs.into_iter().map(grammar).collect();
    for threads in [1, 3] {
        let workers = MaskWorkers::new(threads).unwrap();
        let mut matchers: Vec<_> = (0..12).map(|i| grammars[i % 3].matcher(GrammarStart::Now)).collect();
        let expected: Vec<_> = matchers.iter().map(|matcher| masks(matcher.clone(), &tokens)).collect();
        for (step, token) in tokens.iter().map(Some).chain([None]).enumerate() {
            let pending: Vec<_> = matchers.drain(..).map(|matcher| workers.mask(matcher)).collect();
            for (request, mask) in pending.into_iter().enumerate() {
                let (mut matcher, mask) = mask.wait().unwrap();
                assert_eq!(mask, expected[request][step], "request {request}, step {step}");
                if let Some(token) = token {
                    matcher.accept(*token).unwrap();
                }
                matchers.push(matcher);
            }
        }
        // A request that is cancelled leaves its mask.
        drop(workers.mask(matchers.remove(0)));
        let mut failed = matchers.remove(0);
        let error = failed.accept(u32::MAX).unwrap_err();
        assert_eq!(workers.mask(failed).wait().err(), Some(error));
    }
}

/// The rows of a head may be more than the tokens of the vocabulary.
#[test]
fn the_sampler_takes_what_the_mask_leaves() {
    let mut matcher = grammar(choices(&["yes", "no"])).matcher(GrammarStart::Now);
    let mut logits = vec![0.0_f32; VOCABULARY.len() + 70];
    let (banned, best) = (logits.len() - 1, id("{"));
    logits[banned] = 9.0;
    logits[best as usize] = 8.0;
    logits[id("n") as usize] = 1.0;
    matcher.mask().unwrap().apply(&mut logits);
    let mut sampler = Sampler::new(SamplingParams::default()).unwrap();
    assert_eq!(sampler.sample(&mut logits, &[], &[]), Ok(id("n")));
}

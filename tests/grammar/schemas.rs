//! Random strict schemas and a random model: every finished answer is valid, and none goes on in white space.
//!
//! 200 schemas, or as many as `EMBER_GRAMMAR_SCHEMAS` says; `EMBER_GRAMMAR_SEED` is the first seed, and `EMBER_GRAMMAR_MODEL`
//! names a GGUF file whose vocabulary is used.

use super::generator::{self, Random};
use super::validator::{Validator, longest_blank, read};
use super::{Grammar, GrammarStart, TOKENIZER, compile, schema};
use ember::grammar::{GrammarError, GrammarSpec};
use ember::sampling::{Sampler, SamplingParams};
use serde_json::{Value, json};

/// Most tokens of an answer.
const LIMIT: usize = 300;
/// Answers to each schema.
const ANSWERS: u64 = 2;
/// A line break of two characters, and the widest indentation.
const LONGEST_BLANK: usize = 34;

/// A model that knows nothing: each token has a random logit of its own. Those that end something have a higher one, or no
/// string would ever end; with some seeds, white space has the highest.
fn logits(random: &mut Random) -> Vec<f32> {
    let (end, blank) = (random.unit() * 3.0 + 4.0, random.pick(&[0.0, 4.0, 12.0]));
    let bonus = |id: u32| match TOKENIZER.token_bytes(id).unwrap_or_default() {
        _ if TOKENIZER.is_eog(id) => end,
        [b'"' | b'}' | b']', ..] => end,
        bytes if !bytes.is_empty() && bytes.iter().all(u8::is_ascii_whitespace) => blank,
        _ => 0.0,
    };
    (0..TOKENIZER.vocab_size() as u32).map(|id| bonus(id) + random.unit() * 2.0).collect()
}

/// The text of an answer of the random model with this seed, and whether it came to its end.
fn answer(grammar: &Grammar, seed: u64) -> (String, bool) {
    let logits = logits(&mut Random::new(seed));
    let params = SamplingParams { temperature: 1.0, seed: Some(seed), ..SamplingParams::default() };
    let mut sampler = Sampler::new(params).unwrap();
    let mut matcher = grammar.matcher(GrammarStart::Now);
    let mut tokens = Vec::new();
    while tokens.len() < LIMIT && !matcher.is_finished() {
        let mut masked = logits.clone();
        matcher.mask().unwrap().apply(&mut masked);
        let token = sampler.sample(&mut masked, &[], &tokens).unwrap();
        matcher.accept(token).unwrap();
        tokens.push(token);
    }
    (TOKENIZER.decode(&tokens, true), matcher.is_finished())
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|error| panic!("{name}: {error}")))
}

/// The schema of a seed if a grammar can be made of it.
fn random_grammar(seed: u64) -> (Value, Option<Grammar>) {
    let generated = generator::schema(&mut Random::new(seed));
    match compile(&GrammarSpec::JsonSchema { schema: generated.clone(), strict: true }) {
        Ok(grammar) => (generated, Some(grammar)),
        Err(GrammarError::Loose(_)) => (generated, None),
        Err(GrammarError::Refused { problem, .. }) => {
            let known = ["nsatisfiable", "`oneOf` is supported only", "only supported when all keys"];
            assert!(known.iter().any(|known| problem.contains(known)), "seed {seed}: {problem}: {generated}");
            (generated, None)
        }
        Err(error) => panic!("seed {seed}: {error}: {generated}"),
    }
}

#[test]
fn random_answers_are_valid() {
    let (first, wanted) = (setting("EMBER_GRAMMAR_SEED", 0), setting("EMBER_GRAMMAR_SCHEMAS", 200));
    let (mut schemas, mut finished, mut tried) = (0, 0, 0);
    while schemas < wanted {
        let seed = first + tried;
        tried += 1;
        let (schema, Some(grammar)) = random_grammar(seed) else { continue };
        let validator = Validator::new(&schema);
        schemas += 1;
        for draw in 0..ANSWERS {
            let (text, ended) = answer(&grammar, seed * ANSWERS + draw);
            assert!(longest_blank(&text) <= LONGEST_BLANK, "seed {seed}: {text:?}");
            if ended {
                let checked =
                    read(&text).map_err(|error| error.to_string()).and_then(|value| validator.check(&value));
                checked.unwrap_or_else(|fault| panic!("seed {seed}: {text:?} under {schema}: {fault}"));
                finished += 1;
            }
        }
    }
    println!("{schemas} of {tried} schemas, {finished} of {} answers finished", ANSWERS * schemas);
    assert!(schemas * 10 >= tried * 8, "{schemas} of {tried} schemas compile");
    assert!(finished * 10 >= ANSWERS * schemas * 8, "{finished} of {} answers finished", ANSWERS * schemas);
}

/// The mutation: under another schema's grammar the answers are not valid.
#[test]
fn random_answers_to_another_schema_are_not_valid() {
    let any = compile(&schema(json!({}))).unwrap();
    let faults = (0..40).filter(|&seed| {
        let validator = Validator::new(&generator::schema(&mut Random::new(seed)));
        let (text, ended) = answer(&any, seed);
        ended && read(&text).is_ok_and(|value| validator.check(&value).is_err())
    });
    assert!(faults.count() >= 10);
}

//! Grammars that are refused: malformed, not supported, too large, hostile.

use super::{TOKENIZER, choices, compile, grammar, lark, regex, schema};
use ember::grammar::{GrammarError, GrammarSpec, GrammarStart, GrammarVocabulary};
use ember_loaders::gguf::Gguf;
use ember_loaders::tokenizer::{Tokenizer, Vocab};
use serde_json::{Map, Value, json};
use std::path::Path;

fn message(spec: &GrammarSpec) -> String {
    compile(spec).err().unwrap_or_else(|| panic!("{spec:?} compiles")).to_string()
}

#[test]
fn malformed_grammars_are_refused_with_their_fault() {
    for (spec, expected) in [
        (regex(""), "regex: it is empty"),
        (regex("a\\"), "regex: it ends with a backslash that escapes nothing"),
        (regex("(a"), "regex: unclosed group"),
        (regex("a{2,1}"), "regex: invalid repetition count range"),
        (regex("(?=a)b"), "regex: look-around"),
        (regex("(a)\\1"), "regex: backreferences are not supported"),
        (choices(&[]), "choices: there are none"),
        (choices(&["a", ""]), "choices: number 2 is empty"),
        (lark(""), "no start rule found"),
        (lark("start: missing"), "unknown name: \"missing\""),
        (lark("start: \"a"), "Lark grammar: 1(10): lexer error"),
        (lark("start: \"a\"\nstart: \"b\""), "duplicate rule"),
        (lark("start: <|nothing|>"), "<|nothing|>"),
        (schema(json!({"type": "text"})), "JSON schema: Invalid type: text"),
        (schema(json!({"minLength": -1})), "Expected positive integer for 'minLength', got -1"),
        (schema(json!({"$ref": "#/$defs/a"})), "Reference segment '$defs' not found"),
        (
            schema(json!({"$ref": "https://example.com/a"})),
            "JSON schema: `$ref` is supported only for `#` and",
        ),
        (
            schema(json!({"oneOf": [{"minimum": 1}, {"maximum": 9}]})),
            "JSON schema: `oneOf` is supported only where",
        ),
        (regex(&"(a|b)*c?".repeat(900)), "regex: its automaton is too large"),
        (schema(json!({"type": "string", "format": "zip"})), "Unknown format: zip"),
        (schema(json!({"type": "string", "pattern": "(a"})), "JSON schema: unclosed group"),
        (
            schema(json!({"properties": {"a": {"contains": {}}}})),
            "JSON schema at #/properties/a: the keyword `contains`",
        ),
    ] {
        let message = message(&spec);
        assert!(message.contains(expected), "{spec:?}: {message}");
        assert!(message.len() < 500 && !message.contains("backtrace"), "{spec:?}: {message}");
    }
}

#[test]
fn what_nothing_can_meet_is_refused() {
    for spec in [
        schema(json!({"type": "integer", "minimum": 3, "maximum": 2})),
        schema(json!({"type": "object", "required": ["a"], "additionalProperties": false})),
        schema(json!({"allOf": [{"type": "string"}, {"type": "null"}]})),
        regex("[^\\x00-\\x{10ffff}]"),
    ] {
        let message = message(&spec);
        let known = ["Unsatisfiable schema", "cannot be met", "empty", "unsatisfiable"];
        assert!(known.iter().any(|part| message.contains(part)), "{spec:?}: {message}");
    }
}

#[test]
fn strict_is_exact_or_refused() {
    let strict = |schema: Value| GrammarSpec::JsonSchema { schema, strict: true };
    let date = json!({"properties": {"on": {"type": "string", "format": "date"}}});
    assert_eq!(
        message(&strict(date.clone())),
        "strict JSON schema: not enforced exactly: format at #/properties/on; leave them out, or ask without strict"
    );
    grammar(schema(date));
    grammar(strict(json!({"properties": {"on": {"type": "string"}}})));
}

#[test]
fn sizes_are_limited() {
    let long = "x".repeat(100_000);
    for (spec, expected) in [
        (regex(&long), "regex: its length in bytes is 100000, the limit is 8192"),
        (choices(&[&long, "a"]), "choices: their length in bytes is 100001, the limit is 65536"),
        (lark(&long), "Lark grammar: its length in bytes is 100000, the limit is 65536"),
    ] {
        assert_eq!(message(&spec), expected);
    }
}

/// Each ends by itself, with an error or a grammar; the fault is the request's own.
#[test]
fn hostile_grammars_end() {
    let nested = |open: &str, inner: &str, close: &str, n: usize| {
        format!("{}{inner}{}", open.repeat(n), close.repeat(n))
    };
    let rules = |n: usize| (0..n).map(|i| format!("r{i}: r{}\n", i + 1)).collect::<String>();
    let tokens = |n: usize| (0..n).map(|i| format!("T{i}: \"a\" T{}\n", i + 1)).collect::<String>();
    let refs: Map<_, _> = (0..6000)
        .map(|i| (i.to_string(), json!({"items": {"$ref": format!("#/$defs/{}", (i + 1) % 6000)}})))
        .collect();
    let tight: Map<_, _> = (0..4000)
        .map(|i| (i.to_string(), json!({"$ref": format!("#/$defs/{}", i + 1), "minItems": 1})))
        .chain([("4000".into(), json!({}))])
        .collect();
    let many: Map<_, _> = (0..9000).map(|i| (i.to_string(), json!({}))).collect();
    let patterns = |n: usize| (0..n).map(|i| (format!("^{i}[a-z]*$"), json!({}))).collect::<Map<_, _>>();
    let texts: Vec<_> =
        (0..5000).map(|i| json!({"pattern": format!("^a{{{i}}}.*b$"), "minLength": 2})).collect();
    let properties: Map<_, _> = (0..3000).map(|i| (i.to_string(), json!({}))).collect();
    let options: Vec<_> = (0..3000).map(|i| json!({"required": [i.to_string()]})).collect();
    let cases = [
        regex(&nested("(", "a", ")*", 1000)),
        regex("(((a{0,1000}){0,1000}){0,1000}){0,1000}"),
        regex("(.*a.{200}b.*){40}"),
        regex(&"(a|b)*c?".repeat(900)),
        lark(&format!("start: r0\n{}r4000: \"a\"", rules(4000))),
        lark(&format!("start: T0\n{}T3000: \"a\"", tokens(3000))),
        lark("start: start start | \"\""),
        lark("start: (((\"a\"~0..1000)~0..1000)~0..1000)~0..1000"),
        schema(json!({"$ref": "#/$defs/0", "$defs": refs})),
        schema(json!({"$ref": "#/$defs/0", "$defs": tight})),
        schema(json!({"type": "object", "properties": many, "enum": (0..9000).collect::<Vec<_>>()})),
        schema(json!({"type": "object", "properties": many, "anyOf": vec![json!({}); 160]})),
        schema(json!({"allOf": vec![json!({"properties": many}); 2]})),
        schema(json!({"properties": many.clone().into_iter().take(1500).collect::<Map<_, _>>()})),
        schema(json!({"patternProperties": patterns(100)})),
        schema(json!({"anyOf": texts})),
        schema(
            json!({"allOf": (0..40).map(|i| json!({"enum": (i..i + 200).collect::<Vec<_>>()})).collect::<Vec<_>>()}),
        ),
        regex(r"(\p{L}{1000}\p{N}*){1000}"),
        schema(json!({"$ref": "#"})),
        schema(json!({"allOf": [{"$ref": "#"}], "type": "object"})),
        schema(json!({"type": "string", "minLength": 1_000_000_000_u64})),
        schema(json!({"type": "array", "minItems": 1_000_000_000_u64})),
        schema(json!({"type": "string", "pattern": "(a{0,1000}b{0,1000}){0,1000}c"})),
        schema(json!({"type": "integer", "multipleOf": 4_000_000_007_u64})),
        schema(json!({"properties": properties, "anyOf": options})),
        schema(json!({"oneOf": options})),
        choices(
            &(0..10_000)
                .map(|i| i.to_string())
                .collect::<Vec<_>>()
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>(),
        ),
        schema(
            json!({"properties": {"a": {"type": "array", "prefixItems": vec![json!({"type": "null"}); 1000]}}, "anyOf": vec![json!({}); 700]}),
        ),
    ];
    for spec in cases {
        let text = format!("{spec:?}");
        let started = std::time::Instant::now();
        let result = compile(&spec).and_then(|grammar| grammar.matcher(GrammarStart::Now).mask());
        let end = text.char_indices().nth(60).map_or(text.len(), |(at, _)| at);
        let result = result.map(|mask| mask.count());
        println!("{} ms: {}… {result:?}", started.elapsed().as_millis(), &text[..end]);
    }
}

/// The engine cuts this text inside a character and panics.
#[test]
fn a_panic_of_the_engine_is_the_grammars_error() {
    let spec = schema(json!({"$ref": [format!("x{}", "é".repeat(100))]}));
    let Err(GrammarError::Failed(problem)) = compile(&spec) else { panic!("{:?}", compile(&spec)) };
    assert!(problem.starts_with("panic: ") && !problem.contains('\n'), "{problem}");
    grammar(schema(json!({"type": "null"})));
}

#[test]
fn a_vocabulary_without_an_end_token_is_refused() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("loaders/tests/fixtures/tokenizer");
    let file = Gguf::open(fixtures.join("qwen2.gguf")).unwrap();
    let mut vocab = Vocab::from_metadata(file.metadata()).unwrap();
    vocab.eos = None;
    for (end, text) in [("<|im_end|>", "<|a|>"), ("<|endoftext|>", "<|b|>")] {
        *vocab.tokens.to_mut().iter_mut().find(|token| *token == end).unwrap() = text.into();
    }
    let error = GrammarVocabulary::new(&Tokenizer::from_vocab(vocab).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "the model's vocabulary cannot be used with grammars: it has no end token");
    assert_eq!(GrammarVocabulary::new(&TOKENIZER).unwrap().len(), 1226);
}

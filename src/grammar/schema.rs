//! JSON schemas before they are compiled: limits, and the keywords that are not enforced.

use super::compile::check_size;
use super::error::{GrammarError, LooseKeyword};
use super::work::check_work;
use serde_json::{Map, Value, json};

/// The name of the kind, for messages.
pub(super) const KIND: &str = "JSON schema";
/// Deepest nesting of a schema's JSON.
const MAX_NESTING: usize = 128;
/// Most values in a schema's JSON.
const MAX_VALUES: usize = 20_000;
/// Most different values of `multipleOf` in a schema.
const MAX_FACTORS: usize = 64;
/// Longest sum of the strings in a schema, names among them, in bytes.
const MAX_TEXT: usize = 256 << 10;

/// White space between two parts of JSON: a space, or a line break with an indentation. The engine takes it once between two
/// parts, so that no answer can be blank for longer.
const WHITE_SPACE: &str = r"\x20|\r?\n(?:\x20{0,32}|\t{0,16})";
/// Escapes in strings. Without `\u`, which would let an additional property spell the name of a declared one.
const ESCAPES: &str = "nrbtf\\\"";

/// Keywords that constrain values and that the engine does not implement.
const UNSUPPORTED: [&str; 19] = [
    "not",
    "if",
    "then",
    "else",
    "contains",
    "minContains",
    "maxContains",
    "uniqueItems",
    "unevaluatedItems",
    "unevaluatedProperties",
    "propertyNames",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "$dynamicRef",
    "$dynamicAnchor",
    "$recursiveAnchor",
    "$recursiveRef",
    "x-guidance",
];

/// The schema in the engine's form, within the limits; under `strict` without keywords that are enforced loosely.
pub(super) fn prepare(schema: &Value, strict: bool) -> Result<Value, GrammarError> {
    measure(schema, 1, &mut Size::default())?;
    let schema = match schema {
        Value::Bool(true) => Map::new(),
        Value::Bool(false) => return Err(refused("#", "`false` allows no value")),
        Value::Object(schema) => schema.clone(),
        _ => return Err(refused("#", "it is not an object")),
    };
    let mut found = Found::default();
    check(&schema, "#", &mut found)?;
    check_factors(&found.factors)?;
    let mut schema = Value::Object(schema);
    check_work(&schema)?;
    if strict && !found.loose.is_empty() {
        return Err(GrammarError::Loose(found.loose));
    }
    let options = json!({"whitespace_pattern": WHITE_SPACE, "json_allowed_escapes": ESCAPES});
    schema["x-guidance"] = options;
    Ok(schema)
}

fn refused(path: &str, problem: impl Into<String>) -> GrammarError {
    GrammarError::Refused { kind: format!("{KIND} at {path}"), problem: problem.into() }
}

/// The size of a schema, as far as it was counted.
#[derive(Default)]
struct Size {
    values: usize,
    text: usize,
}

fn measure(value: &Value, nesting: usize, size: &mut Size) -> Result<(), GrammarError> {
    size.values += 1;
    check_size(KIND, "its nesting", nesting, MAX_NESTING)?;
    check_size(KIND, "the number of its values", size.values, MAX_VALUES)?;
    match value {
        Value::String(text) => size.text += text.len(),
        Value::Array(items) => items.iter().try_for_each(|item| measure(item, nesting + 1, size))?,
        Value::Object(fields) => fields.iter().try_for_each(|(name, value)| {
            size.text += name.len();
            measure(value, nesting + 1, size)
        })?,
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    check_size(KIND, "the length of its texts in bytes", size.text, MAX_TEXT)
}

/// What a schema holds that is to be looked at as a whole.
#[derive(Default)]
struct Found {
    loose: Vec<LooseKeyword>,
    /// The values of `multipleOf`, with their paths.
    factors: Vec<(f64, String)>,
}

/// Refuses keywords that are not supported, here and in every part, and collects others.
fn check(schema: &Map<String, Value>, path: &str, found: &mut Found) -> Result<(), GrammarError> {
    for (keyword, value) in schema {
        if UNSUPPORTED.contains(&keyword.as_str()) {
            return Err(refused(path, format!("the keyword `{keyword}` is not supported")));
        }
        if keyword == "$id" && path != "#" {
            return Err(refused(path, "`$id` is supported in the whole schema only"));
        }
        if let Some(keyword) = loosely_enforced(keyword, value, schema) {
            found.loose.push(LooseKeyword { keyword, path: path.to_owned() });
        }
        if let ("multipleOf", Some(factor)) = (keyword.as_str(), value.as_f64()) {
            found.factors.push((factor, path.to_owned()));
        }
        for (part, path) in parts(keyword, value, path) {
            if let Value::Object(schema) = part {
                check(schema, &path, found)?;
            }
        }
    }
    Ok(())
}

/// Refuses values of `multipleOf` that the engine, which counts in 32 bits, could not enforce together: a schema may hold any
/// of them against the same number.
fn check_factors(factors: &[(f64, String)]) -> Result<(), GrammarError> {
    let decimals = factors.iter().map(|(factor, path)| {
        let problem = "`multipleOf` is not a number above 0 with at most 6 decimals";
        decimal(*factor).ok_or_else(|| refused(path, problem))
    });
    let decimals: Vec<(u64, u32)> = decimals.collect::<Result<_, _>>()?;
    let places = decimals.iter().map(|(_, places)| *places).max().unwrap_or(0);
    let mut numbers: Vec<u64> =
        decimals.iter().map(|(digits, own)| digits.saturating_mul(10_u64.pow(places - own))).collect();
    numbers.sort_unstable();
    numbers.dedup();
    check_size(KIND, "the number of different values of its `multipleOf`", numbers.len(), MAX_FACTORS)?;
    let lcm = |a: u64, b: &u64| (a / gcd(a, *b)).saturating_mul(*b);
    // The engine multiplies a remainder by ten for the next digit, and two numbers, in an order of its own, before it
    // divides by what they have in common.
    let fits = |number: &u64| {
        let others = numbers.iter().filter(|other| *other != number).fold(1, lcm);
        others.saturating_mul(*number).max(lcm(others, number).saturating_mul(10)) <= u64::from(u32::MAX)
    };
    if !numbers.iter().all(fits) {
        return Err(refused("#", "its values of `multipleOf` have too large a common multiple"));
    }
    Ok(())
}

/// The digits and decimal places of a number, as the engine finds them.
fn decimal(mut number: f64) -> Option<(u64, u32)> {
    let mut places = 0;
    while number.fract() != 0.0 && places <= 6 {
        number *= 10.0;
        places += 1;
    }
    let exact = number.fract() == 0.0 && places <= 6 && (1.0..=f64::from(u32::MAX)).contains(&number);
    exact.then_some((number as u64, places))
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The keyword, if values that do not meet it may be generated.
fn loosely_enforced(keyword: &str, value: &Value, schema: &Map<String, Value>) -> Option<&'static str> {
    match keyword {
        "format" => Some("format"),
        "patternProperties" => Some("patternProperties"),
        "multipleOf" if value.as_f64().is_some_and(|factor| factor.fract() != 0.0) => Some("multipleOf"),
        // Properties that are not required count each time they are repeated.
        "minProperties" => {
            let required = schema.get("required").and_then(Value::as_array).map_or(0, Vec::len) as u64;
            value.as_u64().is_some_and(|least| least > required + 1).then_some("minProperties")
        }
        "exclusiveMinimum" => takes_excluded_bound(schema).then_some("exclusiveMinimum"),
        "exclusiveMaximum" => takes_excluded_bound(schema).then_some("exclusiveMaximum"),
        _ => None,
    }
}

/// True if the engine lets through an excluded bound that is an integer: between two bounds with the same integer part.
fn takes_excluded_bound(schema: &Map<String, Value>) -> bool {
    let number = |keyword| schema.get(keyword).and_then(Value::as_f64);
    let low = [number("minimum"), number("exclusiveMinimum")].into_iter().flatten().reduce(f64::max);
    let high = [number("maximum"), number("exclusiveMaximum")].into_iter().flatten().reduce(f64::min);
    let fractions = match schema.get("type") {
        Some(Value::String(kind)) => kind == "number",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "number"),
        _ => true,
    };
    fractions && low.zip(high).is_some_and(|(low, high)| low.trunc() == high.trunc())
}

/// The schemas inside a keyword's value, with their paths.
pub(super) fn parts<'a>(keyword: &str, value: &'a Value, path: &str) -> Vec<(&'a Value, String)> {
    let escaped = |name: &str| name.replace('~', "~0").replace('/', "~1");
    match (keyword, value) {
        ("properties" | "patternProperties" | "$defs" | "definitions", Value::Object(parts)) => {
            parts.iter().map(|(name, part)| (part, format!("{path}/{keyword}/{}", escaped(name)))).collect()
        }
        ("items" | "prefixItems" | "anyOf" | "oneOf" | "allOf", Value::Array(parts)) => {
            parts.iter().enumerate().map(|(at, part)| (part, format!("{path}/{keyword}/{at}"))).collect()
        }
        ("items" | "additionalItems" | "additionalProperties", part) => {
            vec![(part, format!("{path}/{keyword}"))]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(schema: &Value, strict: bool) -> String {
        prepare(schema, strict).unwrap_err().to_string()
    }

    #[test]
    fn unsupported_keywords_are_named_with_their_path() {
        for keyword in UNSUPPORTED {
            let schema = json!({"$defs": {"a/b": {"items": [{"anyOf": [{}, {keyword: true}]}]}}});
            assert_eq!(
                message(&schema, false),
                format!(
                    "JSON schema at #/$defs/a~1b/items/0/anyOf/1: the keyword `{keyword}` is not supported"
                )
            );
        }
        // A property may have any name.
        assert!(prepare(&json!({"properties": {"not": {"type": "null"}, "$id": {}}}), true).is_ok());
        let inner_id = json!({"$id": "https://a.b", "properties": {"a": {"$id": "https://c.d"}}});
        assert_eq!(
            message(&inner_id, false),
            "JSON schema at #/properties/a: `$id` is supported in the whole schema only"
        );
    }

    #[test]
    fn strict_refuses_what_is_enforced_loosely() {
        let schema = json!({
            "properties": {
                "date": {"type": "string", "format": "date"},
                "price": {"additionalProperties": {"multipleOf": 0.01}},
                "count": {"multipleOf": 3.0, "minProperties": 1},
                "two": {"minProperties": 3, "required": ["a"]},
                "half": {"type": "number", "exclusiveMinimum": 56, "maximum": 56.5},
                "none": {"type": ["number", "null"], "minimum": -0.5, "maximum": 0, "exclusiveMaximum": true},
            },
            "patternProperties": {"^x": {"format": "uri"}},
        });
        assert!(prepare(&schema, false).is_ok());
        assert_eq!(
            message(&schema, true),
            "strict JSON schema: not enforced exactly: format at #/properties/date, \
             multipleOf at #/properties/price/additionalProperties, minProperties at #/properties/two, \
             exclusiveMinimum at #/properties/half, exclusiveMaximum at #/properties/none, \
             patternProperties at #, format at #/patternProperties/^x; leave them out, or ask without strict"
        );
        for exact in [
            json!({"minProperties": 2, "required": ["a"], "multipleOf": 2}),
            json!({"type": "number", "exclusiveMinimum": 0}),
            json!({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}),
            json!({"type": "integer", "exclusiveMinimum": 0.2, "exclusiveMaximum": 0.5}),
        ] {
            assert!(prepare(&exact, true).is_ok(), "{exact}");
        }
    }

    #[test]
    fn factors_are_small_enough_to_be_enforced_together() {
        let all_of = |factors: &[f64]| json!({"allOf": factors.iter().map(|factor| json!({"multipleOf": factor})).collect::<Vec<_>>()});
        for factors in [&[0.01, 1000.0][..], &[7.0, 11.0, 13.0, 100.0], &[60_000.0, 60_000.0], &[1e-6]] {
            assert!(prepare(&all_of(factors), false).is_ok(), "{factors:?}");
        }
        for factors in [&[0.0][..], &[-1.0], &[1e-7], &[0.1 + 0.2], &[1e300]] {
            let expected =
                "JSON schema at #/allOf/0: `multipleOf` is not a number above 0 with at most 6 decimals";
            assert_eq!(message(&all_of(factors), false), expected, "{factors:?}");
        }
        for factors in
            [&[500_000_000.0][..], &[65_535.0, 65_536.0], &[0.000_001, 5000.0], &[1000.0, 1001.0, 9973.0]]
        {
            let expected = "JSON schema at #: its values of `multipleOf` have too large a common multiple";
            assert_eq!(message(&all_of(factors), false), expected, "{factors:?}");
        }
    }

    #[test]
    fn sizes_are_limited() {
        let mut deep = json!({});
        for _ in 0..200 {
            deep = json!({"items": deep});
        }
        assert_eq!(message(&deep, false), "JSON schema: its nesting is 129, the limit is 128");
        let wide = json!({"enum": (0..20_000).collect::<Vec<_>>()});
        assert_eq!(
            message(&wide, false),
            "JSON schema: the number of its values is 20001, the limit is 20000"
        );
        let long = json!({"description": "x".repeat(300_000)});
        assert_eq!(
            message(&long, false),
            "JSON schema: the length of its texts in bytes is 300011, the limit is 262144"
        );
    }

    #[test]
    fn a_schema_is_an_object_or_true() {
        assert!(prepare(&json!(true), true).is_ok());
        assert_eq!(message(&json!(false), false), "JSON schema at #: `false` allows no value");
        assert_eq!(message(&json!("string"), false), "JSON schema at #: it is not an object");
    }
}

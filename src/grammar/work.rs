//! The work that a schema makes for the engine, bounded before the engine begins.
//!
//! Where several constraints hold for one value (`allOf`, `anyOf` beside `properties`, `$ref` beside anything), the engine
//! multiplies out their alternatives and copies what they hold for each. A few thousand values of JSON could ask for
//! hundreds of gigabytes.

use super::compile::check_size;
use super::error::GrammarError;
use super::schema::{KIND, parts};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

/// Most work of a schema, in copied values, each of a few hundred bytes and some tens of nanoseconds.
const MAX_WORK: u64 = 1_000_000;
/// Work for a `pattern`, which is checked for emptiness.
const PATTERN: u64 = 300;
/// Work for each pair of `patternProperties`, which are compared.
const PATTERN_PAIR: u64 = 30;
/// Alternatives of `enum` that cost as much as one that is a schema: nothing is kept of those that do not fit.
const CONSTANTS: usize = 16;

/// Refuses a schema that would be too much work.
pub(super) fn check_work(schema: &Value) -> Result<(), GrammarError> {
    let mut work = Work { root: schema, alternatives: HashMap::new(), total: 0 };
    work.total = work.of_all(schema);
    work.alternatives(schema);
    for definitions in ["$defs", "definitions"].iter().filter_map(|name| schema.get(name)?.as_object()) {
        for definition in definitions.values() {
            work.alternatives(definition);
        }
    }
    let size = usize::try_from(work.total).unwrap_or(usize::MAX);
    check_size(KIND, "the work of multiplying out its alternatives", size, MAX_WORK as usize)
}

struct Work<'a> {
    root: &'a Value,
    /// The alternatives of what references name.
    alternatives: HashMap<&'a str, u64>,
    total: u64,
}

impl<'a> Work<'a> {
    /// The most alternatives that any value has under `schema`. Adds up the work of multiplying them out.
    fn alternatives(&mut self, schema: &'a Value) -> u64 {
        let Value::Object(fields) = schema else { return 1 };
        let mut constraints = Vec::new();
        let mut inner = None;
        for (keyword, value) in fields {
            match (keyword.as_str(), value) {
                ("anyOf" | "oneOf", Value::Array(options)) => {
                    constraints.push(
                        options
                            .iter()
                            .fold(0, |sum: u64, option| sum.saturating_add(self.alternatives(option))),
                    );
                }
                ("enum", Value::Array(values)) => constraints.push(1 + (values.len() / CONSTANTS) as u64),
                ("allOf", Value::Array(all)) => {
                    constraints.extend(all.iter().map(|one| self.alternatives(one)))
                }
                ("$ref", Value::String(reference)) => constraints.push(self.of_reference(reference)),
                ("$defs" | "definitions", _) => {}
                _ => {
                    let inside =
                        parts(keyword, value, "").into_iter().map(|(part, _)| self.alternatives(part)).max();
                    inner = inner.max(inside);
                }
            }
        }
        constraints.extend(inner);
        let product =
            constraints.iter().fold(1, |product: u64, constraint| product.saturating_mul(*constraint));
        if constraints.len() > 1 && self.total <= MAX_WORK {
            self.total = self.total.saturating_add(product.saturating_mul(self.of_all(schema)));
        }
        product
    }

    fn of_reference(&mut self, reference: &'a str) -> u64 {
        if let Some(&known) = self.alternatives.get(reference) {
            return known;
        }
        // A reference that leads back to itself adds nothing on the way.
        self.alternatives.insert(reference, 1);
        let alternatives = self.target(reference).map_or(1, |target| self.alternatives(target));
        self.alternatives.insert(reference, alternatives);
        alternatives
    }

    fn target(&self, reference: &str) -> Option<&'a Value> {
        self.root.pointer(reference.strip_prefix('#')?.trim_end_matches('/'))
    }

    /// The work of one copy of `schema` and of everything that it refers to.
    fn of_all(&self, schema: &'a Value) -> u64 {
        let (mut work, mut seen, mut open) = (0_u64, HashSet::new(), vec![schema]);
        while let Some(value) = open.pop() {
            work = work.saturating_add(1);
            match value {
                Value::Array(items) => open.extend(items),
                Value::Object(fields) => {
                    work = work.saturating_add(of_keywords(fields));
                    open.extend(fields.values());
                    let reference = fields.get("$ref").and_then(Value::as_str);
                    open.extend(
                        reference.filter(|path| seen.insert(*path)).and_then(|path| self.target(path)),
                    );
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        work
    }
}

/// The work of keywords that cost more than their values.
fn of_keywords(fields: &Map<String, Value>) -> u64 {
    let len = |keyword| match fields.get(keyword) {
        Some(Value::Array(items)) => items.len() as u64,
        Some(Value::Object(fields)) => fields.len() as u64,
        _ => 0,
    };
    // Each property is looked up among the rest, each alternative and pattern compared with the others.
    let names = len("properties").max(len("required"));
    let pairs = (names.pow(2) + len("oneOf").pow(2)) / 4 + len("patternProperties").pow(2) * PATTERN_PAIR;
    pairs + if fields.contains_key("pattern") { PATTERN } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn properties(n: usize) -> Map<String, Value> {
        (0..n).map(|i| (i.to_string(), json!({"type": "null"}))).collect()
    }

    #[test]
    fn products_are_bounded_wherever_they_hide() {
        let many = vec![json!({}); 2000];
        let union = json!({"anyOf": many});
        let inner = |n: usize| json!({"properties": {"a": {"properties": properties(n)}}});
        let object = json!({"properties": {"a": inner(1000), "b": inner(1000)}});
        for bomb in [
            json!({"properties": {"a": object}, "anyOf": many}),
            json!({"allOf": [union, object]}),
            json!({"allOf": [{"properties": {"a": union}}, {"properties": {"a": object}}]}),
            json!({"allOf": [{"$ref": "#/$defs/u"}, {"$ref": "#/$defs/o"}], "$defs": {"u": union, "o": object}}),
            json!({"$defs": {"u": union, "o": object, "both": {"allOf": [{"$ref": "#/$defs/u"}, {"$ref": "#/$defs/o"}]}}}),
            json!({"properties": {"a": object}, "enum": vec![0; 12_000]}),
            json!({"allOf": vec![json!({"anyOf": vec![json!({}); 20]}); 8]}),
            json!({"oneOf": many}),
            json!({"properties": properties(2000)}),
            json!({"patternProperties": properties(200)}),
            json!({"anyOf": vec![json!({"pattern": "a"}); 4000]}),
        ] {
            assert!(check_work(&bomb).is_err(), "{}", &bomb.to_string()[..60]);
        }
    }

    #[test]
    fn ordinary_schemas_are_little_work() {
        let optional = |i: usize| (i.to_string(), json!({"anyOf": [{"type": "string"}, {"type": "null"}]}));
        let entity = json!({"properties": (0..100).map(optional).collect::<Map<_, _>>()});
        let derived = |i: usize| {
            (i.to_string(), json!({"allOf": [{"$ref": "#/$defs/base"}, entity], "description": "x"}))
        };
        let mut definitions: Map<_, _> = (0..20).map(derived).collect();
        definitions.insert("base".into(), json!({"properties": {"next": {"$ref": "#/$defs/3"}}}));
        for schema in [
            json!({"properties": (0..1000).map(optional).collect::<Map<_, _>>()}),
            json!({"properties": {"country": {"type": "string", "enum": (0..2000).collect::<Vec<_>>()}}}),
            json!({"$ref": "#/$defs/1", "$defs": definitions}),
        ] {
            assert_eq!(check_work(&schema), Ok(()));
        }
    }
}

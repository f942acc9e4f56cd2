//! Random schemas from the keywords that the grammar engine enforces exactly.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde_json::{Map, Value, json};

/// A stream of random choices.
pub struct Random(ChaCha8Rng);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.0.next_u64() % n as u64) as usize
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }

    /// A number between 0 and 1.
    pub fn unit(&mut self) -> f32 {
        (self.0.next_u32() >> 8) as f32 / (1 << 24) as f32
    }
}

const NAMES: [&str; 8] = ["a", "b", "id", "name", "é", "a b", "x\"y", ""];
const PATTERNS: [&str; 6] = ["^[a-c]{1,3}$", "^\\d{2}-\\w$", "x", "^(no|yes)$", "^[^\\s]{2,5}$", "é+$"];

/// A schema, with definitions that it may refer to.
pub fn schema(random: &mut Random) -> Value {
    let definitions = json!({
        "tree": {
            "type": "object",
            "properties": {"v": leaf(random), "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/tree"}]}},
            "required": ["v"],
            "additionalProperties": false,
        },
        "part": node(random, 1),
    });
    let mut schema = match node(random, 3) {
        Value::Object(schema) => schema,
        _ => Map::new(),
    };
    schema.insert("$defs".into(), definitions);
    schema.into()
}

fn node(random: &mut Random, depth: usize) -> Value {
    if depth == 0 {
        return leaf(random);
    }
    match random.below(12) {
        0..4 => object(random, depth),
        4 | 5 => array(random, depth),
        6 => json!({"anyOf": some(random, 1, 3, |random| node(random, depth - 1))}),
        7 => {
            json!({"oneOf": [{"type": "null"}, object(random, depth), array(random, depth), string(random)]})
        }
        8 => {
            json!({"allOf": [object(random, depth), {"type": "object", "properties": {"id": leaf(random)}}]})
        }
        9 => {
            json!({"$ref": random.pick(&["#/$defs/tree", "#/$defs/tree", "#/$defs/part"][..2 + usize::from(depth > 1)])})
        }
        10 => json!({"type": ["string", "integer", "null"], "maxLength": 5, "minimum": random.below(9)}),
        _ => leaf(random),
    }
}

fn leaf(random: &mut Random) -> Value {
    match random.below(9) {
        0 => json!({"type": "null"}),
        1 => json!({"type": "boolean"}),
        2 | 3 => integer(random),
        4 => number(random),
        5 => json!({"enum": some(random, 1, 4, constant)}),
        6 => json!({"const": constant(random)}),
        _ => string(random),
    }
}

fn constant(random: &mut Random) -> Value {
    let scalar = |random: &mut Random| match random.below(6) {
        0 => Value::Null,
        1 => random.one_in(2).into(),
        2 => (random.below(2000) as i64 - 1000).into(),
        3 => (random.below(2000) as f64 / 8.0 - 100.0).into(),
        _ => random.pick(&["", "a", "a\"b\\\n", "é😀", "\t/", "</think>"]).into(),
    };
    match random.below(8) {
        0 => some(random, 0, 2, scalar).into(),
        1 => json!({"k": scalar(random)}),
        _ => scalar(random),
    }
}

fn integer(random: &mut Random) -> Value {
    let low = random.below(4000) as i64 - 2000;
    let high = low + random.pick(&[0, 1, 9, 100, 5000]);
    match random.below(7) {
        0 => json!({"type": "integer"}),
        1 => json!({"type": "integer", "minimum": low}),
        2 => json!({"type": "integer", "maximum": high}),
        3 => json!({"type": "integer", "exclusiveMinimum": low, "exclusiveMaximum": high + 2}),
        4 => json!({"type": "integer", "multipleOf": random.below(12) + 1}),
        5 => {
            json!({"type": "integer", "multipleOf": random.below(12) + 1, "minimum": low, "maximum": low + 500})
        }
        _ => json!({"type": "integer", "minimum": low, "maximum": high}),
    }
}

fn number(random: &mut Random) -> Value {
    let low = random.below(4000) as f64 / 16.0 - 100.0;
    let high = low + random.pick(&[0.5, 1.0, 10.25, 1000.0]);
    match random.below(5) {
        0 => json!({"type": "number"}),
        1 => json!({"type": "number", "minimum": low}),
        2 => json!({"type": "number", "exclusiveMaximum": high}),
        3 => json!({"type": "number", "exclusiveMinimum": low, "maximum": high}),
        _ => json!({"type": "number", "minimum": low, "maximum": high}),
    }
}

fn string(random: &mut Random) -> Value {
    let low = random.below(4);
    match random.below(5) {
        0 => json!({"type": "string"}),
        1 => json!({"type": "string", "pattern": random.pick(&PATTERNS)}),
        2 => json!({"type": "string", "minLength": low}),
        _ => json!({"type": "string", "minLength": low, "maxLength": low + random.below(20)}),
    }
}

fn array(random: &mut Random, depth: usize) -> Value {
    let mut array = Map::from_iter([("type".into(), "array".into())]);
    if !random.one_in(6) {
        array.insert("items".into(), node(random, depth - 1));
    }
    let low = random.below(3);
    if random.one_in(2) {
        array.insert("minItems".into(), low.into());
    }
    if random.one_in(2) {
        array.insert("maxItems".into(), (low + random.below(4)).into());
    }
    if random.one_in(4) {
        array.insert("prefixItems".into(), some(random, 1, 3, |random| node(random, depth - 1)).into());
    }
    array.into()
}

fn object(random: &mut Random, depth: usize) -> Value {
    let mut object = Map::from_iter([("type".into(), "object".into())]);
    let mut properties = Map::new();
    for _ in 0..random.below(5) {
        properties.insert(random.pick(&NAMES).into(), node(random, depth - 1));
    }
    let all = random.one_in(3);
    let required: Vec<&String> = properties.keys().filter(|_| all || random.one_in(2)).collect();
    if all && random.one_in(2) {
        object.insert("maxProperties".into(), (required.len() + random.below(3)).into());
    }
    object.insert("required".into(), json!(required));
    match random.below(4) {
        0 => drop(object.insert("additionalProperties".into(), leaf(random))),
        1 => {}
        _ => drop(object.insert("additionalProperties".into(), false.into())),
    }
    object.insert("properties".into(), properties.into());
    object.into()
}

/// Between `low` and `high` values.
fn some<T>(random: &mut Random, low: usize, high: usize, make: impl Fn(&mut Random) -> T) -> Vec<T> {
    (0..low + random.below(high - low + 1)).map(|_| make(random)).collect()
}

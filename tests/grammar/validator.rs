//! Checks of an answer by means that know nothing of grammars: a JSON reader and the `boon` validator.

use serde_json::Value;

/// The value of a JSON text. Exponents beyond f64, which JSON allows and serde_json does not read, are cut.
pub fn read(text: &str) -> Result<Value, serde_json::Error> {
    let value = serde_json::from_str(text);
    match &value {
        Err(error) if error.to_string().starts_with("number out of range") => {
            serde_json::from_str(&cut_exponents(text))
        }
        _ => value,
    }
}

fn cut_exponents(text: &str) -> String {
    let mut cut = String::new();
    let mut exponent_digits = None;
    for character in text.chars() {
        let after_digit = cut.ends_with(|last: char| last.is_ascii_digit());
        exponent_digits = match (character, exponent_digits) {
            ('e' | 'E', None) if after_digit => Some(0),
            ('+' | '-', Some(0)) => Some(0),
            ('0'..='9', Some(digits)) => Some(digits + 1),
            _ => None,
        };
        if exponent_digits.is_none_or(|digits| digits <= 2) {
            cut.push(character);
        }
    }
    cut
}

/// A schema's validator.
pub struct Validator {
    schemas: boon::Schemas,
    index: boon::SchemaIndex,
}

impl Validator {
    pub fn new(schema: &Value) -> Self {
        const NAME: &str = "https://example.com/schema";
        let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
        compiler.add_resource(NAME, schema.clone()).unwrap();
        let index =
            compiler.compile(NAME, &mut schemas).unwrap_or_else(|error| panic!("{schema}: {error:#}"));
        Self { schemas, index }
    }

    /// The fault of a value.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        self.schemas.validate(value, self.index).map_err(|error| format!("{error:#}"))
    }
}

/// The longest run of white space outside strings.
pub fn longest_blank(text: &str) -> usize {
    let (mut longest, mut run, mut in_string, mut escaped) = (0, 0, false, false);
    for character in text.chars() {
        match (in_string, character) {
            (true, _) if escaped => escaped = false,
            (true, '\\') => escaped = true,
            (_, '"') => (in_string, run) = (!in_string, 0),
            (false, ' ' | '\t' | '\r' | '\n') => run += 1,
            _ => run = 0,
        }
        longest = longest.max(run);
    }
    longest
}

#[test]
fn the_checks_find_faults() {
    let validator =
        Validator::new(&serde_json::json!({"properties": {"a": {"type": "integer"}}, "required": ["a"]}));
    assert!(validator.check(&read("{\"a\": 1}").unwrap()).is_ok());
    assert!(validator.check(&read("{\"a\": \"1\"}").unwrap()).is_err());
    assert!(validator.check(&read("{}").unwrap()).is_err());
    assert!(read("{\"a\": 1").is_err() && read("01").is_err());
    assert_eq!(read("[1e999, -2.5E+1000, \"1e999\"]").unwrap()[0], 1e99);
    assert_eq!(longest_blank("[ 1,\n   \"      \\\"      \", {}]"), 4);
}

//! The metadata table, with getters whose errors name the key, the expected type and the found one.

use indexmap::IndexMap;
use serde::{Serialize, Serializer};

use super::error::GgufError;
use super::value::{Array, Value};

/// The metadata of a model, in file order.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    file: String,
    entries: IndexMap<String, Value>,
}

/// Defines `x(key)` and `opt_x(key)` over a conversion from [`Value`].
macro_rules! getters {
    ($($name:ident, $opt_name:ident -> $ty:ty, $expected:literal, $convert:expr;)*) => {$(
        #[doc = concat!("The value of `key` as ", $expected, ".")]
        ///
        /// # Errors
        /// If the key is missing, of another type, or out of range.
        pub fn $name(&self, key: &str) -> Result<$ty, GgufError> {
            self.$opt_name(key)?.ok_or_else(|| self.missing(key, $expected))
        }

        #[doc = concat!("The value of `key` as ", $expected, ", or `None` when the key is missing.")]
        ///
        /// # Errors
        /// If the key is of another type or out of range.
        pub fn $opt_name(&self, key: &str) -> Result<Option<$ty>, GgufError> {
            self.convert(key, $expected, $convert)
        }
    )*};
}

/// The reason a value is not what the getter wants.
enum Mismatch {
    Type,
    Range,
}

impl Metadata {
    /// An empty table; `file` is what errors name as its origin.
    pub fn new(file: impl Into<String>) -> Self {
        Self { file: file.into(), entries: IndexMap::new() }
    }

    /// Sets a key, and returns the value it had.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<Value>) -> Option<Value> {
        self.entries.insert(key.into(), value.into())
    }

    /// The value of `key`, whatever its type.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.get(key)
    }

    /// True if the key is present.
    pub fn contains(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// All entries in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The file that errors name.
    pub fn file(&self) -> &str {
        &self.file
    }

    getters! {
        str, opt_str -> &str, "a string", |value| match value {
            Value::String(text) => Ok(text.as_str()),
            _ => Err(Mismatch::Type),
        };
        bool, opt_bool -> bool, "a bool", |value| match value {
            Value::Bool(flag) => Ok(*flag),
            _ => Err(Mismatch::Type),
        };
        f32, opt_f32 -> f32, "a float", |value| match value {
            Value::F32(number) => Ok(*number),
            Value::F64(number) => Ok(*number as f32),
            _ => Err(Mismatch::Type),
        };
        u32, opt_u32 -> u32, "an unsigned 32-bit integer", integer;
        i32, opt_i32 -> i32, "a signed 32-bit integer", integer;
        u64, opt_u64 -> u64, "an unsigned integer", integer;
        usize, opt_usize -> usize, "an unsigned integer", integer;
        str_array, opt_str_array -> &[String], "an array of strings", |value| match value {
            Value::Array(Array::String(elements)) => Ok(elements.as_slice()),
            _ => Err(Mismatch::Type),
        };
        f32_array, opt_f32_array -> &[f32], "an array of f32", |value| match value {
            Value::Array(Array::F32(elements)) => Ok(elements.as_slice()),
            _ => Err(Mismatch::Type),
        };
        bool_array, opt_bool_array -> &[bool], "an array of bools", |value| match value {
            Value::Array(Array::Bool(elements)) => Ok(elements.as_slice()),
            _ => Err(Mismatch::Type),
        };
        int_array, opt_int_array -> Vec<i64>, "an array of integers", |value| match value {
            Value::Array(elements) => elements.to_integers().ok_or(Mismatch::Type),
            _ => Err(Mismatch::Type),
        };
    }

    fn convert<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        convert: impl FnOnce(&'a Value) -> Result<T, Mismatch>,
    ) -> Result<Option<T>, GgufError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let (file, key) = (&self.file, key.to_owned());
        convert(value).map(Some).map_err(|mismatch| match mismatch {
            Mismatch::Type => {
                GgufError::WrongType { file: file.clone(), key, expected, found: value.type_name() }
            }
            Mismatch::Range => {
                GgufError::OutOfRange { file: file.clone(), key, expected, value: value.to_string() }
            }
        })
    }

    fn missing(&self, key: &str, expected: &'static str) -> GgufError {
        GgufError::MissingKey { file: self.file.clone(), key: key.to_owned(), expected }
    }
}

fn integer<T: TryFrom<i128>>(value: &Value) -> Result<T, Mismatch> {
    let number = value.as_integer().ok_or(Mismatch::Type)?;
    T::try_from(number).map_err(|_| Mismatch::Range)
}

impl Serialize for Metadata {
    /// As a map in file order.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Metadata {
        let mut metadata = Metadata::new("m.gguf");
        metadata.insert("name", "Qwen3");
        metadata.insert("layers", 28_u16);
        metadata.insert("negative", -1_i32);
        metadata.insert("eps", 1e-6_f64);
        metadata.insert("types", vec![1_i32, 4]);
        metadata
    }

    #[test]
    fn integers_of_any_width_that_fit() {
        let metadata = sample();
        assert_eq!(metadata.u32("layers").unwrap(), 28);
        assert_eq!(metadata.usize("layers").unwrap(), 28);
        assert_eq!(metadata.i32("negative").unwrap(), -1);
        assert_eq!(metadata.f32("eps").unwrap(), 1e-6);
        assert_eq!(metadata.int_array("types").unwrap(), [1, 4]);
        assert_eq!(
            metadata.u64("negative").unwrap_err().to_string(),
            "m.gguf: metadata key `negative` is -1, out of range for an unsigned integer"
        );
    }

    #[test]
    fn errors_name_key_expected_and_found() {
        let metadata = sample();
        assert_eq!(
            metadata.str("layers").unwrap_err().to_string(),
            "m.gguf: metadata key `layers` is of type u16, expected a string"
        );
        assert_eq!(
            metadata.opt_str_array("types").unwrap_err().to_string(),
            "m.gguf: metadata key `types` is of type array of i32, expected an array of strings"
        );
        assert_eq!(
            metadata.bool("absent").unwrap_err().to_string(),
            "m.gguf: metadata key `absent` is missing (expected a bool)"
        );
        assert_eq!(metadata.opt_bool("absent").unwrap(), None);
    }

    #[test]
    fn serializes_in_file_order() {
        let text = serde_json::to_string(&sample()).unwrap();
        assert_eq!(text, r#"{"name":"Qwen3","layers":28,"negative":-1,"eps":1e-6,"types":[1,4]}"#);
    }
}

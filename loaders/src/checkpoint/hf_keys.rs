//! An object of config.json, with the same checks as GGUF keys.

use serde_json::{Map, Value};

use super::config::checked_size;
use super::error::CheckpointError;

/// An object within config.json and its path, for error messages.
#[derive(Clone)]
pub(super) struct Section<'a> {
    path: String,
    object: &'a Map<String, Value>,
}

impl<'a> Section<'a> {
    pub fn root(object: &'a Map<String, Value>) -> Self {
        Self { path: String::new(), object }
    }

    /// The object of a file beside config.json, whose name errors say.
    pub fn of_file(name: &str, object: &'a Map<String, Value>) -> Self {
        Self { path: format!("{name}: "), object }
    }

    /// Full path of a key of this section: `text_config.hidden_size`.
    pub fn key(&self, name: &str) -> String {
        format!("{}{name}", self.path)
    }

    /// The value of `name`; `null` counts as absent.
    pub fn get(&self, name: &str) -> Option<&'a Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    pub fn opt_section(&self, name: &str) -> Result<Option<Section<'a>>, CheckpointError> {
        let path = format!("{}.", self.key(name));
        let object = self.opt(name, "an object", Value::as_object)?;
        Ok(object.map(|object| Section { path, object }))
    }

    pub fn opt_str(&self, name: &str) -> Result<Option<&'a str>, CheckpointError> {
        self.opt(name, "a string", Value::as_str)
    }

    pub fn opt_bool(&self, name: &str) -> Result<Option<bool>, CheckpointError> {
        self.opt(name, "true or false", Value::as_bool)
    }

    /// A finite number.
    pub fn opt_f32(&self, name: &str) -> Result<Option<f32>, CheckpointError> {
        match self.opt(name, "a number", Value::as_f64)?.map(|value| value as f32) {
            Some(value) if !value.is_finite() => {
                Err(CheckpointError::bad_value(self.key(name), "is too large a number"))
            }
            value => Ok(value),
        }
    }

    /// A finite number; 0 counts as absent.
    pub fn opt_nonzero(&self, name: &str) -> Result<Option<f32>, CheckpointError> {
        Ok(self.opt_f32(name)?.filter(|value| *value != 0.0))
    }

    /// A positive number; 0 counts as absent.
    pub fn opt_positive(&self, name: &str) -> Result<Option<f32>, CheckpointError> {
        match self.opt_nonzero(name)? {
            Some(value) if value < 0.0 => {
                Err(CheckpointError::bad_value(self.key(name), format!("{value} is not a positive number")))
            }
            value => Ok(value),
        }
    }

    pub fn positive(&self, name: &str) -> Result<f32, CheckpointError> {
        self.opt_positive(name)?.ok_or_else(|| self.missing(name, "a positive number"))
    }

    pub fn opt_size(&self, name: &str, max: usize) -> Result<Option<usize>, CheckpointError> {
        let size = |value: &Value| value.as_u64().and_then(|value| usize::try_from(value).ok());
        self.opt(name, "a whole number", size)?
            .map(|value| checked_size(&self.key(name), value, max))
            .transpose()
    }

    pub fn size(&self, name: &str, max: usize) -> Result<usize, CheckpointError> {
        self.opt_size(name, max)?.ok_or_else(|| self.missing(name, "a whole number"))
    }

    pub fn missing(&self, name: &str, expected: &str) -> CheckpointError {
        CheckpointError::bad_value(
            self.key(name),
            format!("is missing from config.json (expected {expected})"),
        )
    }

    /// The value of `name` as `convert` takes it; `expected` says in words what it takes.
    pub fn opt<T>(
        &self,
        name: &str,
        expected: &str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, CheckpointError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match convert(value) {
            Some(converted) => Ok(Some(converted)),
            None => Err(CheckpointError::bad_value(self.key(name), format!("must be {expected}"))),
        }
    }
}

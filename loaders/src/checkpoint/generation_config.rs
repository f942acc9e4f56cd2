//! generation_config.json of an HF folder: the defaults of answers.
use super::error::CheckpointError;
use super::hf_folder::read_json;
use super::hf_keys::Section;
use serde_json::{Map, Value};
use std::path::Path;

const FILE: &str = "generation_config.json";

/// The keys of generation_config.json that bear on an answer; `None` for those that it lacks or that are null.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationConfig {
    /// False for greedy decoding.
    pub do_sample: Option<bool>,
    /// Divides the logits.
    pub temperature: Option<f32>,
    /// Number of likeliest tokens that stay in the draw.
    pub top_k: Option<i32>,
    /// Probability of the likeliest tokens that stay in the draw.
    pub top_p: Option<f32>,
    /// Least probability of a token in the draw, as a share of the largest.
    pub min_p: Option<f32>,
    /// Probability of the tokens of expected surprise that stay in the draw.
    pub typical_p: Option<f32>,
    /// Divisor of the logits of tokens that occurred.
    pub repetition_penalty: Option<f32>,
    /// Tokens that end an answer (`eos_token_id`, one or a list).
    pub eos_token_ids: Vec<u32>,
}

impl GenerationConfig {
    /// Reads the file of `folder`; everything is absent when there is none.
    ///
    /// # Errors
    /// A file that is not JSON, or a key with a value of another type.
    pub fn read(folder: &Path) -> Result<Self, CheckpointError> {
        let path = folder.join(FILE);
        if !path.try_exists().map_err(|source| CheckpointError::Io { path: path.clone(), source })? {
            return Ok(Self::default());
        }
        let root: Map<String, Value> = read_json(&path)?;
        let keys = Section::of_file(FILE, &root);
        let int = |value: &Value| value.as_i64().and_then(|value| i32::try_from(value).ok());
        Ok(Self {
            do_sample: keys.opt_bool("do_sample")?,
            temperature: keys.opt_f32("temperature")?,
            top_k: keys.opt("top_k", "a whole number", int)?,
            top_p: keys.opt_f32("top_p")?,
            min_p: keys.opt_f32("min_p")?,
            typical_p: keys.opt_f32("typical_p")?,
            repetition_penalty: keys.opt_f32("repetition_penalty")?,
            eos_token_ids: keys.opt("eos_token_id", "a token id or a list of them", ids)?.unwrap_or_default(),
        })
    }
}

fn ids(value: &Value) -> Option<Vec<u32>> {
    match value {
        Value::Array(ids) => ids.iter().map(id).collect(),
        one => id(one).map(|id| vec![id]),
    }
}

fn id(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|id| u32::try_from(id).ok())
}

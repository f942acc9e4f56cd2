//! Sampling settings, where each came from, and what values are sane.

use ember_loaders::checkpoint::GenerationConfig;
use ember_loaders::gguf::{GgufError, Metadata};
use serde::{Deserialize, Serialize};
use std::fmt;
use thiserror::Error;

/// A setting outside its range.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{field} is {value}: it must be {range}")]
pub struct ParamError {
    /// Name of the setting.
    pub field: &'static str,
    /// The value given.
    pub value: String,
    /// The accepted values, in words.
    pub range: &'static str,
    /// The source of the value, where it is known.
    pub set_by: Option<Source>,
}

/// Settings as a request or a file gives them: any may be absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SamplingOptions {
    /// See [`SamplingParams::temperature`].
    pub temperature: Option<f32>,
    /// See [`SamplingParams::top_k`].
    pub top_k: Option<i32>,
    /// See [`SamplingParams::top_p`].
    pub top_p: Option<f32>,
    /// See [`SamplingParams::min_p`].
    pub min_p: Option<f32>,
    /// See [`SamplingParams::typical_p`].
    pub typical_p: Option<f32>,
    /// See [`SamplingParams::repeat_penalty`].
    pub repeat_penalty: Option<f32>,
    /// See [`SamplingParams::repeat_last_n`].
    pub repeat_last_n: Option<i32>,
    /// See [`SamplingParams::presence_penalty`].
    pub presence_penalty: Option<f32>,
    /// See [`SamplingParams::frequency_penalty`].
    pub frequency_penalty: Option<f32>,
    /// See [`SamplingParams::logit_bias`].
    pub logit_bias: Option<Vec<(u32, f32)>>,
    /// See [`SamplingParams::seed`].
    pub seed: Option<u64>,
}

impl SamplingOptions {
    /// The defaults a GGUF file carries under `general.sampling.*`.
    ///
    /// # Errors
    /// A key of another type.
    pub fn from_metadata(metadata: &Metadata) -> Result<Self, GgufError> {
        let float = |name: &str| metadata.opt_f32(&format!("general.sampling.{name}"));
        let int = |name: &str| metadata.opt_i32(&format!("general.sampling.{name}"));
        Ok(Self {
            temperature: float("temp")?,
            top_k: int("top_k")?,
            top_p: float("top_p")?,
            min_p: float("min_p")?,
            repeat_penalty: float("penalty_repeat")?,
            repeat_last_n: int("penalty_last_n")?,
            ..Self::default()
        })
    }
}

impl From<&GenerationConfig> for SamplingOptions {
    /// The defaults of a Hugging Face folder, with the meaning that transformers gives them.
    fn from(config: &GenerationConfig) -> Self {
        let temperature = match config.do_sample {
            Some(false) => Some(0.0),
            Some(true) => config.temperature.or(Some(1.0)),
            None => config.temperature,
        };
        Self {
            temperature,
            top_k: config.top_k,
            top_p: config.top_p,
            min_p: config.min_p,
            typical_p: config.typical_p,
            repeat_penalty: config.repetition_penalty,
            // It has no window there.
            repeat_last_n: config.repetition_penalty.map(|_| -1),
            ..Self::default()
        }
    }
}

/// Complete settings. [`Default`] is greedy: the likeliest token, no penalties.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SamplingParams {
    /// Divides the logits before the draw; 0 takes the likeliest token.
    pub temperature: f32,
    /// Keeps the k likeliest tokens; 0 or less keeps all.
    pub top_k: i32,
    /// Keeps the fewest likeliest tokens that hold this much probability; 1 keeps all.
    pub top_p: f32,
    /// Keeps tokens at least this fraction as likely as the likeliest; 0 keeps all.
    pub min_p: f32,
    /// Keeps the tokens nearest to the expected surprise that hold this much probability; 1 keeps all.
    pub typical_p: f32,
    /// Divides the positive and multiplies the negative logits of the last tokens of prompt and answer; 1 is off.
    pub repeat_penalty: f32,
    /// Number of last tokens that `repeat_penalty` sees; -1 is all, 0 none.
    pub repeat_last_n: i32,
    /// Subtracted from the logit of each token of the answer so far, its reasoning included; the prompt does not count.
    pub presence_penalty: f32,
    /// As `presence_penalty`, once per occurrence.
    pub frequency_penalty: f32,
    /// Added to single tokens' logits; minus infinity bans a token.
    pub logit_bias: Vec<(u32, f32)>,
    /// Seed of the draw: the same seed and logits give the same tokens. Chosen at random when absent.
    pub seed: Option<u64>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 1.0,
            repeat_penalty: 1.0,
            repeat_last_n: 64,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: None,
        }
    }
}

impl SamplingParams {
    /// True if earlier tokens change the logits.
    pub fn has_penalties(&self) -> bool {
        self.repeat_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }

    /// Checks every range.
    ///
    /// # Errors
    /// The first setting outside its range.
    pub fn validate(&self) -> Result<(), ParamError> {
        let float = |field, value: f32, ok: fn(f32) -> bool, range| {
            if ok(value) {
                return Ok(());
            }
            Err(ParamError { field, value: value.to_string(), range, set_by: None })
        };
        let unit = |x| (0.0..=1.0).contains(&x);
        float("temperature", self.temperature, |x| x >= 0.0 && x.is_finite(), "0 (greedy) or more")?;
        float("top_p", self.top_p, unit, "between 0 and 1")?;
        float("min_p", self.min_p, unit, "between 0 and 1")?;
        float("typical_p", self.typical_p, unit, "between 0 and 1")?;
        float("repeat_penalty", self.repeat_penalty, |x| x > 0.0 && x.is_finite(), "more than 0 (1 is off)")?;
        float("presence_penalty", self.presence_penalty, f32::is_finite, "a finite number")?;
        float("frequency_penalty", self.frequency_penalty, f32::is_finite, "a finite number")?;
        if self.repeat_last_n < -1 {
            let value = self.repeat_last_n.to_string();
            let (field, range) = ("repeat_last_n", "-1 (all), 0 (none) or more");
            return Err(ParamError { field, value, range, set_by: None });
        }
        for (_, bias) in &self.logit_bias {
            float("logit_bias", *bias, |x| x < f32::INFINITY, "a finite number or minus infinity")?;
        }
        Ok(())
    }
}

/// The source of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The caller.
    Request,
    /// The model file's `general.sampling.*`, or the folder's generation_config.json.
    File,
    /// The card of the model's family: see [`card`](super::card).
    Card,
    /// Nobody: the built-in value.
    Default,
}

impl Source {
    /// The source's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::File => "file",
            Self::Card => "card",
            Self::Default => "default",
        }
    }
}

/// Settings in force and the source of each. Displays as one line for the statistics.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedSampling {
    /// The settings, within their ranges; in an answer's result the seed is the one that was used.
    pub params: SamplingParams,
    settings: Vec<(&'static str, String, Source)>,
}

impl ResolvedSampling {
    /// Takes each setting from the first layer that has it, and what no layer has from [`SamplingParams::default`].
    ///
    /// # Errors
    /// A setting outside its range.
    pub fn new(layers: &[(Source, &SamplingOptions)]) -> Result<Self, ParamError> {
        let default = SamplingParams::default();
        let mut settings = Vec::new();
        macro_rules! pick {
            ($field:ident, $show:expr) => {{
                let found =
                    layers.iter().find_map(|(source, layer)| layer.$field.clone().map(|v| (v, *source)));
                let (value, source) =
                    found.unwrap_or_else(|| (default.$field.clone().into(), Source::Default));
                settings.push((stringify!($field), $show(&value), source));
                value
            }};
        }
        let params = SamplingParams {
            temperature: pick!(temperature, f32::to_string),
            top_k: pick!(top_k, i32::to_string),
            top_p: pick!(top_p, f32::to_string),
            min_p: pick!(min_p, f32::to_string),
            typical_p: pick!(typical_p, f32::to_string),
            repeat_penalty: pick!(repeat_penalty, f32::to_string),
            repeat_last_n: pick!(repeat_last_n, i32::to_string),
            presence_penalty: pick!(presence_penalty, f32::to_string),
            frequency_penalty: pick!(frequency_penalty, f32::to_string),
            logit_bias: pick!(logit_bias, |bias: &Vec<_>| format!("of {} tokens", bias.len())),
            seed: layers.iter().find_map(|(_, layer)| layer.seed),
        };
        let resolved = Self { params, settings };
        match resolved.params.validate() {
            Ok(()) => Ok(resolved),
            Err(error) => Err(ParamError { set_by: resolved.source(error.field), ..error }),
        }
    }

    /// The source of the field of that name; `None` for an unknown name.
    pub fn source(&self, field: &str) -> Option<Source> {
        self.settings.iter().find(|(name, ..)| *name == field).map(|(.., source)| *source)
    }

    /// Every field that has a source, with it: all but the seed.
    pub fn sources(&self) -> impl Iterator<Item = (&'static str, Source)> {
        self.settings.iter().map(|(name, _, source)| (*name, *source))
    }

    /// A line for people, with other names for the sources than their own.
    pub fn describe(&self, source_name: impl Fn(Source) -> &'static str) -> String {
        let greedy = self.params.temperature == 0.0;
        let shown = self.settings.iter().filter(|(name, _, source)| {
            let filter = matches!(*name, "top_k" | "top_p" | "min_p" | "typical_p");
            *name == "temperature" || (*source != Source::Default && !(greedy && filter))
        });
        let mut parts: Vec<String> = shown
            .map(|(name, value, source)| match *name {
                "temperature" if greedy => format!("greedy ({})", source_name(*source)),
                _ => format!("{name} {value} ({})", source_name(*source)),
            })
            .collect();
        parts.extend(self.params.seed.filter(|_| !greedy).map(|seed| format!("seed {seed}")));
        parts.join(", ")
    }
}

impl fmt::Display for ResolvedSampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe(Source::name))
    }
}

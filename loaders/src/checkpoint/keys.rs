//! Architecture metadata: keys under the file's own label, with their values checked for sense.

use super::config::checked_size;
use super::error::CheckpointError;
use crate::gguf::Metadata;

/// The keys `{label}.…` of a GGUF file.
pub(crate) struct Keys<'a> {
    pub metadata: &'a Metadata,
    pub label: &'a str,
}

impl<'a> Keys<'a> {
    pub fn key(&self, suffix: &str) -> String {
        format!("{}.{suffix}", self.label)
    }

    /// A required count or width, from 1 to `max`.
    pub fn size(&self, suffix: &str, max: usize) -> Result<usize, CheckpointError> {
        let key = self.key(suffix);
        checked_size(&key, self.metadata.usize(&key)?, max)
    }

    pub fn opt_size(&self, suffix: &str, max: usize) -> Result<Option<usize>, CheckpointError> {
        let key = self.key(suffix);
        self.metadata.opt_usize(&key)?.map(|value| checked_size(&key, value, max)).transpose()
    }

    pub fn opt_usize(&self, suffix: &str) -> Result<Option<usize>, CheckpointError> {
        Ok(self.metadata.opt_usize(&self.key(suffix))?)
    }

    pub fn opt_str(&self, suffix: &str) -> Result<Option<&'a str>, CheckpointError> {
        Ok(self.metadata.opt_str(&self.key(suffix))?)
    }

    pub fn opt_bool(&self, suffix: &str) -> Result<Option<bool>, CheckpointError> {
        Ok(self.metadata.opt_bool(&self.key(suffix))?)
    }

    /// A finite number.
    pub fn opt_f32(&self, suffix: &str) -> Result<Option<f32>, CheckpointError> {
        let key = self.key(suffix);
        match self.metadata.opt_f32(&key)? {
            Some(value) if !value.is_finite() => {
                Err(CheckpointError::bad_value(key, format!("{value} is not a finite number")))
            }
            value => Ok(value),
        }
    }

    /// A finite number; 0 counts as absent, which is how llama.cpp writes unset values.
    pub fn opt_nonzero(&self, suffix: &str) -> Result<Option<f32>, CheckpointError> {
        Ok(self.opt_f32(suffix)?.filter(|value| *value != 0.0))
    }

    /// A positive number; 0 counts as absent.
    pub fn opt_positive(&self, suffix: &str) -> Result<Option<f32>, CheckpointError> {
        match self.opt_nonzero(suffix)? {
            Some(value) if value < 0.0 => {
                Err(CheckpointError::bad_value(self.key(suffix), format!("{value} is not a positive number")))
            }
            value => Ok(value),
        }
    }

    /// A required positive number.
    pub fn positive(&self, suffix: &str) -> Result<f32, CheckpointError> {
        let key = self.key(suffix);
        let value = self.metadata.f32(&key)?;
        if value.is_finite() && value > 0.0 {
            Ok(value)
        } else {
            Err(CheckpointError::bad_value(key, format!("{value} is not a positive number")))
        }
    }

    /// Refuses keys that ask for computations no supported architecture has.
    pub fn refuse_foreign_maths(&self) -> Result<(), CheckpointError> {
        if let Some(experts) = self.opt_usize("expert_count")?.filter(|count| *count > 0) {
            let problem = format!("{experts}: mixture-of-experts models are not supported, only dense ones");
            return Err(CheckpointError::bad_value(self.key("expert_count"), problem));
        }
        for (suffix, neutral) in [
            ("logit_scale", 1.0),
            ("residual_scale", 1.0),
            ("embedding_scale", 1.0),
            ("attn_logit_softcapping", 0.0),
            ("final_logit_softcapping", 0.0),
            ("attention.clamp_kqv", 0.0),
            ("attention.max_alibi_bias", 0.0),
            ("rope.scaling.alpha", 0.0),
        ] {
            if let Some(value) = self.opt_nonzero(suffix)?.filter(|value| *value != neutral) {
                return Err(self.not_supported(suffix, &value.to_string()));
            }
        }
        for (suffix, foreign) in [("use_parallel_residual", true), ("attention.causal", false)] {
            if self.opt_bool(suffix)? == Some(foreign) {
                return Err(self.not_supported(suffix, &foreign.to_string()));
            }
        }
        Ok(())
    }

    fn not_supported(&self, suffix: &str, value: &str) -> CheckpointError {
        let problem = format!("{value} is not supported: no accepted architecture uses it");
        CheckpointError::bad_value(self.key(suffix), problem)
    }

    /// Refuses a sliding window that is shorter than the context; a longer one never hides anything.
    pub fn refuse_sliding_window(&self, context: usize) -> Result<(), CheckpointError> {
        match self.opt_usize("attention.sliding_window")? {
            Some(window) if window > 0 && window < context => Err(CheckpointError::bad_value(
                self.key("attention.sliding_window"),
                format!(
                    "a window of {window} tokens within a context of {context} is not supported; only \
                     full attention is"
                ),
            )),
            _ => Ok(()),
        }
    }
}

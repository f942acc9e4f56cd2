//! Settings of answers: those that are asked for, then the model file's, then the defaults.
use crate::error::Error;
use crate::sampling::{ResolvedSampling, Sampler, SamplingOptions, Source};
use ember_loaders::checkpoint::Checkpoint;

/// Tokens of an answer at most, when no limit is given.
pub const MAX_TOKENS: usize = 100;
/// Tokens of an answer at most when the model thinks before it: it needs room for that.
pub const MAX_TOKENS_THINKING: usize = 1000;

/// The settings that a caller asks for; absent ones are the model file's or the defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AnswerOptions {
    /// Sampling settings.
    pub sampling: SamplingOptions,
    /// Tokens to generate at most; the default is [`MAX_TOKENS`], or [`MAX_TOKENS_THINKING`] when the model thinks.
    pub max_tokens: Option<usize>,
    /// Texts that end an answer, which ends before them.
    pub stop: Vec<String>,
}

impl AnswerOptions {
    /// Tokens to generate at most.
    pub fn max_tokens(&self, thinks: bool) -> usize {
        self.max_tokens.unwrap_or(if thinks { MAX_TOKENS_THINKING } else { MAX_TOKENS })
    }

    /// Settles each sampling setting: the caller's, else the model file's own, else the default, which is greedy.
    ///
    /// # Errors
    /// [`Error::Setting`] for a setting outside its range, [`Error::Gguf`] for a malformed one in the file.
    pub fn resolve(self, checkpoint: &Checkpoint) -> Result<AnswerSettings, Error> {
        let of_file = match checkpoint.gguf() {
            Some(gguf) => SamplingOptions::from_metadata(gguf.metadata())?,
            None => SamplingOptions::default(),
        };
        let resolved = ResolvedSampling::new(&[(Source::Flag, &self.sampling), (Source::File, &of_file)])?;
        let sampler = Sampler::new(resolved.params.clone())?;
        Ok(AnswerSettings { options: self, resolved, sampler })
    }
}

/// The settings in force, and the random choices made with them.
#[derive(Clone, Debug)]
pub struct AnswerSettings {
    /// The options that they follow from.
    pub options: AnswerOptions,
    resolved: ResolvedSampling,
    pub(crate) sampler: Sampler,
}

impl AnswerSettings {
    /// A line for people: each sampling setting and who set it.
    pub fn description(&self) -> String {
        match self.resolved.params.temperature > 0.0 {
            true => format!("{}, seed {}", self.resolved, self.sampler.seed()),
            false => self.resolved.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinking_gets_more_tokens() {
        let options = AnswerOptions::default();
        assert_eq!((options.max_tokens(false), options.max_tokens(true)), (100, 1000));
        let options = AnswerOptions { max_tokens: Some(7), ..options };
        assert_eq!(options.max_tokens(true), 7);
    }
}

//! Settings of answers: those that are asked for, then the model file's, then its card's, then the defaults.
use crate::error::Error;
use crate::sampling::{ParamError, ResolvedSampling, Sampler, SamplingOptions, Source, Thinking, card};
use ember_loaders::checkpoint::{Arch, Checkpoint};

/// The settings that a caller asks for; absent ones are the model's or the defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AnswerOptions {
    /// Sampling settings.
    pub sampling: SamplingOptions,
    /// Tokens to generate at most; without it an answer ends where the model ends it, or with the context.
    pub max_tokens: Option<usize>,
    /// Texts that end an answer, which ends before them.
    pub stop: Vec<String>,
    /// True to let an answer go on that repeats the same few tokens without end: at most
    /// [`MAX_CYCLE`](crate::engine::MAX_CYCLE) of them for [`MAX_REPEATED`](crate::engine::MAX_REPEATED) tokens.
    pub no_loop_check: bool,
}

impl AnswerOptions {
    /// Settles each sampling setting: the caller's, else the model file's own, else that of its family's card, else the
    /// default, which is greedy.
    ///
    /// # Errors
    /// [`Error::Setting`] for a setting outside its range, [`Error::FileSetting`] for one of the file,
    /// [`Error::Gguf`] for a malformed one in the file.
    pub fn resolve(self, checkpoint: &Checkpoint) -> Result<AnswerSettings, Error> {
        let of_file = match (checkpoint.gguf(), checkpoint.generation_config()) {
            (Some(gguf), _) => SamplingOptions::from_metadata(gguf.metadata())?,
            (None, Some(config)) => config.into(),
            (None, None) => SamplingOptions::default(),
        };
        let arch = checkpoint.config().arch;
        let named = |setting: ParamError| match setting.set_by {
            Some(Source::File) if checkpoint.gguf().is_some() => {
                Error::FileSetting { path: checkpoint.path().to_owned(), setting }
            }
            Some(Source::File) => {
                Error::FileSetting { path: checkpoint.path().join("generation_config.json"), setting }
            }
            _ => Error::Setting(setting),
        };
        let resolved = resolve(&self.sampling, &of_file, arch, Thinking::Unknown).map_err(named)?;
        let sampler = Sampler::new(resolved.params)?;
        Ok(AnswerSettings { options: self, of_file, arch, sampler })
    }
}

fn resolve(
    asked: &SamplingOptions,
    of_file: &SamplingOptions,
    arch: Arch,
    thinking: Thinking,
) -> Result<ResolvedSampling, ParamError> {
    let of_card = card(arch, thinking);
    ResolvedSampling::new(&[(Source::Request, asked), (Source::File, of_file), (Source::Card, &of_card)])
}

/// The settings in force, and the random choices made with them.
#[derive(Clone, Debug)]
pub struct AnswerSettings {
    /// The options that they follow from.
    pub options: AnswerOptions,
    of_file: SamplingOptions,
    arch: Arch,
    sampler: Sampler,
}

impl AnswerSettings {
    /// The sampling settings of an answer, with the seed in use: a card's may depend on whether the model reasons.
    pub fn sampling(&self, thinking: Thinking) -> ResolvedSampling {
        let resolved = resolve(&self.options.sampling, &self.of_file, self.arch, thinking);
        let mut resolved =
            resolved.expect("a card's settings lie within the ranges, and the others were checked");
        resolved.params.seed = Some(self.sampler.seed());
        resolved
    }

    /// The sampler, set for an answer.
    pub(crate) fn sampler(&mut self, thinking: Thinking) -> &mut Sampler {
        let params = self.sampling(thinking).params;
        self.sampler.set_params(params).expect("they were checked when they were resolved");
        &mut self.sampler
    }
}

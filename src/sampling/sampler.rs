//! The chain: bias, penalties, top-k, typical, top-p, min-p, temperature, draw.

use super::filters::{self, Candidate};
use super::params::{ParamError, SamplingParams};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use thiserror::Error;

/// The reason no token could be chosen.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum SamplingError {
    /// A logit is NaN or plus infinity: the model's numbers broke down.
    #[error(
        "the model's logit of token {token} is {value}: its activations overflowed, so the answer stops here"
    )]
    NotFinite {
        /// First such token.
        token: u32,
        /// The logit.
        value: f32,
    },
    /// Every token is banned.
    #[error("no token can follow: all logits are minus infinity")]
    NoCandidate,
    /// A bias for a token the vocabulary lacks.
    #[error("logit_bias: token {token} is not in the vocabulary of {vocab} tokens")]
    UnknownToken {
        /// The token.
        token: u32,
        /// Size of the vocabulary.
        vocab: usize,
    },
}

/// Most of the likeliest tokens that [`Sampler::likeliest_needed`] asks for.
const MAX_LIKELIEST: usize = 64;

/// Chooses the tokens of one sequence.
#[derive(Debug, Clone)]
pub struct Sampler {
    params: SamplingParams,
    seed: u64,
    rng: ChaCha8Rng,
    candidates: Vec<Candidate>,
    /// Occurrences of each token of the vocabulary; all zero between uses.
    counts: Vec<u32>,
}

impl Sampler {
    /// A sampler with its own random stream.
    ///
    /// # Errors
    /// A setting outside its range.
    pub fn new(params: SamplingParams) -> Result<Self, ParamError> {
        params.validate()?;
        // Readers of JSON hold numbers as doubles: a seed of 53 bits is the same when it comes back.
        let seed = params.seed.unwrap_or_else(|| ChaCha8Rng::from_os_rng().next_u64() >> 11);
        let rng = ChaCha8Rng::seed_from_u64(seed);
        Ok(Self { params, seed, rng, candidates: Vec::new(), counts: Vec::new() })
    }

    /// The seed in use: the one given, or the one chosen at random.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The settings in use.
    pub fn params(&self) -> &SamplingParams {
        &self.params
    }

    /// Changes the settings; the random stream goes on, whatever seed they name.
    ///
    /// # Errors
    /// A setting outside its range; the settings then stay.
    pub fn set_params(&mut self, params: SamplingParams) -> Result<(), ParamError> {
        params.validate()?;
        self.params = params;
        Ok(())
    }

    /// Chooses the next token from `logits` `[vocab]`, which is overwritten, after `prompt` and the answer so far,
    /// `generated`. Minus infinity bans a token.
    ///
    /// # Errors
    /// [`SamplingError`]; never a made-up token.
    pub fn sample(
        &mut self,
        logits: &mut [f32],
        prompt: &[u32],
        generated: &[u32],
    ) -> Result<u32, SamplingError> {
        check_finite(logits)?;
        self.apply_bias(logits)?;
        self.apply_repeat_penalty(logits, prompt, generated);
        self.apply_answer_penalties(logits, generated);
        let greedy = self.params.temperature == 0.0;
        let best = likeliest(logits).ok_or(SamplingError::NoCandidate)?;
        if greedy {
            return Ok(best);
        }
        self.filter(logits);
        Ok(self.draw())
    }

    /// Number of the likeliest tokens that decide the draw, when that is few: then
    /// [`sample_likeliest`](Self::sample_likeliest) draws as [`sample`](Self::sample) does, and a device need not send
    /// all logits. `None` when any token's logit may matter: biases, penalties, filters over the whole distribution.
    pub fn likeliest_needed(&self) -> Option<usize> {
        let p = &self.params;
        if !p.logit_bias.is_empty() || p.has_penalties() {
            return None;
        }
        match (p.temperature == 0.0, usize::try_from(p.top_k)) {
            (true, _) => Some(1),
            (false, Ok(k @ 1..=MAX_LIKELIEST)) => Some(k),
            (false, _) => None,
        }
    }

    /// Chooses the next token from the [`likeliest_needed`](Self::likeliest_needed) likeliest ones, likeliest first,
    /// each with its logit.
    ///
    /// # Errors
    /// [`SamplingError`]; never a made-up token.
    pub fn sample_likeliest(&mut self, likeliest: &[(u32, f32)]) -> Result<u32, SamplingError> {
        let not_finite = |&&(_, logit): &&(u32, f32)| logit.is_nan() || logit == f32::INFINITY;
        if let Some(&(token, value)) = likeliest.iter().find(not_finite) {
            return Err(SamplingError::NotFinite { token, value });
        }
        self.candidates.clear();
        let allowed = likeliest.iter().filter(|(_, logit)| *logit > f32::NEG_INFINITY);
        self.candidates.extend(allowed.map(|&(id, logit)| Candidate { id, logit }));
        let best = self.candidates.first().ok_or(SamplingError::NoCandidate)?.id;
        if self.params.temperature == 0.0 {
            return Ok(best);
        }
        self.filter_candidates();
        Ok(self.draw())
    }

    fn apply_bias(&self, logits: &mut [f32]) -> Result<(), SamplingError> {
        let vocab = logits.len();
        for &(token, bias) in &self.params.logit_bias {
            *logits.get_mut(token as usize).ok_or(SamplingError::UnknownToken { token, vocab })? += bias;
        }
        Ok(())
    }

    fn apply_repeat_penalty(&mut self, logits: &mut [f32], prompt: &[u32], generated: &[u32]) {
        let SamplingParams { repeat_penalty: penalty, repeat_last_n, .. } = self.params;
        if penalty == 1.0 {
            return;
        }
        let window = usize::try_from(repeat_last_n).unwrap_or(usize::MAX);
        let (of_answer, of_prompt) = (window.min(generated.len()), window.saturating_sub(generated.len()));
        let of_answer = &generated[generated.len() - of_answer..];
        let of_prompt = &prompt[prompt.len() - of_prompt.min(prompt.len())..];
        self.for_each_distinct(logits, of_prompt.iter().chain(of_answer), |logit, _| {
            *logit = if *logit <= 0.0 { *logit * penalty } else { *logit / penalty };
        });
    }

    /// The presence and the frequency penalty.
    fn apply_answer_penalties(&mut self, logits: &mut [f32], generated: &[u32]) {
        let SamplingParams { presence_penalty: presence, frequency_penalty: frequency, .. } = self.params;
        if presence != 0.0 || frequency != 0.0 {
            self.for_each_distinct(logits, generated.iter(), |logit, n| *logit -= n * frequency + presence);
        }
    }

    /// Calls `change` once for each of `tokens`, with its logit and the number of times that it occurs.
    fn for_each_distinct<'a>(
        &mut self,
        logits: &mut [f32],
        tokens: impl Iterator<Item = &'a u32> + Clone,
        change: impl Fn(&mut f32, f32),
    ) {
        self.counts.resize(logits.len(), 0);
        for &token in tokens.clone() {
            // A prompt may hold image placeholders beyond the vocabulary: they have no logit.
            if let Some(count) = self.counts.get_mut(token as usize) {
                *count += 1;
            }
        }
        for &token in tokens {
            if let Some(count) = self.counts.get_mut(token as usize).filter(|count| **count > 0) {
                change(&mut logits[token as usize], std::mem::take(count) as f32);
            }
        }
    }

    fn filter(&mut self, logits: &[f32]) {
        let (p, candidates) = (&self.params, &mut self.candidates);
        candidates.clear();
        let allowed = (0..).zip(logits).filter(|(_, logit)| **logit > f32::NEG_INFINITY);
        candidates.extend(allowed.map(|(id, &logit)| Candidate { id, logit }));
        if p.top_k > 0 {
            filters::top_k(candidates, p.top_k as usize);
        }
        self.filter_candidates();
    }

    /// The filters after top-k.
    fn filter_candidates(&mut self) {
        let (p, candidates) = (&self.params, &mut self.candidates);
        if p.typical_p < 1.0 {
            filters::typical(candidates, p.typical_p);
        }
        if p.top_p < 1.0 {
            filters::top_p(candidates, p.top_p);
        }
        if p.min_p > 0.0 {
            filters::min_p(candidates, p.min_p);
        }
    }

    /// Draws one of the candidates, of which there is at least one.
    fn draw(&mut self) -> u32 {
        for candidate in &mut self.candidates {
            candidate.logit /= self.params.temperature;
        }
        let weight = filters::weights(&self.candidates);
        let total: f64 = self.candidates.iter().map(&weight).sum();
        // The top 53 bits as a fraction in [0, 1).
        let mut left = (self.rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64 * total;
        let hit = self.candidates.iter().find(|candidate| {
            left -= weight(candidate);
            left < 0.0
        });
        // Rounding may leave a sliver after the last candidate.
        hit.or(self.candidates.last()).expect("a filter keeps at least one candidate").id
    }
}

fn check_finite(logits: &[f32]) -> Result<(), SamplingError> {
    match (0..).zip(logits).find(|(_, x)| x.is_nan() || **x == f32::INFINITY) {
        Some((token, &value)) => Err(SamplingError::NotFinite { token, value }),
        None => Ok(()),
    }
}

/// The token of the largest logit, the lowest id of equals; `None` if all are minus infinity.
fn likeliest(logits: &[f32]) -> Option<u32> {
    let mut best = None;
    let mut max = f32::NEG_INFINITY;
    for (id, &logit) in (0..).zip(logits) {
        if logit > max {
            (best, max) = (Some(id), logit);
        }
    }
    best
}

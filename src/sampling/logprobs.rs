//! Log-probabilities of tokens under the model: of its own logits, before bias, penalties, filters and temperature.
use super::filters::{self, Candidate};

/// The log-probability of a token, and the likeliest tokens in its place.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    /// The token.
    pub token: u32,
    /// Its natural logarithm of the probability; finite.
    pub logprob: f32,
    /// The likeliest tokens with theirs, likeliest first, of equals the lowest id.
    pub likeliest: Vec<(u32, f32)>,
}

/// The log-softmax of one row of logits, for any of its tokens.
#[derive(Clone, Copy, Debug)]
pub struct Logprobs<'a> {
    logits: &'a [f32],
    /// Logarithm of the sum of the exponentials.
    log_sum: f64,
}

impl<'a> Logprobs<'a> {
    /// Sums over all of `logits` `[vocab]`, which are finite.
    pub fn new(logits: &'a [f32]) -> Self {
        let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        let sum: f64 = logits.iter().map(|&logit| (f64::from(logit) - max).exp()).sum();
        Self { logits, log_sum: max + sum.ln() }
    }

    /// The log-probability of a token; the lowest finite number for a token that has no logit, such as an image's.
    pub fn of(&self, token: u32) -> f32 {
        let logit = self.logits.get(token as usize).map_or(f64::NEG_INFINITY, |&logit| f64::from(logit));
        ((logit - self.log_sum) as f32).max(f32::MIN)
    }

    /// A token's log-probability with the `n` likeliest tokens.
    pub fn with_likeliest(&self, token: u32, n: usize) -> TokenLogprobs {
        let mut candidates: Vec<Candidate> =
            (0..).zip(self.logits).map(|(id, &logit)| Candidate { id, logit }).collect();
        filters::top_k(&mut candidates, n);
        let likeliest = candidates.iter().map(|candidate| (candidate.id, self.of(candidate.id))).collect();
        TokenLogprobs { token, logprob: self.of(token), likeliest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_add_up_to_one_and_follow_the_logits() {
        let logits = [1.0, 3.0, 3.0, -2.0];
        let logprobs = Logprobs::new(&logits);
        let sum: f64 = (0..4).map(|token| f64::from(logprobs.of(token)).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-6, "{sum}");
        assert!((logprobs.of(1) - logprobs.of(0) - 2.0).abs() < 1e-6);
        let of_three = logprobs.with_likeliest(3, 2);
        assert_eq!((of_three.token, of_three.logprob), (3, logprobs.of(3)));
        assert_eq!(of_three.likeliest, [(1, logprobs.of(1)), (2, logprobs.of(2))]);
        assert!(logprobs.with_likeliest(0, 0).likeliest.is_empty());
    }

    #[test]
    fn they_stay_finite() {
        let logprobs = Logprobs::new(&[3.0e38, -3.0e38]);
        assert_eq!((logprobs.of(0), logprobs.of(1)), (0.0, f32::MIN));
        assert_eq!(logprobs.of(7), f32::MIN, "a token without a logit");
    }
}

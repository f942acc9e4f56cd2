//! The set of tokens that may follow, applied to logits.

/// The tokens of a vocabulary that may come next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenMask {
    /// A bit for each token, the lowest of the first word for token 0.
    words: Vec<u32>,
    vocab: usize,
}

impl TokenMask {
    /// The mask of `vocab` tokens whose bits are set in `words`; bits beyond the vocabulary count for nothing.
    pub fn from_words(mut words: Vec<u32>, vocab: usize) -> Self {
        words.resize(vocab.div_ceil(32), 0);
        if let (Some(last), used @ 1..) = (words.last_mut(), vocab % 32) {
            *last &= (1 << used) - 1;
        }
        Self { words, vocab }
    }

    /// The mask that allows every token of `vocab` but those of `forbidden`.
    pub fn all_but(vocab: usize, forbidden: &[u32]) -> Self {
        let mut mask = Self::from_words(vec![u32::MAX; vocab.div_ceil(32)], vocab);
        for &token in forbidden {
            if let Some(word) = mask.words.get_mut(token as usize / 32) {
                *word &= !(1 << (token % 32));
            }
        }
        mask
    }

    /// The mask that allows only `tokens`.
    pub fn only(vocab: usize, tokens: &[u32]) -> Self {
        let mut mask = Self::from_words(Vec::new(), vocab);
        tokens.iter().for_each(|&token| mask.allow(token));
        mask
    }

    /// Allows one more token; one outside the vocabulary stays forbidden.
    pub fn allow(&mut self, token: u32) {
        if (token as usize) < self.vocab {
            self.words[token as usize / 32] |= 1 << (token % 32);
        }
    }

    /// True if `token` may come next.
    pub fn allows(&self, token: u32) -> bool {
        self.words.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
    }

    /// The number of tokens that may come next.
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The tokens that may come next, ascending.
    pub fn tokens(&self) -> impl Iterator<Item = u32> {
        (0..self.vocab as u32).filter(|&token| self.allows(token))
    }

    /// Forbids the other tokens in `logits` `[rows of the head]`, which may be more than the vocabulary: their logits become
    /// minus infinity. NaN and plus infinity stay, so that the sampler reports a model whose numbers broke down.
    pub fn apply(&self, logits: &mut [f32]) {
        for (token, logit) in (0..).zip(logits) {
            if logit.is_finite() && !self.allows(token) {
                *logit = f32::NEG_INFINITY;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forbidden_and_padding_tokens_get_minus_infinity() {
        let mask = TokenMask::from_words(vec![u32::MAX, 0b1010_0010], 38);
        assert_eq!(mask.count(), 34);
        assert_eq!(mask.tokens().skip(32).collect::<Vec<_>>(), [33, 37]);
        let mut logits = vec![1.0; 40];
        logits[36] = f32::NAN;
        mask.apply(&mut logits);
        assert!(logits[..32].iter().all(|logit| *logit == 1.0));
        assert_eq!((logits[33], logits[37]), (1.0, 1.0));
        for forbidden in [32, 34, 35, 38, 39] {
            assert_eq!(logits[forbidden], f32::NEG_INFINITY, "token {forbidden}");
        }
        assert!(logits[36].is_nan(), "for the sampler to report");
        assert!(!mask.allows(39) && !mask.allows(4000));
    }

    #[test]
    fn masks_are_made_from_tokens() {
        let vocab = 64;
        let mut mask = TokenMask::only(vocab, &[3, 63, 64]);
        assert_eq!(mask.tokens().collect::<Vec<_>>(), [3, 63]);
        mask.allow(5);
        mask.allow(99);
        assert_eq!(mask.tokens().collect::<Vec<_>>(), [3, 5, 63]);
        let rest = TokenMask::all_but(vocab, &[3, 63, 99]);
        assert_eq!(rest.count(), 62);
        assert!(!rest.allows(3) && !rest.allows(63) && rest.allows(62));
    }
}

//! The detection of answers that repeat themselves without end.

/// Longest cycle that counts, in tokens.
pub const MAX_CYCLE: usize = 64;
/// Number of tokens after which a cycle ends an answer.
pub const MAX_REPEATED: usize = 1024;

/// The watch over an answer for a cycle of at most [`MAX_CYCLE`] tokens that fills the last [`MAX_REPEATED`].
#[derive(Clone, Debug)]
pub struct LoopCheck {
    /// For each cycle length from 1 on, the number of last tokens that equal the one as many places before.
    matches: [usize; MAX_CYCLE],
}

impl LoopCheck {
    /// A check of an answer that has not begun.
    pub fn new() -> Self {
        Self { matches: [0; MAX_CYCLE] }
    }

    /// Takes the last of `tokens`, each of which must have been the last once; returns the length of the shortest cycle
    /// that has gone on for too long.
    pub fn push(&mut self, tokens: &[u32]) -> Option<usize> {
        let (last, before) = tokens.split_last()?;
        for (matches, earlier) in self.matches.iter_mut().zip(before.iter().rev()) {
            *matches = if earlier == last { *matches + 1 } else { 0 };
        }
        // The first turn of a cycle has nothing before it to equal.
        (1..)
            .zip(self.matches)
            .find(|(cycle, matches)| cycle + matches >= MAX_REPEATED)
            .map(|(cycle, _)| cycle)
    }
}

impl Default for LoopCheck {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of tokens after which the check ends an answer, and the cycle.
    fn ended(answer: impl IntoIterator<Item = u32>) -> Option<(usize, usize)> {
        let (mut check, mut tokens) = (LoopCheck::new(), Vec::new());
        for token in answer {
            tokens.push(token);
            if let Some(cycle) = check.push(&tokens) {
                return Some((tokens.len(), cycle));
            }
        }
        None
    }

    #[test]
    fn a_cycle_ends_an_answer_after_1024_tokens_of_it() {
        for cycle in [1, 2, 3, 63, 64] {
            let answer = [900, 901, 902].into_iter().chain((0..cycle).cycle().take(5000));
            assert_eq!(ended(answer), Some((3 + 1024, cycle as usize)), "a cycle of {cycle}");
        }
    }

    #[test]
    fn longer_cycles_and_shorter_repetitions_do_not() {
        assert_eq!(ended((0..65).cycle().take(20_000)), None);
        for cycle in [1, 2, 63, 64] {
            let repeated = || (0..cycle).cycle().take(1023);
            assert_eq!(ended(repeated()), None, "a cycle of {cycle}");
            let broken = repeated().chain([900]).chain(repeated()).chain([901]);
            assert_eq!(ended(broken), None, "a cycle of {cycle}");
        }
    }

    /// The check against the definition, on answers that come near to cycles.
    #[test]
    fn it_agrees_with_its_definition() {
        let repeats = |tokens: &[u32], cycle: usize| {
            tokens.len() >= MAX_REPEATED
                && tokens[tokens.len() - MAX_REPEATED..].windows(cycle + 1).all(|w| w[0] == w[cycle])
        };
        for seed in 0..8_usize {
            let cycle = 1 + seed * 31 % 70;
            let flaw = 100 + seed * 151;
            let answer: Vec<u32> =
                (0..2200).map(|i| if i == flaw { 99 } else { (i % cycle % 5) as u32 }).collect();
            let end = (1..=answer.len()).find_map(|n| {
                (1..=MAX_CYCLE).find(|&cycle| repeats(&answer[..n], cycle)).map(|cycle| (n, cycle))
            });
            assert_eq!(ended(answer), end, "seed {seed}");
        }
    }
}

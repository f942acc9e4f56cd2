//! The position-dependent scale of queries that Ministral 3 uses (HF's "llama 4" attention scale).

/// `1 + beta * ln(1 + floor(position / original_context))`, multiplied into a query after its rotation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueryScale {
    /// Strength; never 0 (a checkpoint without the key has no `QueryScale` at all).
    pub beta: f32,
    /// Context length of the pretraining, in tokens; never 0.
    pub original_context: usize,
}

impl QueryScale {
    /// The factor for a query at `position` (0-based).
    pub fn at(&self, position: u32) -> f32 {
        let periods = position as usize / self.original_context;
        (1.0 + f64::from(self.beta) * (periods as f64).ln_1p()) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_at_multiples_of_the_original_context() {
        let scale = QueryScale { beta: 0.1, original_context: 16384 };
        for (position, expected) in [
            (0, 1.0),
            (16383, 1.0),
            (16384, 1.0693147),
            (32767, 1.0693147),
            (32768, 1.1098612),
            (49152, 1.1386294),
            (131072, 1.2197225),
            (262143, 1.2772589),
        ] {
            let actual = f64::from(scale.at(position));
            assert!(
                (actual / expected - 1.0).abs() < 1e-6,
                "position {position}: {actual} is not {expected}"
            );
        }
    }
}

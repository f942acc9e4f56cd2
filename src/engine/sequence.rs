//! One conversation's tokens and the KV blocks that hold them.
use super::BlockPool;

/// Tokens whose keys and values are in the cache. A token that was sampled but not yet run is not part of it.
#[derive(Debug, Default)]
pub struct Sequence {
    tokens: Vec<u32>,
    block_table: Vec<u32>,
}

impl Sequence {
    /// The tokens in the cache.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Number of tokens in the cache.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether nothing is cached.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Physical blocks, in order.
    pub fn block_table(&self) -> &[u32] {
        &self.block_table
    }

    /// Length of the longest common prefix with `prompt` that leaves at least one token of it to run.
    ///
    /// Logits come only from running a row, so a prompt that is cached as a whole still runs its last token.
    pub fn reusable_prefix(&self, prompt: &[u32]) -> usize {
        let common = self.tokens.iter().zip(prompt).take_while(|(a, b)| a == b).count();
        common.min(prompt.len().saturating_sub(1))
    }

    /// Blocks to take from the pool before `n` more tokens fit.
    pub(super) fn missing_blocks(&self, n: usize, block_len: usize) -> usize {
        (self.len() + n).div_ceil(block_len).saturating_sub(self.block_table.len())
    }

    /// Takes the blocks that `n` more tokens need; the caller has checked that the pool has them.
    pub(super) fn reserve(&mut self, n: usize, pool: &mut BlockPool) {
        for _ in 0..self.missing_blocks(n, pool.block_len()) {
            self.block_table.push(pool.take().expect("the caller compared the need with the free blocks"));
        }
    }

    pub(super) fn push(&mut self, tokens: &[u32]) {
        self.tokens.extend(tokens);
    }

    pub(super) fn truncate(&mut self, len: usize, pool: &mut BlockPool) {
        self.tokens.truncate(len);
        let keep = self.tokens.len().div_ceil(pool.block_len());
        pool.give_back(self.block_table.drain(keep..));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_follow_the_tokens() {
        let mut pool = BlockPool::new(4, 8);
        let mut sequence = Sequence::default();
        sequence.reserve(9, &mut pool);
        sequence.push(&[7; 9]);
        assert_eq!(sequence.block_table(), [0, 1]);
        assert_eq!(sequence.missing_blocks(7, 8), 0);
        assert_eq!(sequence.missing_blocks(8, 8), 1);
        sequence.truncate(8, &mut pool);
        assert_eq!((sequence.block_table(), pool.n_free()), (&[0][..], 3));
        sequence.truncate(0, &mut pool);
        assert_eq!((sequence.is_empty(), pool.n_free()), (true, 4));
    }

    #[test]
    fn a_reserved_block_survives_a_failed_step() {
        let mut pool = BlockPool::new(4, 8);
        let mut sequence = Sequence::default();
        sequence.reserve(9, &mut pool);
        // Nothing was pushed: the blocks stay with the sequence and are used by the next attempt.
        assert_eq!(sequence.block_table(), [0, 1]);
        sequence.truncate(0, &mut pool);
        assert_eq!(pool.n_free(), 4);
    }

    #[test]
    fn a_fully_cached_prompt_still_runs_its_last_token() {
        let mut sequence = Sequence::default();
        sequence.push(&[1, 2, 3, 4]);
        assert_eq!(sequence.reusable_prefix(&[1, 2, 3, 4]), 3);
        assert_eq!(sequence.reusable_prefix(&[1, 2, 3, 4, 5]), 4);
        assert_eq!(sequence.reusable_prefix(&[1, 2, 9]), 2);
        assert_eq!(sequence.reusable_prefix(&[1, 2]), 1);
        assert_eq!(sequence.reusable_prefix(&[]), 0);
    }
}

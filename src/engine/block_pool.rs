//! The free list of KV blocks.

/// Hands out the blocks of the KV pool. Blocks given back last are handed out first: they are still in cache.
#[derive(Debug)]
pub struct BlockPool {
    free: Vec<u32>,
    n_blocks: usize,
    block_len: usize,
}

impl BlockPool {
    /// A pool of `n_blocks` free blocks of `block_len` KV entries.
    pub fn new(n_blocks: usize, block_len: usize) -> Self {
        Self { free: (0..n_blocks as u32).rev().collect(), n_blocks, block_len }
    }

    /// KV entries per block.
    pub fn block_len(&self) -> usize {
        self.block_len
    }

    /// All blocks, free or not.
    pub fn n_blocks(&self) -> usize {
        self.n_blocks
    }

    /// Blocks that [`take`](Self::take) can still give.
    pub fn n_free(&self) -> usize {
        self.free.len()
    }

    /// Takes a free block.
    pub fn take(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// Gives blocks back, last first, so that a sequence that grows again gets the same ones.
    pub fn give_back(&mut self, blocks: impl DoubleEndedIterator<Item = u32>) {
        self.free.extend(blocks.rev());
        debug_assert!(self.free.len() <= self.n_blocks, "a block was given back twice");
    }
}

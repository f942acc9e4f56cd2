//! The blocks of the KV pool: each held by one sequence that writes it, or full, cached and shared by any number.
use super::content::hash_block;
use super::prefix_cache::PrefixCache;
use super::{CacheScope, Content, HashBlock, ImageKey};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The owner of a pool's blocks. Sequences hold them through a [`BlockTable`], which gives them back when it is dropped.
#[derive(Clone, Debug)]
pub struct BlockManager {
    pool: Arc<Mutex<Pool>>,
    n_blocks: usize,
    block_len: usize,
    hash: HashBlock,
}

/// The blocks of a pool by their use. The three numbers add up to its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockUsage {
    /// Blocks that sequences hold.
    pub held: usize,
    /// Blocks that only the prefix cache keeps. They are handed out when no others are left.
    pub idle: usize,
    /// Blocks without content.
    pub free: usize,
}

impl BlockUsage {
    /// Blocks that can be taken.
    pub fn available(&self) -> usize {
        self.idle + self.free
    }
}

/// The beginning of a content that the prefix cache has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedPrefix {
    /// Its length in KV entries.
    pub entries: usize,
    /// Those of its blocks that some sequence holds: another one takes nothing from the pool by holding them too.
    pub held_blocks: usize,
}

impl BlockManager {
    /// A pool of `n_blocks` free blocks of `block_len` KV entries.
    pub fn new(n_blocks: usize, block_len: usize) -> Self {
        Self::with_hash(n_blocks, block_len, hash_block)
    }

    /// A pool whose prefix cache uses another hash. Results do not depend on it, not even if all hashes are equal.
    pub fn with_hash(n_blocks: usize, block_len: usize, hash: HashBlock) -> Self {
        let pool = Pool {
            block_len,
            holders: vec![0; n_blocks],
            free: (0..n_blocks as u32).rev().collect(),
            cache: PrefixCache::new(n_blocks),
        };
        Self { pool: Arc::new(Mutex::new(pool)), n_blocks, block_len, hash }
    }

    /// KV entries per block.
    pub fn block_len(&self) -> usize {
        self.block_len
    }

    /// All blocks, free or not.
    pub fn n_blocks(&self) -> usize {
        self.n_blocks
    }

    /// Number of blocks that `entries` KV entries take.
    pub fn blocks_for(&self, entries: usize) -> usize {
        entries.div_ceil(self.block_len)
    }

    /// The blocks by their use.
    pub fn usage(&self) -> BlockUsage {
        let pool = self.lock();
        let (idle, free) = (pool.cache.n_idle(), pool.free.len());
        BlockUsage { held: self.n_blocks - idle - free, idle, free }
    }

    /// Number of tables that hold a block.
    pub fn holders(&self, block: u32) -> usize {
        self.lock().holders[block as usize]
    }

    /// True if the prefix cache has the block: nobody writes to it.
    pub fn is_cached(&self, block: u32) -> bool {
        self.lock().cache.contains(block)
    }

    /// A sequence's content as this pool's prefix cache compares it; the images are in order and do not overlap.
    pub fn content(&self, tokens: Vec<u32>, images: Vec<ImageKey>, scope: CacheScope) -> Content {
        Content::new(tokens, images, scope, self.block_len, self.hash)
    }

    /// The longest cached beginning of a content, of at most `limit` entries.
    pub fn cached_prefix(&self, content: &Content, limit: usize) -> CachedPrefix {
        let pool = self.lock();
        let mut prefix = CachedPrefix { entries: 0, held_blocks: 0 };
        let mut last = None;
        for i in 0..content.n_full().min(limit / self.block_len) {
            let Some(block) = pool.cache.find(last, content, i) else { break };
            prefix.entries += self.block_len;
            prefix.held_blocks += usize::from(pool.holders[block as usize] > 0);
            last = Some(block);
        }
        prefix
    }

    /// A table without blocks.
    pub fn table(&self) -> BlockTable {
        BlockTable { pool: self.pool.clone(), blocks: Vec::new(), n_cached: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
        lock(&self.pool)
    }
}

/// Locks a pool, also after a panic: tables are dropped then, too, and must not panic again.
fn lock(pool: &Mutex<Pool>) -> MutexGuard<'_, Pool> {
    pool.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct Pool {
    block_len: usize,
    /// Tables that hold each block.
    holders: Vec<usize>,
    /// Blocks that are neither held nor cached. Those given back last are handed out first: the processor's cache has them.
    free: Vec<u32>,
    cache: PrefixCache,
}

impl Pool {
    /// A block to write to, at the cost of cached content when no other is left.
    fn take(&mut self) -> Option<u32> {
        let block = self.free.pop().or_else(|| self.cache.evict())?;
        self.holders[block as usize] = 1;
        Some(block)
    }

    /// Holds a cached block.
    fn share(&mut self, block: u32) {
        self.cache.wake(block);
        self.holders[block as usize] += 1;
    }

    fn give_back(&mut self, block: u32) {
        let holders = &mut self.holders[block as usize];
        *holders -= 1;
        if *holders == 0 && (!self.cache.contains(block) || self.cache.rest(block)) {
            self.free.push(block);
        }
    }

    /// Gives back a table's last blocks, last first: children become idle before their parents.
    fn give_back_all(&mut self, blocks: impl DoubleEndedIterator<Item = u32>) {
        blocks.rev().for_each(|block| self.give_back(block));
    }
}

/// The blocks of one sequence, in order: first those that are cached and maybe shared, then its own.
///
/// Entries behind the cached blocks are written by this sequence alone; cached blocks are full and never written.
#[derive(Debug)]
pub struct BlockTable {
    pool: Arc<Mutex<Pool>>,
    blocks: Vec<u32>,
    /// The first blocks, which are in the prefix cache.
    n_cached: usize,
}

impl BlockTable {
    /// The numbers of the blocks.
    pub fn blocks(&self) -> &[u32] {
        &self.blocks
    }

    /// The number of KV entries, from the first on, that are cached and must not be written.
    pub fn cached_entries(&self) -> usize {
        self.n_cached * lock(&self.pool).block_len
    }

    /// Holds the content's cached blocks, up to `limit` entries, in place of own ones. Returns the entries then cached.
    pub fn adopt(&mut self, content: &Content, limit: usize) -> usize {
        let mut pool = lock(&self.pool);
        let n = content.n_full().min(limit / pool.block_len);
        for i in self.n_cached..n {
            let Some(block) = pool.cache.find(last_of(&self.blocks[..i]), content, i) else { break };
            pool.share(block);
            replace(&mut pool, &mut self.blocks, i, block);
            self.n_cached = i + 1;
        }
        self.n_cached * pool.block_len
    }

    /// Takes blocks until there is room for `entries`. Returns false, with nothing taken, if the pool has too few.
    pub fn reserve(&mut self, entries: usize) -> bool {
        let mut pool = lock(&self.pool);
        let missing = entries.div_ceil(pool.block_len).saturating_sub(self.blocks.len());
        if missing > pool.free.len() + pool.cache.n_idle() {
            return false;
        }
        let taken = (0..missing).map(|_| pool.take().expect("as many were counted"));
        self.blocks.extend(taken);
        true
    }

    /// Puts the blocks into the prefix cache that the first `entries` of the content, now written, fill. A block that the
    /// cache has already takes the place of the own one.
    pub fn publish(&mut self, content: &Content, entries: usize) {
        let mut pool = lock(&self.pool);
        for i in self.n_cached..entries / pool.block_len {
            let parent = last_of(&self.blocks[..i]);
            match pool.cache.find(parent, content, i) {
                Some(block) => {
                    pool.share(block);
                    replace(&mut pool, &mut self.blocks, i, block);
                }
                None => pool.cache.insert(self.blocks[i], parent, content, i),
            }
            self.n_cached = i + 1;
        }
    }

    /// Gives back the blocks behind the first `entries`. Returns the number of entries that stay: fewer where the cut
    /// falls into a cached block, which the sequence could not write on.
    pub fn truncate(&mut self, entries: usize) -> usize {
        let mut pool = lock(&self.pool);
        let whole = entries / pool.block_len;
        let (keep, entries) = match whole < self.n_cached {
            true => (whole, whole * pool.block_len),
            false => (entries.div_ceil(pool.block_len).min(self.blocks.len()), entries),
        };
        pool.give_back_all(self.blocks.drain(keep..));
        self.n_cached = self.n_cached.min(keep);
        entries
    }

    /// Removes from the prefix cache what no other sequence has used: the content may be wrong.
    pub fn forget(&mut self) {
        let mut pool = lock(&self.pool);
        while let Some(block) = last_of(&self.blocks[..self.n_cached]) {
            if pool.holders[block as usize] > 1 || !pool.cache.is_last(block) {
                break;
            }
            pool.cache.remove(block);
            self.n_cached -= 1;
        }
    }
}

impl Drop for BlockTable {
    fn drop(&mut self) {
        let blocks = mem::take(&mut self.blocks);
        lock(&self.pool).give_back_all(blocks.into_iter());
    }
}

fn last_of(blocks: &[u32]) -> Option<u32> {
    blocks.last().copied()
}

/// Puts a held block at `i`: behind the last one, or in place of one that is given back.
fn replace(pool: &mut Pool, blocks: &mut Vec<u32>, i: usize, block: u32) {
    match blocks.get_mut(i) {
        Some(own) => pool.give_back(mem::replace(own, block)),
        None => blocks.push(block),
    }
}

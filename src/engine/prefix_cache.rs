//! The index of full blocks by their content, and the order in which idle ones are given up.
use super::{BlockKey, CacheScope, Content, ImageKey};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Full blocks by their content. Each is held by sequences or idle; an idle one may be evicted.
///
/// A block's content is its own key and that of every block before it. The blocks before it stay in the cache as long as it
/// does, so their content is told by the number of the block right before it, and no comparison trusts a hash. The order of
/// eviction keeps this so: whoever holds a block holds those before it and gives them back after it, so they have been idle
/// for less long.
#[derive(Debug)]
pub(super) struct PrefixCache {
    /// One for each block of the pool that is in the cache.
    entries: Vec<Option<Entry>>,
    /// Blocks by the hash of their prefix.
    index: HashMap<u64, Vec<u32>>,
    /// Idle blocks by the time since when they are; the first is evicted first.
    idle: BTreeMap<u64, u32>,
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    hash: u64,
    /// The block before it.
    parent: Option<u32>,
    /// Cached blocks that follow it.
    children: usize,
    scope: Arc<CacheScope>,
    owner: Option<u64>,
    images: Box<[ImageKey]>,
    tokens: Box<[u32]>,
    idle_since: Option<u64>,
}

impl Entry {
    fn key(&self) -> BlockKey<'_> {
        BlockKey { scope: &self.scope, owner: self.owner, images: &self.images, tokens: &self.tokens }
    }
}

impl PrefixCache {
    /// An empty cache for a pool of `n_blocks`.
    pub fn new(n_blocks: usize) -> Self {
        let entries = (0..n_blocks).map(|_| None).collect();
        Self { entries, index: HashMap::new(), idle: BTreeMap::new(), clock: 0 }
    }

    /// True if the block is in the cache.
    pub fn contains(&self, block: u32) -> bool {
        self.entries[block as usize].is_some()
    }

    /// Number of idle blocks.
    pub fn n_idle(&self) -> usize {
        self.idle.len()
    }

    /// Block `i` of the content behind the cached block `parent`.
    pub fn find(&self, parent: Option<u32>, content: &Content, i: usize) -> Option<u32> {
        let key = content.block(i);
        let same = |block: &u32| {
            let entry = self.entry(*block);
            entry.parent == parent && entry.key() == key
        };
        self.index.get(&content.hash_of(i))?.iter().copied().find(|block| same(block))
    }

    /// Adds a block that holds block `i` of the content, behind the cached block `parent`; it is held.
    pub fn insert(&mut self, block: u32, parent: Option<u32>, content: &Content, i: usize) {
        let (hash, key) = (content.hash_of(i), content.block(i));
        debug_assert!(self.find(parent, content, i).is_none(), "no content is in the cache twice");
        if let Some(parent) = parent {
            self.entry_mut(parent).children += 1;
        }
        self.index.entry(hash).or_default().push(block);
        self.entries[block as usize] = Some(Entry {
            hash,
            parent,
            children: 0,
            scope: content.scope().clone(),
            owner: content.owner(),
            images: key.images.into(),
            tokens: key.tokens.into(),
            idle_since: None,
        });
    }

    /// Makes a block idle that nobody holds any more. Returns true if it left the cache instead, being of no use to others.
    pub fn rest(&mut self, block: u32) -> bool {
        let entry = self.entries[block as usize].as_mut().expect("the caller has asked for a cached block");
        if entry.owner.is_some() {
            self.remove(block);
            return true;
        }
        entry.idle_since = Some(self.clock);
        self.idle.insert(self.clock, block);
        self.clock += 1;
        false
    }

    /// Makes a block held, idle or not.
    pub fn wake(&mut self, block: u32) {
        if let Some(since) = self.entry_mut(block).idle_since.take() {
            self.idle.remove(&since);
        }
    }

    /// Removes the block that has been idle the longest.
    pub fn evict(&mut self) -> Option<u32> {
        let (_, &block) = self.idle.first_key_value()?;
        self.remove(block);
        Some(block)
    }

    /// True if the block is followed by none in the cache.
    pub fn is_last(&self, block: u32) -> bool {
        self.entry(block).children == 0
    }

    /// Removes a block that is followed by none.
    pub fn remove(&mut self, block: u32) {
        self.wake(block);
        let entry = self.entries[block as usize].take().expect("waking it found it");
        debug_assert_eq!(entry.children, 0, "children leave before parents");
        if let Some(parent) = entry.parent {
            self.entry_mut(parent).children -= 1;
        }
        let same_hash = self.index.get_mut(&entry.hash).expect("every entry is in the index");
        same_hash.retain(|&other| other != block);
        if same_hash.is_empty() {
            self.index.remove(&entry.hash);
        }
    }

    fn entry(&self, block: u32) -> &Entry {
        self.entries[block as usize].as_ref().expect("blocks of the index and parents are in the cache")
    }

    fn entry_mut(&mut self, block: u32) -> &mut Entry {
        self.entries[block as usize]
            .as_mut()
            .expect("blocks in use as cached ones and parents are in the cache")
    }
}

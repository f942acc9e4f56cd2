//! The content of a sequence, by which the prefix cache tells sequences apart.
use super::ImageSpan;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// An image among the tokens of a sequence: the tokens that stand for it, and the hash of its pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ImageKey {
    /// Index of its first token.
    pub start: usize,
    /// Index behind its last token.
    pub end: usize,
    /// Hash of the preprocessed pixels.
    pub hash: [u8; 32],
}

impl From<&ImageSpan> for ImageKey {
    fn from(span: &ImageSpan) -> Self {
        Self { start: span.start, end: span.end(), hash: span.image.hash }
    }
}

/// The sequences that may share blocks: those whose scopes are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CacheScope {
    /// Hash of the adapter that the weights are combined with.
    pub adapter: Option<[u8; 32]>,
    /// A word that only some callers know: nobody without it can tell from the time of an answer what they asked.
    pub salt: Option<String>,
}

/// The content of one full block. Equal keys behind equal prefixes mean equal keys and values in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockKey<'a> {
    /// Scope of the sequence.
    pub scope: &'a CacheScope,
    /// The one whose sequences alone may share it.
    pub owner: Option<u64>,
    /// The images that cover some of the tokens.
    pub images: &'a [ImageKey],
    /// Its tokens.
    pub tokens: &'a [u32],
}

/// The hash of a block behind a prefix with the hash `parent`, which is 0 for the first block.
pub type HashBlock = fn(parent: u64, block: &BlockKey<'_>) -> u64;

/// The [`HashBlock`] of [`BlockManager::new`](super::BlockManager::new).
pub(super) fn hash_block(parent: u64, block: &BlockKey<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (parent, block).hash(&mut hasher);
    hasher.finish()
}

/// The tokens of a sequence, cached or not, with a chain of hashes over its full blocks.
#[derive(Clone, Debug)]
pub struct Content {
    tokens: Vec<u32>,
    /// In order, without overlap.
    images: Vec<ImageKey>,
    scope: Arc<CacheScope>,
    owner: Option<u64>,
    block_len: usize,
    hash: HashBlock,
    /// One for each full block: over the block and the hash before it.
    hashes: Vec<u64>,
}

impl Content {
    pub(super) fn new(
        tokens: Vec<u32>,
        images: Vec<ImageKey>,
        scope: CacheScope,
        block_len: usize,
        hash: HashBlock,
    ) -> Self {
        let scope = Arc::new(scope);
        let mut content = Self { tokens, images, scope, owner: None, block_len, hash, hashes: Vec::new() };
        content.hash_full_blocks();
        content
    }

    /// The same content, whose blocks only sequences with the same owner may share. They leave the prefix cache when nobody
    /// holds them any more.
    pub fn owned_by(mut self, owner: u64) -> Self {
        self.owner = Some(owner);
        self.hashes.clear();
        self.hash_full_blocks();
        self
    }

    /// Appends a token.
    pub fn push(&mut self, token: u32) {
        self.tokens.push(token);
        self.hash_full_blocks();
    }

    fn hash_full_blocks(&mut self) {
        for i in self.hashes.len()..self.tokens.len() / self.block_len {
            let parent = self.hashes.last().copied().unwrap_or(0);
            self.hashes.push((self.hash)(parent, &self.block(i)));
        }
    }

    /// The tokens.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// True without tokens.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Number of full blocks.
    pub(super) fn n_full(&self) -> usize {
        self.hashes.len()
    }

    pub(super) fn scope(&self) -> &Arc<CacheScope> {
        &self.scope
    }

    pub(super) fn owner(&self) -> Option<u64> {
        self.owner
    }

    /// Hash of the prefix that ends with full block `i`.
    pub(super) fn hash_of(&self, i: usize) -> u64 {
        self.hashes[i]
    }

    /// Key of full block `i`.
    pub(super) fn block(&self, i: usize) -> BlockKey<'_> {
        let (start, end) = (i * self.block_len, (i + 1) * self.block_len);
        let first = self.images.partition_point(|image| image.end <= start);
        let n = self.images[first..].partition_point(|image| image.start < end);
        BlockKey {
            scope: &self.scope,
            owner: self.owner,
            images: &self.images[first..first + n],
            tokens: &self.tokens[start..end],
        }
    }

    /// True if both have full block `i`, and the same tokens up to its end.
    pub(super) fn agrees_through(&self, i: usize, other: &Self) -> bool {
        i < self.n_full().min(other.n_full())
            && self.hashes[i] == other.hashes[i]
            && (0..=i).all(|i| self.block(i) == other.block(i))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(tokens: &[u32], images: &[ImageKey], salt: &str) -> Content {
        let scope = CacheScope { salt: Some(salt.into()), ..CacheScope::default() };
        Content::new(tokens.to_vec(), images.to_vec(), scope, 4, hash_block)
    }

    #[test]
    fn a_block_has_the_images_that_cover_its_tokens() {
        let image = |start, end| ImageKey { start, end, hash: [start as u8; 32] };
        let images = [image(1, 3), image(3, 9), image(12, 14)];
        let content = content(&[7; 19], &images, "");
        assert_eq!(content.n_full(), 4);
        let of_block = |i| content.block(i).images;
        assert_eq!((of_block(0), of_block(1), of_block(2)), (&images[..2], &images[1..2], &images[1..2]));
        assert_eq!(of_block(3), &images[2..]);
    }

    #[test]
    fn hashes_are_chained_and_grow_with_the_tokens() {
        let mut a = content(&[1, 2, 3, 4, 5, 6, 7], &[], "");
        assert_eq!(a.n_full(), 1);
        a.push(8);
        assert_eq!(a.n_full(), 2);
        let same = content(&[1, 2, 3, 4, 5, 6, 7, 8], &[], "");
        assert_eq!(a.hashes, same.hashes);
        let other_start = content(&[9, 2, 3, 4, 5, 6, 7, 8], &[], "");
        let other_salt = content(&[1, 2, 3, 4, 5, 6, 7, 8], &[], "x");
        let image = ImageKey { start: 0, end: 1, hash: [0; 32] };
        let other_image = content(&[1, 2, 3, 4, 5, 6, 7, 8], &[image], "");
        let owned = content(&[1, 2, 3, 4, 5, 6, 7, 8], &[], "").owned_by(1);
        for other in [&other_start, &other_salt, &other_image, &owned] {
            assert_ne!(a.hash_of(1), other.hash_of(1));
            assert!(!a.agrees_through(1, other));
        }
        assert!(a.agrees_through(1, &same));
        assert!(!a.agrees_through(2, &same), "neither has it");
    }
}

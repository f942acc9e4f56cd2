//! One conversation's tokens and the KV blocks that hold them.
use super::{BlockManager, BlockTable, EngineError, ImageKey, ImageSpan, Tokens};

/// Tokens whose keys and values are in the cache. A token that was sampled but not yet run is not part of it.
///
/// Dropping it gives its blocks back.
#[derive(Debug, Default)]
pub struct Sequence {
    tokens: Vec<u32>,
    /// In order; the last one may reach beyond the tokens.
    images: Vec<ImageKey>,
    /// Its blocks in the pool of the engine that runs it; none before the first step.
    table: Option<BlockTable>,
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

    /// True if nothing is cached.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Physical blocks, in order.
    pub fn block_table(&self) -> &[u32] {
        self.table.as_ref().map_or(&[], BlockTable::blocks)
    }

    /// Length of the longest common prefix with `prompt` that leaves at least one token of it to run.
    ///
    /// It ends before the first image that differs: the tokens of two images of one size are the same. Logits come only
    /// from running a row, so a prompt that is cached as a whole still runs its last token.
    pub fn reusable_prefix<'a>(&self, prompt: impl Into<Tokens<'a>>) -> usize {
        let prompt = prompt.into();
        let common = self.tokens.iter().zip(prompt.ids).take_while(|(a, b)| a == b).count();
        common.min(self.common_images_end(prompt.images)).min(prompt.ids.len().saturating_sub(1))
    }

    /// Start of the first image that is not the same in both.
    fn common_images_end(&self, images: &[ImageSpan]) -> usize {
        let mut own = self.images.iter().copied();
        let mut others = images.iter().map(ImageKey::from);
        loop {
            match (own.next(), others.next()) {
                (None, None) => return usize::MAX,
                (a, b) if a == b => {}
                (a, b) => {
                    return a.iter().chain(&b).map(|image| image.start).min().expect("one of them is some");
                }
            }
        }
    }

    /// Checks that tokens that follow an image's first ones bring the same image.
    pub(super) fn check_continues(&self, images: &[ImageSpan]) -> Result<(), EngineError> {
        let cut = |image: &ImageKey| image.start < self.len() && self.len() < image.end;
        let begun = self.images.last().copied().filter(cut);
        let given = images.iter().map(ImageKey::from).find(cut);
        match begun.or(given) {
            Some(ImageKey { start, .. }) if begun != given => {
                let problem = format!("is not the one that the {} tokens before it end with", self.len());
                Err(EngineError::ImagePlace { start, problem })
            }
            _ => Ok(()),
        }
    }

    /// Blocks to take from the pool before `n` more tokens fit.
    pub(super) fn missing_blocks(&self, n: usize, blocks: &BlockManager) -> usize {
        blocks.blocks_for(self.len() + n).saturating_sub(self.block_table().len())
    }

    /// Takes the blocks that `n` more tokens need; the caller has checked that the pool has them.
    pub(super) fn reserve(&mut self, n: usize, blocks: &BlockManager) {
        let entries = self.len() + n;
        let reserved = self.table.get_or_insert_with(|| blocks.table()).reserve(entries);
        assert!(reserved, "the caller compared the need with the free blocks");
    }

    pub(super) fn push(&mut self, tokens: Tokens<'_>) {
        let new = self.len()..self.len() + tokens.ids.len();
        self.images.extend(tokens.images.iter().filter(|span| new.contains(&span.start)).map(ImageKey::from));
        self.tokens.extend(tokens.ids);
    }

    /// Keeps the first `len` tokens and gives the blocks behind them back.
    pub(super) fn truncate(&mut self, len: usize) {
        self.tokens.truncate(len);
        self.images.retain(|image| image.start < len);
        if let Some(table) = &mut self.table {
            // All of the blocks are its own.
            table.truncate(self.tokens.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::EncodedImage;
    use ember_loaders::image::ImageGrid;
    use std::sync::Arc;

    /// An image of one row of two cells: three tokens.
    fn image(start: usize, hash: u8) -> ImageSpan {
        let grid = ImageGrid { rows: 1, cols: 2 };
        let image = EncodedImage { hash: [hash; 32], grid, embeddings: [0.0; 2].into() };
        ImageSpan { start, image: Arc::new(image) }
    }

    #[test]
    fn blocks_follow_the_tokens() {
        let blocks = BlockManager::new(4, 8);
        let mut sequence = Sequence::default();
        sequence.reserve(9, &blocks);
        sequence.push((&[7; 9]).into());
        assert_eq!(sequence.block_table(), [0, 1]);
        assert_eq!(sequence.missing_blocks(7, &blocks), 0);
        assert_eq!(sequence.missing_blocks(8, &blocks), 1);
        sequence.truncate(8);
        assert_eq!((sequence.block_table(), blocks.usage().free), (&[0][..], 3));
        sequence.truncate(0);
        assert_eq!((sequence.is_empty(), blocks.usage().free), (true, 4));
    }

    #[test]
    fn a_dropped_sequence_gives_its_blocks_back() {
        let blocks = BlockManager::new(4, 8);
        let mut sequence = Sequence::default();
        sequence.reserve(17, &blocks);
        assert_eq!(blocks.usage().free, 1);
        drop(sequence);
        assert_eq!(blocks.usage().free, 4);
    }

    #[test]
    fn a_reserved_block_survives_a_failed_step() {
        let blocks = BlockManager::new(4, 8);
        let mut sequence = Sequence::default();
        sequence.reserve(9, &blocks);
        // Nothing was pushed: the blocks stay with the sequence and are used by the next attempt.
        assert_eq!(sequence.block_table(), [0, 1]);
        sequence.truncate(0);
        assert_eq!(blocks.usage().free, 4);
    }

    #[test]
    fn a_fully_cached_prompt_still_runs_its_last_token() {
        let mut sequence = Sequence::default();
        sequence.push((&[1, 2, 3, 4]).into());
        assert_eq!(sequence.reusable_prefix(&[1, 2, 3, 4]), 3);
        assert_eq!(sequence.reusable_prefix(&[1, 2, 3, 4, 5]), 4);
        assert_eq!(sequence.reusable_prefix(&[1, 2, 9]), 2);
        assert_eq!(sequence.reusable_prefix(&[1, 2]), 1);
        assert_eq!(sequence.reusable_prefix(&[][..]), 0);
    }
    #[test]
    fn the_prefix_ends_before_another_image() {
        let ids = [1, 10, 10, 11, 2, 10, 10, 11, 3, 4];
        let (a, b, c) = (image(1, 1), image(5, 2), image(5, 3));
        let mut sequence = Sequence::default();
        sequence.push(Tokens { ids: &ids, images: &[a.clone(), b.clone()] });
        let reusable = |images: &[ImageSpan]| sequence.reusable_prefix(Tokens { ids: &ids, images });
        assert_eq!(reusable(&[a.clone(), b.clone()]), 9);
        assert_eq!(reusable(&[a.clone(), c.clone()]), 5);
        assert_eq!(reusable(&[image(1, 2), b.clone()]), 1);
        assert_eq!(reusable(std::slice::from_ref(&a)), 5);
        assert_eq!(reusable(std::slice::from_ref(&b)), 1);
        assert_eq!(reusable(&[]), 1);
        assert_eq!(sequence.reusable_prefix(Tokens { ids: &[1, 9, 9], images: &[a, c] }), 1);
    }

    #[test]
    fn a_cut_image_goes_on_as_itself_only() {
        let blocks = BlockManager::new(4, 8);
        let mut sequence = Sequence::default();
        sequence.reserve(3, &blocks);
        sequence.push(Tokens { ids: &[1, 10, 10], images: &[image(1, 1)] });
        assert!(sequence.check_continues(&[image(1, 1)]).is_ok());
        for wrong in [&[][..], &[image(1, 2)], &[image(2, 1)], &[image(3, 1)]] {
            let error = sequence.check_continues(wrong).expect_err("another image").to_string();
            assert!(error.ends_with("is not the one that the 3 tokens before it end with"), "{error}");
        }
        assert_eq!(sequence.reusable_prefix(Tokens { ids: &[1, 10, 10, 11], images: &[image(1, 1)] }), 3);
        sequence.truncate(1);
        assert!(sequence.check_continues(&[]).is_ok());
        assert!(sequence.check_continues(&[image(1, 2)]).is_ok());
        assert!(sequence.check_continues(&[image(0, 1)]).is_err());
    }
}

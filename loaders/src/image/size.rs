//! An image's size for the encoder, as mistral-common's `ImageEncoder._image_to_num_tokens`.

/// An image's cells: the patches that are left after merging, each of which becomes one embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ImageGrid {
    /// Cells from top to bottom.
    pub rows: usize,
    /// Cells from left to right.
    pub cols: usize,
}

impl ImageGrid {
    /// Embeddings of the image.
    pub fn cells(&self) -> usize {
        self.rows * self.cols
    }

    /// Tokens of the image in a prompt: each row ends with `[IMG_BREAK]`, the last with `[IMG_END]`.
    pub fn tokens(&self) -> usize {
        self.rows * (self.cols + 1)
    }
}

/// The size that an image is brought to, which need not keep its aspect ratio exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeRule {
    /// A larger image is scaled down until its longer side is this many pixels (at least 1).
    pub longest_edge: usize,
    /// Side of a cell in pixels: patch size x merge size (at least 1).
    pub cell: usize,
    /// Larger images are scaled down further, until they take at most this many tokens (or are a single cell).
    pub max_tokens: Option<usize>,
}

impl SizeRule {
    /// The cells of an image of `width` x `height` pixels, at least one each way.
    pub fn grid(&self, width: usize, height: usize) -> ImageGrid {
        // A longer edge than the image's own changes nothing.
        let longest = self.longest_edge.min(width.max(height)).max(1);
        let full = self.grid_within(width, height, longest);
        let Some(max_tokens) = self.max_tokens.filter(|&max| full.tokens() > max) else {
            return full;
        };
        // Neither side of the grid shrinks as the longest edge grows, so the largest edge that fits is found by halving.
        let (mut fits, mut too_long) = (1, longest);
        while too_long - fits > 1 {
            let middle = fits + (too_long - fits) / 2;
            if self.grid_within(width, height, middle).tokens() <= max_tokens {
                fits = middle;
            } else {
                too_long = middle;
            }
        }
        self.grid_within(width, height, fits)
    }

    fn grid_within(&self, width: usize, height: usize, longest_edge: usize) -> ImageGrid {
        let longest = longest_edge as f64;
        let ratio = (height as f64 / longest).max(width as f64 / longest);
        // Python's round; an extreme aspect ratio would round the shorter side to nothing.
        let scale =
            |side: usize| if ratio > 1.0 { (side as f64 / ratio).round_ties_even() as usize } else { side };
        let cells = |side: usize| scale(side).max(1).div_ceil(self.cell);
        ImageGrid { rows: cells(height), cols: cells(width) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mistral Small 3.x and Ministral 3.
    const MISTRAL_SMALL: SizeRule = SizeRule { longest_edge: 1540, cell: 28, max_tokens: None };

    fn capped(max_tokens: usize, width: usize, height: usize) -> ImageGrid {
        SizeRule { max_tokens: Some(max_tokens), ..MISTRAL_SMALL }.grid(width, height)
    }

    #[test]
    fn a_cap_takes_the_largest_edge_that_fits() {
        assert_eq!(MISTRAL_SMALL.grid(4000, 3000), ImageGrid { rows: 42, cols: 55 });
        for max_tokens in (2..2400).step_by(13) {
            let grid = capped(max_tokens, 4000, 3000);
            assert!(grid.tokens() <= max_tokens, "{grid:?} for {max_tokens}");
            let edge = (1..=1540).rev().find(|&longest_edge| {
                let rule = SizeRule { longest_edge, ..MISTRAL_SMALL };
                rule.grid(4000, 3000).tokens() <= max_tokens
            });
            let rule = SizeRule { longest_edge: edge.unwrap(), ..MISTRAL_SMALL };
            assert_eq!(grid, rule.grid(4000, 3000), "for {max_tokens}");
        }
    }

    #[test]
    fn a_cap_above_the_image_s_tokens_changes_nothing() {
        for (width, height) in [(1, 1), (28, 28), (640, 480), (1540, 1540), (9999, 3)] {
            let full = MISTRAL_SMALL.grid(width, height);
            assert_eq!(capped(full.tokens(), width, height), full);
            assert_eq!(capped(usize::MAX, width, height), full);
        }
    }

    #[test]
    fn a_cap_keeps_the_aspect_ratio_and_at_least_one_cell() {
        assert_eq!(capped(1000, 4000, 3000), ImageGrid { rows: 27, cols: 36 });
        assert_eq!(capped(1000, 3000, 4000), ImageGrid { rows: 35, cols: 27 });
        assert_eq!(capped(10, 3000, 1), ImageGrid { rows: 1, cols: 9 });
        assert_eq!(capped(10, 1, 3000), ImageGrid { rows: 5, cols: 1 });
        for max_tokens in [0, 1, 2] {
            assert_eq!(capped(max_tokens, 4000, 3000), ImageGrid { rows: 1, cols: 1 });
        }
    }
}

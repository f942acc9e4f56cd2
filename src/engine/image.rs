//! Images among the tokens of a sequence: which tokens stand for one, and which rows of its embeddings they take.
use super::EngineError;
use ember_loaders::image::ImageGrid;
use ember_models::EmbeddingRows;
use std::ops::Range;
use std::sync::Arc;

/// An image as the text model reads it.
#[derive(Clone, Debug)]
pub struct EncodedImage {
    /// Hash of the preprocessed pixels: what tells images apart.
    pub hash: [u8; 32],
    /// Cells of the image.
    pub grid: ImageGrid,
    /// Row-major `[grid.cells(), hidden]`.
    pub embeddings: Arc<[f32]>,
}

/// The tokens of a sequence that stand for an image: row by row of its grid, `cols` cells (`[IMG]`) and a row break
/// (`[IMG_BREAK]`, after the last row `[IMG_END]`). The cells take the image's embeddings, the breaks their own.
#[derive(Clone, Debug)]
pub struct ImageSpan {
    /// Index of the first token in the sequence.
    pub start: usize,
    /// The image.
    pub image: Arc<EncodedImage>,
}

impl ImageSpan {
    /// Index behind the last token.
    pub fn end(&self) -> usize {
        self.start + self.image.grid.tokens()
    }

    /// The embeddings that the tokens `entries` of the sequence take from the image, when they are the rows of a batch from `first_row` on.
    pub(super) fn embedding_rows(
        &self,
        entries: Range<usize>,
        first_row: usize,
    ) -> impl Iterator<Item = EmbeddingRows> {
        let ImageGrid { rows, cols } = self.image.grid;
        (0..rows).filter_map(move |row| {
            let first_cell = self.start + row * (cols + 1);
            let from = first_cell.max(entries.start);
            let to = (first_cell + cols).min(entries.end);
            (from < to).then(|| EmbeddingRows {
                start: first_row + from - entries.start,
                values: self.image.embeddings.clone(),
                first: row * cols + from - first_cell,
                n: to - from,
            })
        })
    }
}

/// Tokens to append to a sequence, and the images that some of them stand for.
///
/// Tokens without images convert from slices.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tokens<'a> {
    /// Token ids.
    pub ids: &'a [u32],
    /// The images of the whole sequence or of these tokens, in order. A span may reach over either end of the tokens.
    pub images: &'a [ImageSpan],
}

impl<'a> Tokens<'a> {
    /// Checks the images' order and size.
    ///
    /// # Errors
    /// [`EngineError::ImagePlace`].
    pub(super) fn check_images(&self, hidden: usize) -> Result<(), EngineError> {
        let mut free = 0;
        for span in self.images {
            let fail = |problem| Err(EngineError::ImagePlace { start: span.start, problem });
            let grid = span.image.grid;
            if span.start < free {
                return fail(format!("begins before token {free}, the end of the image before it"));
            }
            if span.image.embeddings.len() != grid.cells() * hidden {
                let n = span.image.embeddings.len();
                let ImageGrid { rows, cols } = grid;
                return fail(format!("has {n} values instead of {rows} x {cols} cells of {hidden}"));
            }
            free = span.end();
        }
        Ok(())
    }
}

impl<'a> From<&'a [u32]> for Tokens<'a> {
    fn from(ids: &'a [u32]) -> Self {
        Self { ids, images: &[] }
    }
}

impl<'a, const N: usize> From<&'a [u32; N]> for Tokens<'a> {
    fn from(ids: &'a [u32; N]) -> Self {
        Self::from(&ids[..])
    }
}

impl<'a> From<&'a Vec<u32>> for Tokens<'a> {
    fn from(ids: &'a Vec<u32>) -> Self {
        Self::from(&ids[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image of 2 rows of 3 cells at tokens 10..18.
    fn span() -> ImageSpan {
        let grid = ImageGrid { rows: 2, cols: 3 };
        ImageSpan {
            start: 10,
            image: Arc::new(EncodedImage { hash: [0; 32], grid, embeddings: [0.0; 6].into() }),
        }
    }

    fn parts(entries: Range<usize>, first_row: usize) -> Vec<(usize, usize, usize)> {
        span().embedding_rows(entries, first_row).map(|part| (part.start, part.first, part.n)).collect()
    }

    #[test]
    fn cells_take_embeddings_and_breaks_do_not() {
        assert_eq!(span().end(), 18);
        assert_eq!(parts(10..18, 0), [(0, 0, 3), (4, 3, 3)]);
        assert_eq!(parts(8..20, 5), [(7, 0, 3), (11, 3, 3)]);
    }

    #[test]
    fn an_image_is_cut_anywhere() {
        assert_eq!(parts(0..12, 0), [(10, 0, 2)]);
        assert_eq!(parts(12..16, 0), [(0, 2, 1), (2, 3, 2)]);
        assert_eq!(parts(13..14, 0), []);
        assert_eq!(parts(16..30, 7), [(7, 5, 1)]);
        assert_eq!(parts(18..30, 0), []);
        let cells = |entries| parts(entries, 0).iter().map(|&(_, _, n)| n).sum::<usize>();
        assert!((10..=18).all(|cut| cells(0..cut) + cells(cut..99) == 6));
    }

    #[test]
    fn overlapping_and_malformed_images_are_refused() {
        let spans = [span(), ImageSpan { start: 17, ..span() }];
        let tokens = Tokens { ids: &[], images: &spans };
        let error = tokens.check_images(1).unwrap_err().to_string();
        assert_eq!(error, "the image at token 17 begins before token 18, the end of the image before it");
        let error = Tokens { ids: &[], images: &spans[..1] }.check_images(2).unwrap_err().to_string();
        assert_eq!(error, "the image at token 10 has 6 values instead of 2 x 3 cells of 2");
    }
}

//! Images in a prompt: one `[IMG]` where the template puts each, expanded to the tokens of the image's grid.
use super::Prompt;
use ember_loaders::image::ImageGrid;
use thiserror::Error;

const CELL: &str = "[IMG]";
const ROW_BREAK: &str = "[IMG_BREAK]";
const END: &str = "[IMG_END]";

/// The tokens that stand for images: each row of a grid is `cols` cells and a row break, the last one an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageTokens {
    /// `[IMG]`.
    pub cell: u32,
    /// `[IMG_BREAK]`.
    pub row_break: u32,
    /// `[IMG_END]`.
    pub end: u32,
}

/// The reason images have no place in a prompt.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ImagePromptError {
    /// The vocabulary is that of a text-only model.
    #[error("this model takes no images: its vocabulary has no {token}")]
    TextOnly {
        /// Text of the token that is missing.
        token: &'static str,
    },
    /// There are more images than places for them, or fewer.
    #[error("{images} given for {places} ([IMG]) in the prompt", images = counted(*.images, "image"), places = counted(*.places, "place"))]
    Count {
        /// Places in the prompt.
        places: usize,
        /// Images given.
        images: usize,
    },
    /// Image tokens that no `[IMG_END]` follows, or that are followed by something else.
    #[error("the image tokens from token {start} on do not end with [IMG_END]")]
    NoEnd {
        /// Index of the first one.
        start: usize,
    },
    /// Image tokens in another arrangement than the image's.
    #[error(
        "the image tokens from token {start} on are {found}, and the image is {rows} x {cols} cells (rows x columns)",
        rows = .grid.rows,
        cols = .grid.cols
    )]
    Layout {
        /// Index of the first one.
        start: usize,
        /// Their arrangement in words.
        found: String,
        /// The image's.
        grid: ImageGrid,
    },
}

impl ImageTokens {
    /// Looks the tokens up by their texts.
    ///
    /// # Errors
    /// [`ImagePromptError::TextOnly`].
    pub fn of_vocabulary(token_id: impl Fn(&str) -> Option<u32>) -> Result<Self, ImagePromptError> {
        let id = |token| token_id(token).ok_or(ImagePromptError::TextOnly { token });
        Ok(Self { cell: id(CELL)?, row_break: id(ROW_BREAK)?, end: id(END)? })
    }

    /// The tokens of an image.
    pub fn of_grid(&self, grid: ImageGrid) -> Vec<u32> {
        let row = std::iter::repeat_n(self.cell, grid.cols).chain([self.row_break]);
        let mut tokens: Vec<u32> = std::iter::repeat_n(row, grid.rows).flatten().collect();
        if let Some(last) = tokens.last_mut() {
            *last = self.end;
        }
        tokens
    }

    /// Finds the images that `ids` already spell out, which must be these; gives the index of each one's first token.
    ///
    /// # Errors
    /// [`ImagePromptError`], naming the run of image tokens that does not fit.
    pub fn find(&self, ids: &[u32], grids: &[ImageGrid]) -> Result<Vec<usize>, ImagePromptError> {
        let mut runs = Vec::new();
        let mut at = 0;
        while let Some(start) = ids[at..].iter().position(|&id| id == self.cell).map(|offset| at + offset) {
            let is_inner = |&&id: &&u32| id == self.cell || id == self.row_break;
            let end = start + ids[start..].iter().take_while(is_inner).count();
            if ids.get(end) != Some(&self.end) {
                return Err(ImagePromptError::NoEnd { start });
            }
            runs.push(start..end + 1);
            at = end + 1;
        }
        if runs.len() != grids.len() {
            return Err(ImagePromptError::Count { places: runs.len(), images: grids.len() });
        }
        for (run, &grid) in runs.iter().zip(grids) {
            if ids[run.clone()] != self.of_grid(grid) {
                let found = self.layout_text(&ids[run.clone()]);
                return Err(ImagePromptError::Layout { start: run.start, found, grid });
            }
        }
        Ok(runs.into_iter().map(|run| run.start).collect())
    }

    fn layout_text(&self, run: &[u32]) -> String {
        let rows: Vec<usize> = run.split_inclusive(|&id| id != self.cell).map(|row| row.len() - 1).collect();
        match rows.iter().all(|&row| row == rows[0]) {
            true => format!("{} x {}", rows.len(), rows[0]),
            false => {
                let lengths: Vec<String> = rows.iter().map(usize::to_string).collect();
                format!("rows of {} cells", lengths.join(", "))
            }
        }
    }
}

impl Prompt {
    /// Puts images, in order, where the prompt has `[IMG]`: each becomes the tokens of its image's grid.
    ///
    /// # Errors
    /// [`ImagePromptError::Count`] unless there are as many places as images.
    pub fn expand_images(
        &mut self,
        tokens: &ImageTokens,
        grids: &[ImageGrid],
    ) -> Result<(), ImagePromptError> {
        let places = self.ids.iter().filter(|&&id| id == tokens.cell).count();
        if places != grids.len() {
            return Err(ImagePromptError::Count { places, images: grids.len() });
        }
        let mut grids = grids.iter();
        let mut expanded = Vec::with_capacity(self.ids.len());
        for &id in &self.ids {
            match grids.as_slice().first().filter(|_| id == tokens.cell) {
                Some(&grid) => {
                    grids.next();
                    self.image_starts.push(expanded.len());
                    expanded.extend(tokens.of_grid(grid));
                }
                None => expanded.push(id),
            }
        }
        self.ids = expanded;
        Ok(())
    }
}

/// "1 image", "2 images".
fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKENS: ImageTokens = ImageTokens { cell: 10, row_break: 12, end: 13 };

    fn grid(rows: usize, cols: usize) -> ImageGrid {
        ImageGrid { rows, cols }
    }

    fn prompt(ids: &[u32]) -> Prompt {
        Prompt::new(String::new(), ids.to_vec())
    }

    #[test]
    fn each_place_becomes_its_images_rows() {
        assert_eq!(TOKENS.of_grid(grid(2, 3)), [10, 10, 10, 12, 10, 10, 10, 13]);
        let mut two = prompt(&[1, 10, 10, 5]);
        two.expand_images(&TOKENS, &[grid(1, 2), grid(2, 1)]).unwrap();
        assert_eq!(two.ids, [1, 10, 10, 13, 10, 12, 10, 13, 5]);
        assert_eq!(two.image_starts, [1, 4]);
        let mut none = prompt(&[1, 5]);
        none.expand_images(&TOKENS, &[]).unwrap();
        assert_eq!(none, prompt(&[1, 5]));
    }

    #[test]
    fn as_many_images_as_places() {
        let error = |ids: &[u32], grids: &[ImageGrid]| {
            prompt(ids).expand_images(&TOKENS, grids).unwrap_err().to_string()
        };
        assert_eq!(error(&[1, 5], &[grid(1, 1)]), "1 image given for 0 places ([IMG]) in the prompt");
        assert_eq!(error(&[10], &[]), "0 images given for 1 place ([IMG]) in the prompt");
    }

    #[test]
    fn images_already_spelled_out_are_found() {
        let ids = [1, 10, 10, 13, 7, 10, 12, 10, 13];
        assert_eq!(TOKENS.find(&ids, &[grid(1, 2), grid(2, 1)]), Ok(vec![1, 5]));
        let error = |ids: &[u32], grids: &[ImageGrid]| TOKENS.find(ids, grids).unwrap_err().to_string();
        assert_eq!(error(&ids, &[grid(1, 2)]), "1 image given for 2 places ([IMG]) in the prompt");
        assert_eq!(
            error(&ids, &[grid(1, 2), grid(1, 2)]),
            "the image tokens from token 5 on are 2 x 1, and the image is 1 x 2 cells (rows x columns)"
        );
        assert_eq!(
            error(&[10, 10, 12, 10, 13], &[grid(2, 2)]),
            "the image tokens from token 0 on are rows of 2, 1 cells, and the image is 2 x 2 cells (rows x columns)"
        );
        for open in [&[1, 10, 10][..], &[1, 10, 5, 13], &[1, 10, 12]] {
            let expected = "the image tokens from token 1 on do not end with [IMG_END]";
            assert_eq!(error(open, &[grid(1, 2)]), expected);
        }
    }

    #[test]
    fn tokens_are_looked_up_by_text() {
        let texts = [(CELL, 10), (ROW_BREAK, 12), (END, 13)];
        let look_up = |n: usize| {
            move |text: &str| texts[..n].iter().find(|(known, _)| *known == text).map(|&(_, id)| id)
        };
        assert_eq!(ImageTokens::of_vocabulary(look_up(3)), Ok(TOKENS));
        let error = ImageTokens::of_vocabulary(look_up(2)).unwrap_err().to_string();
        assert_eq!(error, "this model takes no images: its vocabulary has no [IMG_END]");
    }
}

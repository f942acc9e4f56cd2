//! Text from a stream of tokens: characters only when all their bytes are there.

use std::ops::Deref;

use super::Tokenizer;

/// Turns ids into text as they come. What it emits, put together, is [`Tokenizer::decode`] of all the ids.
///
/// `T` is a reference or an `Arc`.
#[derive(Debug)]
pub struct StreamDecoder<T> {
    tokenizer: T,
    skip_special: bool,
    /// The first bytes of a character whose others have not come.
    pending: Vec<u8>,
}

impl<T: Deref<Target = Tokenizer>> StreamDecoder<T> {
    /// A decoder at the start of a text; with `skip_special`, control tokens give no text.
    pub fn new(tokenizer: T, skip_special: bool) -> Self {
        Self { tokenizer, skip_special, pending: Vec::new() }
    }

    /// Adds a token; returns the text that is complete now, if any.
    pub fn push(&mut self, id: u32) -> Option<String> {
        self.pending.extend_from_slice(self.tokenizer.printed_bytes(id, self.skip_special));
        let mut text = String::new();
        let mut done = 0;
        for chunk in self.pending.utf8_chunks() {
            text.push_str(chunk.valid());
            done += chunk.valid().len();
            let broken = chunk.invalid();
            if broken.is_empty() || may_continue(broken) && done + broken.len() == self.pending.len() {
                break;
            }
            text.push(char::REPLACEMENT_CHARACTER);
            done += broken.len();
        }
        self.pending.drain(..done);
        (!text.is_empty()).then_some(text)
    }

    /// Ends the text: what is held back can no longer become a character, and is one U+FFFD.
    pub fn flush(&mut self) -> Option<String> {
        let rest = std::mem::take(&mut self.pending);
        (!rest.is_empty()).then(|| String::from_utf8_lossy(&rest).into_owned())
    }
}

/// True if these bytes, which are no character, could be the beginning of one.
fn may_continue(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

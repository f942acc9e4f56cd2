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
    /// True until there is text.
    at_start: bool,
}

impl<T: Deref<Target = Tokenizer>> StreamDecoder<T> {
    /// A decoder at the start of a text; with `skip_special`, control tokens give no text.
    pub fn new(tokenizer: T, skip_special: bool) -> Self {
        Self { tokenizer, skip_special, pending: Vec::new(), at_start: true }
    }

    /// A decoder of the text that follows the token `last`: put behind that token's text, it gives the whole. A space at
    /// its beginning stays, unless `last` is a control token, behind which a text begins anew.
    pub fn after(tokenizer: T, skip_special: bool, last: Option<u32>) -> Self {
        let at_start = last.is_none_or(|last| tokenizer.is_control(last));
        Self { at_start, ..Self::new(tokenizer, skip_special) }
    }

    /// Adds a token; returns the text that is complete now, if any.
    pub fn push(&mut self, id: u32) -> Option<String> {
        let bytes = self.tokenizer.text_bytes(id, self.skip_special, &mut self.at_start);
        self.pending.extend_from_slice(bytes);
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

//! The merge model, built from a checked vocabulary.

use std::collections::HashMap;

use ahash::AHashMap;
use tokenizers::Model;
use tokenizers::models::bpe::BPE;

use super::{TokenKind, TokenizerError, Vocab, byte_level};

/// The BPE model of the normal and user-defined tokens of `vocab`; `ids` has the id of every text.
pub(super) fn build(vocab: &Vocab, ids: &HashMap<&str, u32>) -> Result<BPE, TokenizerError> {
    let mergeable = |text: &str| {
        let id = ids.get(text)?;
        matches!(vocab.kinds[*id as usize], TokenKind::Normal | TokenKind::UserDefined).then_some(*id)
    };
    let mut joined = String::new();
    for (index, (left, right)) in vocab.merges.iter().enumerate() {
        joined.clear();
        joined.extend([left.as_str(), right.as_str()]);
        let fault = match [left, right, &joined].map(|text| mergeable(text)) {
            [Some(_), Some(_), Some(_)] => continue,
            [None, _, _] => "begins with a text that is no normal token",
            [_, None, _] => "ends with a text that is no normal token",
            _ => "makes a text that is no normal token",
        };
        return Err(TokenizerError::Merge { index, text: format!("{left} {right}"), fault });
    }
    let texts = vocab.tokens.iter().filter_map(|text| Some((text.clone(), mergeable(text)?)));
    let bpe = BPE::builder()
        .vocab_and_merges(texts.collect::<AHashMap<_, _>>(), vocab.merges.clone())
        .ignore_merges(vocab.pre_tokenizer.ignore_merges)
        .build()
        .map_err(|error| TokenizerError::Bpe(error.to_string()))?;
    match (b' '..=b'~').chain([b'\n']).find(|&byte| !has_byte(&bpe, byte)) {
        Some(byte) => Err(TokenizerError::MissingByte(byte)),
        None => Ok(bpe),
    }
}

/// Whether there is a token for this byte alone.
pub(super) fn has_byte(bpe: &BPE, byte: u8) -> bool {
    bpe.token_to_id(byte_level::byte_to_char(byte).encode_utf8(&mut [0; 2])).is_some()
}

//! The merge model, built from a checked vocabulary.

use ahash::AHashMap;
use tokenizers::Model;
use tokenizers::models::bpe::BPE;

use super::{TokenKind, TokenizerError, Vocab, byte_level};

/// The BPE model of the normal and user-defined tokens of `vocab`; `ids` has the id of every text.
///
/// Merges with a control token or padding in them are left out with the tokens: nothing else could use them.
pub(super) fn build(vocab: &Vocab, ids: &AHashMap<&str, u32>) -> Result<BPE, TokenizerError> {
    let in_model = |id: u32| matches!(vocab.kinds[id as usize], TokenKind::Normal | TokenKind::UserDefined);
    let mut merges = Vec::with_capacity(vocab.merges.len());
    let mut joined = String::new();
    for (index, (left, right)) in vocab.merges.iter().enumerate() {
        joined.clear();
        joined.extend([left.as_str(), right.as_str()]);
        let fault = match [left, right, &joined].map(|text| ids.get(text.as_str()).copied()) {
            [Some(left_id), Some(right_id), Some(joined_id)] => {
                if [left_id, right_id, joined_id].into_iter().all(in_model) {
                    merges.push((left.clone(), right.clone()));
                }
                continue;
            }
            [None, _, _] => "begins with a text that is no token",
            [_, None, _] => "ends with a text that is no token",
            _ => "makes a text that is no token",
        };
        return Err(TokenizerError::Merge { index, text: format!("{left} {right}"), fault });
    }
    let tokens = ids.iter().filter(|&(_, &id)| in_model(id)).map(|(&text, &id)| (text.to_owned(), id));
    let bpe = BPE::builder()
        .vocab_and_merges(tokens.collect::<AHashMap<_, _>>(), merges)
        .ignore_merges(vocab.pre_tokenizer.ignore_merges)
        .build()
        .map_err(|error| TokenizerError::Bpe(error.to_string()))?;
    match (b' '..=b'~').chain([b'\n']).find(|&byte| !has_byte(&bpe, byte)) {
        Some(byte) => Err(TokenizerError::MissingByte(byte)),
        None => Ok(bpe),
    }
}

/// True if there is a token for this byte alone.
pub(super) fn has_byte(bpe: &BPE, byte: u8) -> bool {
    bpe.token_to_id(byte_level::byte_to_char(byte).encode_utf8(&mut [0; 2])).is_some()
}

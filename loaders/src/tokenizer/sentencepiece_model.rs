//! `tokenizer.model`: a SentencePiece vocabulary in protobuf, as far as BPE needs it.

use std::path::Path;

use super::sentencepiece::{Pieces, SentencePieceRule, kind_of};
use super::{TokenizerError, Vocab};

/// The number of BPE among SentencePiece's model types.
const BPE: u64 = 2;

/// Fields that matter; the defaults are SentencePiece's.
struct Model {
    pieces: Vec<Piece>,
    model_type: u64,
    whitespace_as_suffix: bool,
    bos: Option<u32>,
    eos: Option<u32>,
    charsmap: bool,
    space_prefix: bool,
    removes_whitespace: bool,
    escapes_whitespace: bool,
}

struct Piece {
    text: String,
    score: f32,
    kind: u64,
}

/// The vocabulary in the bytes of the file at `path`.
pub(super) fn read_vocab(path: &Path, bytes: &[u8]) -> Result<Vocab<'static>, TokenizerError> {
    let unsupported =
        |what: &str| TokenizerError::Unsupported { path: path.to_owned(), what: what.to_owned() };
    let model = Model::parse(bytes)
        .ok_or_else(|| unsupported("this is not a SentencePiece model, or the file is cut off"))?;
    if model.model_type != BPE {
        return Err(unsupported("only SentencePiece's BPE models are supported, not unigram, word or char"));
    }
    if model.charsmap || model.removes_whitespace || !model.escapes_whitespace || model.whitespace_as_suffix {
        return Err(unsupported(
            "the model normalizes text; only SentencePiece's identity rule, which keeps all spaces, is supported",
        ));
    }
    let kinds = model.pieces.iter().enumerate();
    let kinds =
        kinds.map(|(id, piece)| kind_of(id, &piece.text, piece.kind as i64)).collect::<Result<_, _>>()?;
    let scores = model.pieces.iter().map(|piece| piece.score).collect();
    let rule = SentencePieceRule { space_prefix: model.space_prefix };
    let texts = model.pieces.into_iter().map(|piece| piece.text).collect();
    let vocab = Pieces { texts, scores, kinds, rule }.into_vocab()?;
    Ok(Vocab { bos: model.bos, eos: model.eos, ..vocab })
}

impl Model {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut model = Self {
            pieces: Vec::new(),
            model_type: 1,
            whitespace_as_suffix: false,
            bos: Some(1),
            eos: Some(2),
            charsmap: false,
            space_prefix: true,
            removes_whitespace: true,
            escapes_whitespace: true,
        };
        for field in Fields(bytes) {
            match field? {
                (1, Value::Bytes(piece)) => model.pieces.push(Piece::parse(piece)?),
                (2, Value::Bytes(trainer)) => model.read_trainer(trainer)?,
                (3, Value::Bytes(normalizer)) => model.read_normalizer(normalizer)?,
                _ => {}
            }
        }
        (!model.pieces.is_empty()).then_some(model)
    }

    fn read_trainer(&mut self, bytes: &[u8]) -> Option<()> {
        // A special piece that the vocabulary does not have has the id -1.
        let id = |value| u32::try_from(value).ok();
        for field in Fields(bytes) {
            match field? {
                (3, Value::Number(model_type)) => self.model_type = model_type,
                (24, Value::Number(suffix)) => self.whitespace_as_suffix = suffix != 0,
                (41, Value::Number(bos)) => self.bos = id(bos),
                (42, Value::Number(eos)) => self.eos = id(eos),
                _ => {}
            }
        }
        Some(())
    }

    fn read_normalizer(&mut self, bytes: &[u8]) -> Option<()> {
        for field in Fields(bytes) {
            match field? {
                (2, Value::Bytes(charsmap)) => self.charsmap = !charsmap.is_empty(),
                (3, Value::Number(prefix)) => self.space_prefix = prefix != 0,
                (4, Value::Number(removes)) => self.removes_whitespace = removes != 0,
                (5, Value::Number(escapes)) => self.escapes_whitespace = escapes != 0,
                _ => {}
            }
        }
        Some(())
    }
}

impl Piece {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut piece = Self { text: String::new(), score: 0.0, kind: 1 };
        for field in Fields(bytes) {
            match field? {
                (1, Value::Bytes(text)) => piece.text = str::from_utf8(text).ok()?.to_owned(),
                (2, Value::Fixed32(score)) => piece.score = f32::from_le_bytes(score),
                (3, Value::Number(kind)) => piece.kind = kind,
                _ => {}
            }
        }
        Some(piece)
    }
}

/// The value of a field on the wire.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Fixed32([u8; 4]),
    Fixed64,
}

/// The fields of a protobuf message, by number; `None` for what is no message.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn field(&mut self) -> Option<(u64, Value<'a>)> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            1 => self.take(8).map(|_| Value::Fixed64)?,
            2 => {
                let len = usize::try_from(self.varint()?).ok()?;
                Value::Bytes(self.take(len)?)
            }
            5 => Value::Fixed32(self.take(4)?.try_into().ok()?),
            _ => return None,
        };
        Some((tag >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Option<(u64, Value<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.0.is_empty()).then(|| self.field())
    }
}

//! GGUF files of real shapes with seeded random weights: for benchmarks and for machines without downloads.
mod blocks;
mod preset;
mod projector;
mod vocab;

use ember_loaders::checkpoint::TensorSpec;
use ember_loaders::gguf::{GgmlType, GgufWriteError, GgufWriter};
pub use preset::{Family, Shape, SynthType, preset_names, shape};
pub use projector::{ProjectorShape, projector_names, projector_shape};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::io::Write;

/// Bytes generated at a time.
const PIECE_BYTES: usize = 4 << 20;

/// Contents of a synthetic file.
pub trait Contents {
    /// `general.name`.
    fn title(&self) -> String;
    /// Every key but name, storage and version, with the vocabulary of a text model.
    ///
    /// # Errors
    /// If the output refuses.
    fn write_metadata<W: Write>(&self, header: &mut GgufWriter<W>) -> Result<(), GgufWriteError>;
    /// Every tensor with its type, in file order.
    fn tensors(&self, ty: SynthType) -> Vec<(TensorSpec, GgmlType)>;
    /// The values of a vector.
    fn vector(&self, tensor: &TensorSpec) -> Vec<f32>;
}

/// Writes a whole file to `out`, calling `progress` with the bytes of tensor data written so far; it returns whether
/// to go on. Gives back the output, or nothing when `progress` stopped it.
///
/// The same arguments give the same bytes. Memory stays at a few megabytes whatever the size of the model.
///
/// # Errors
/// If the output refuses.
///
/// # Panics
/// If the vocabulary of a text model is too small for the control tokens and the bytes (524 tokens are enough for every
/// family).
pub fn write<W: Write>(
    out: W,
    contents: &impl Contents,
    ty: SynthType,
    seed: u64,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Option<W>, GgufWriteError> {
    let mut header = GgufWriter::new(out, 3, 32)?;
    contents.write_metadata(&mut header)?;
    header.metadata("general.name", contents.title())?;
    header.metadata("general.file_type", ty.file_type())?;
    header.metadata("general.quantization_version", 2u32)?;
    let tensors = contents.tensors(ty);
    for (tensor, ty) in &tensors {
        header.tensor(&tensor.name, *ty, &tensor.dims)?;
    }
    let mut data = header.start_data()?;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut written = 0;
    for (tensor, ty) in &tensors {
        let mut left = tensor.elements() / ty.block_len();
        let per_piece = (PIECE_BYTES / ty.block_bytes()).max(1);
        while left > 0 {
            let n_blocks = left.min(per_piece);
            let piece = if tensor.role.is_matrix() {
                blocks::random(*ty, n_blocks, tensor.dims[0], &mut rng)
            } else {
                contents.vector(tensor).into_iter().flat_map(f32::to_le_bytes).collect()
            };
            data.write(&tensor.name, &piece)?;
            left -= n_blocks;
            written += piece.len() as u64;
            if !progress(written) {
                return Ok(None);
            }
        }
    }
    data.finish().map(Some)
}

/// Bytes of tensor data that [`write()`] will write.
pub fn data_bytes(contents: &impl Contents, ty: SynthType) -> u64 {
    let bytes = |(tensor, ty): &(TensorSpec, GgmlType)| {
        (tensor.elements() / ty.block_len() * ty.block_bytes()) as u64
    };
    contents.tensors(ty).iter().map(bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ember_loaders::checkpoint::{Checkpoint, TensorSource};
    use ember_loaders::gguf::Gguf;
    use ember_loaders::projector::Projector;
    use ember_loaders::tokenizer::{SpecialTokens, Tokenizer};

    const FAMILIES: [(Family, &str); 3] =
        [(Family::Qwen3, "0.6b"), (Family::Mistral3, "3b"), (Family::Llama, "3b")];

    /// A file of a shape made small, in memory.
    fn file(family: Family, preset: &str, ty: SynthType, seed: u64) -> Vec<u8> {
        let mut shape = shape(family, preset).unwrap();
        (shape.hidden, shape.ffn, shape.heads, shape.kv_heads) = (256, 512, 2, 1);
        (shape.layers, shape.vocab) = (2, 20_000);
        write(Vec::new(), &shape, ty, seed, &mut |_| true).unwrap().unwrap()
    }

    #[test]
    fn the_seed_decides_the_bytes_of_every_type() {
        for ty in [SynthType::Q8_0, SynthType::Q4_0, SynthType::Q4KM, SynthType::F16] {
            let of_seed = |seed| file(Family::Qwen3, "0.6b", ty, seed);
            assert!(of_seed(7) == of_seed(7), "{ty:?}");
            assert!(of_seed(7) != of_seed(8), "{ty:?}");
        }
    }

    #[test]
    fn every_family_is_a_whole_checkpoint_with_a_tokenizer() {
        for (family, preset) in FAMILIES {
            let gguf = Gguf::from_bytes(file(family, preset, SynthType::Q4KM, 0)).unwrap();
            let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
            assert_eq!(tokenizer.vocab_size(), 20_000);
            let text = "ab cd, \u{e9}";
            let ids = tokenizer.encode(text, SpecialTokens::Ignore).unwrap();
            assert_eq!(tokenizer.decode(&ids, false), text);
            assert!(ids.len() < text.len(), "words are tokens: {ids:?}");
            let checkpoint = Checkpoint::from_gguf(gguf).unwrap();
            let config = checkpoint.config();
            assert_eq!(config.arch.name(), family.arch());
            let beta = config.query_scale.map(|scale| scale.beta);
            assert_eq!(beta, (family == Family::Mistral3).then_some(0.1));
            let factors = checkpoint.opt_tensor("rope_freqs.weight").map(|tensor| tensor.to_f32()[63]);
            assert_eq!(factors, (family == Family::Llama).then_some(32.0));
        }
    }

    #[test]
    fn projectors_are_whole() {
        for (preset, text_hidden, cell) in [("24b", 5120, 28), ("12b", 5120, 16), ("3b", 3072, 28)] {
            let mut shape = projector_shape(preset).unwrap();
            shape.layers = 1;
            let file = write(Vec::new(), &shape, SynthType::Q4KM, 0, &mut |_| true).unwrap().unwrap();
            let projector = Projector::from_gguf(Gguf::from_bytes(file).unwrap()).unwrap();
            let config = projector.config();
            assert_eq!((config.text_hidden_size, config.cell_size()), (text_hidden, cell));
        }
    }

    #[test]
    fn progress_can_stop_the_writing() {
        let shape = shape(Family::Qwen3, "0.6b").unwrap();
        let mut calls = 0;
        let stopped = write(std::io::sink(), &shape, SynthType::Q8_0, 0, &mut |_| {
            calls += 1;
            calls < 2
        });
        assert!(stopped.unwrap().is_none());
        assert_eq!(calls, 2);
    }
}

//! GGUF files of real shapes with seeded random weights: for benchmarks and for machines without downloads.
mod blocks;
mod preset;
mod vocab;

use ember_loaders::gguf::{GgmlType, GgufWriteError, GgufWriter};
pub use preset::{Family, Shape, SynthType, preset_names, shape};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::io::Write;

/// Bytes generated at a time.
const PIECE_BYTES: usize = 4 << 20;

/// Writes a whole file to `out`, calling `progress` with the bytes of tensor data written so far; it returns whether
/// to go on. Gives back the output, or nothing when `progress` stopped it.
///
/// The same arguments give the same bytes. Memory stays at a few megabytes whatever the size of the model.
///
/// # Errors
/// When the output refuses.
pub fn write<W: Write>(
    out: W,
    shape: &Shape,
    ty: SynthType,
    seed: u64,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Option<W>, GgufWriteError> {
    let mut header = GgufWriter::new(out, 3, 32)?;
    header.metadata("general.architecture", shape.family.arch())?;
    header.metadata("general.name", format!("Synthetic {} {}", shape.family.arch(), shape.name))?;
    header.metadata("general.quantization_version", 2u32)?;
    shape.write_metadata(&mut header)?;
    vocab::write(&mut header, shape.family, shape.vocab)?;
    let tensors = shape.tensors(ty);
    for (name, ty, dims) in &tensors {
        header.tensor(name, *ty, dims)?;
    }
    let mut data = header.start_data()?;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut written = 0;
    for (name, ty, dims) in &tensors {
        let mut left = dims.iter().product::<usize>() / ty.block_len();
        let per_piece = (PIECE_BYTES / ty.block_bytes()).max(1);
        while left > 0 {
            let n_blocks = left.min(per_piece);
            let piece = match dims[..] {
                [_] => 1f32.to_le_bytes().repeat(n_blocks),
                _ => blocks::random(*ty, n_blocks, dims[0], &mut rng),
            };
            data.write(name, &piece)?;
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
pub fn data_bytes(shape: &Shape, ty: SynthType) -> u64 {
    let bytes = |(_, ty, dims): &(String, GgmlType, Vec<usize>)| {
        (dims.iter().product::<usize>() / ty.block_len() * ty.block_bytes()) as u64
    };
    shape.tensors(ty).iter().map(bytes).sum()
}

//! `ember vision`: the embeddings of an image, as a safetensors file.
use super::args::DeviceArgs;
use super::image_args::image_tokens;
use super::interrupt::Listener;
use super::model::report_images;
use super::out_file::{ForceArg, OutFile};
use super::paths::path_or_file_uri;
use super::safetensors::{Dtype, write_f32, write_header, write_i64};
use super::{Outcome, progress};
use anyhow::{Context, Result};
use clap::builder::{OsStringValueParser, TypedValueParser};
use ember::engine::EncodedImage;
use ember::{Error, VisionModel};
use std::io::{self, Write};
use std::path::PathBuf;

/// Write the embeddings of an image to a safetensors file
#[derive(clap::Args)]
#[command(
    after_help = "The file holds `embeddings` (f32, [rows x columns, width of the text model]), the cells of the image row by row, and
`grid` (i64, [rows, columns]). It appears under its name only when it is complete.

Examples:
  ember vision --mmproj mmproj.gguf --image photo.jpg --out photo.safetensors
  ember vision --mmproj mmproj.gguf --image scan.png --image-max-tokens 500 --out scan.safetensors"
)]
pub struct Args {
    /// Projector file
    #[arg(long, value_name = "FILE")]
    mmproj: PathBuf,
    /// Image: PNG, JPEG, WebP, GIF (its first frame) or BMP
    #[arg(long, value_name = "FILE", value_parser = OsStringValueParser::new().map(path_or_file_uri))]
    image: PathBuf,
    /// Scale the image down to at most N tokens
    #[arg(long, value_name = "N", value_parser = image_tokens)]
    image_max_tokens: Option<usize>,
    /// File to write
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    force: ForceArg,
    #[command(flatten)]
    device: DeviceArgs,
}

/// Encodes the image and writes the file.
pub fn run(args: Args) -> Result<Outcome> {
    let mut model = VisionModel::open(&args.mmproj, args.image_max_tokens, &args.device.into())?;
    let inputs = [model.paths(), std::slice::from_ref(&args.image)].concat();
    let out = OutFile::new(&args.out, args.force.into(), &inputs)?;
    let file = model.read(&args.image)?;
    eprintln!("{}", model.description());
    let _listener = Listener::new();
    let encoded = match model.encode(&[file], &progress::reporter()) {
        Err(Error::Cancelled) => return Ok(Outcome::Interrupted),
        encoded => encoded?,
    };
    report_images(&encoded);
    let cannot_write = || out.cannot_write();
    let mut file = out.create()?;
    for image in &encoded.images {
        write_image(&mut file, image).with_context(cannot_write)?;
    }
    file.commit().with_context(cannot_write)?;
    Ok(Outcome::Done)
}

fn write_image(out: &mut impl Write, image: &EncodedImage) -> io::Result<()> {
    let (grid, embeddings) = (image.grid, &image.embeddings);
    let shape = [grid.cells(), embeddings.len() / grid.cells()];
    // The wider type first: every tensor then starts at a multiple of its element's size.
    write_header(out, &[("grid", Dtype::I64, &[2]), ("embeddings", Dtype::F32, &shape)])?;
    write_i64(out, [grid.rows, grid.cols].map(|side| side as i64))?;
    write_f32(out, embeddings)
}

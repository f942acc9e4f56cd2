//! Speed of the image encoder: `cargo bench -p ember --bench vision -- [MMPROJ IMAGE] [--threads N]`, with `--features cuda`
//! (or another backend) on a GPU.
//!
//! The encoding of one image, without reading and resizing it: the median of 5 after one that is not counted. Without files
//! it is two layers of a Pixtral tower with random weights, and 24 x 32 cells.
use ember::device::{BackendKind, DeviceOptions, load_projector};
use ember::synth::{self, SynthType};
use ember_loaders::gguf::Gguf;
use ember_loaders::image::{ImageLimits, PixelValues, RgbImage, decode_file};
use ember_loaders::projector::Projector;
use std::path::Path;
use std::time::Instant;

const ROUNDS: usize = 5;

fn main() {
    let mut files: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let mut threads = None;
    if let Some(at) = files.iter().position(|arg| arg == "--threads") {
        threads = files.get(at + 1).map(|n| n.parse().expect("--threads takes a number"));
        files.drain(at..files.len().min(at + 2));
    }
    let (projector, image) = match &files[..] {
        [] => (random_projector(), gradient(896, 672)),
        [mmproj, image] => (
            Projector::open(mmproj).unwrap_or_else(|error| panic!("{mmproj}: {error}")),
            decode_file(Path::new(image), &ImageLimits::default()).unwrap_or_else(|error| panic!("{error}")),
        ),
        _ => panic!("give a projector and an image, or neither"),
    };
    let pixels = projector.preprocessor(None).preprocess(&image);
    let options = DeviceOptions { backend: BackendKind::default(), device: 0, threads };
    let mut encoder = load_projector(&projector, &options, &mut |_| ()).expect("a projector that fits");
    let mut round = || {
        let started = Instant::now();
        encoder.encode(&pixels).expect("an image that fits");
        started.elapsed().as_secs_f64()
    };
    round();
    let mut seconds: Vec<f64> = (0..ROUNDS).map(|_| round()).collect();
    seconds.sort_by(f64::total_cmp);
    let PixelValues { width, height, grid, .. } = pixels;
    println!(
        "{width} x {height} pixels, {} cells: {:.0} ms ({:.0} to {:.0})",
        grid.cells(),
        1e3 * seconds[ROUNDS / 2],
        1e3 * seconds[0],
        1e3 * seconds[ROUNDS - 1]
    );
}

fn random_projector() -> Projector {
    let mut shape = synth::projector_shape("24b").expect("a preset");
    shape.layers = 2;
    let file = synth::write(Vec::new(), &shape, SynthType::F16, 0, &mut |_| true).expect("writing to memory");
    let gguf = Gguf::from_bytes(file.expect("not stopped")).expect("a valid file");
    Projector::from_gguf(gguf).expect("a whole projector")
}

fn gradient(width: usize, height: usize) -> RgbImage {
    let pixels =
        (0..height).flat_map(|y| (0..width).flat_map(move |x| [x as u8, y as u8, (x + y) as u8])).collect();
    RgbImage { width, height, pixels }
}

//! Images through the engine: each is encoded once, and what the text model makes of the embeddings.
use ember::chat::ImageTokens;
use ember::device::{BackendKind, CacheOptions, DeviceOptions, KvType, LoadOptions, load, load_projector};
use ember::engine::vision::{DEFAULT_CACHE_BYTES, ImageCache, ImageEncoder, PreparedImage};
use ember::engine::{EncodedImage, Engine, GenerateLimits, Generation, ImageSpan, Sequence, Tokens, Wanted};
use ember::sampling::{Sampler, SamplingParams};
use ember_loaders::checkpoint::Checkpoint;
use ember_loaders::image::{ImageGrid, PixelValues, RgbImage};
use ember_loaders::projector::{PixtralConfig, Projector};
use ember_models::ModelError;
use ember_test_support::{TensorFile, max_relative};
use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

fn fixture(path: &str) -> PathBuf {
    ember_test_support::fixture("vision").join(path)
}

/// Bytes of the embeddings of one image.
const IMAGE_BYTES: usize = 2 * 4 * size_of::<f32>();

/// Gives each cell four times the first pixel.
struct Counting {
    config: PixtralConfig,
    calls: Rc<Cell<usize>>,
}

impl ImageEncoder for Counting {
    fn config(&self) -> &PixtralConfig {
        &self.config
    }

    fn encode(&mut self, image: &PixelValues) -> Result<Vec<f32>, ModelError> {
        self.calls.set(self.calls.get() + 1);
        Ok(vec![image.values[0]; 4 * image.grid.cells()])
    }
}

fn cache(max_bytes: usize) -> (ImageCache, Rc<Cell<usize>>) {
    let config =
        Projector::open(fixture("gelu-2/mmproj-f32.gguf")).expect("a committed fixture").config().clone();
    let calls = Rc::new(Cell::new(0));
    (ImageCache::new(Box::new(Counting { config, calls: calls.clone() }), max_bytes), calls)
}

/// An image of one row of two cells.
fn image(pixel: f32) -> PreparedImage {
    let grid = ImageGrid { rows: 1, cols: 2 };
    PreparedImage::new(PixelValues { grid, width: 2, height: 1, values: vec![pixel; 6] })
}

#[test]
fn each_distinct_image_is_encoded_once() {
    let (mut cache, calls) = cache(10 * IMAGE_BYTES);
    for pixel in [1.0, 2.0, 1.0, 1.0, 2.0] {
        let encoded = cache.encode(&image(pixel)).expect("finite values");
        assert_eq!(encoded.embeddings[..], [pixel; 8]);
        assert_eq!((encoded.hash, encoded.grid), (*image(pixel).hash(), image(pixel).pixels().grid));
    }
    assert_eq!(calls.get(), 2);
    assert!(cache.contains(&image(1.0)) && !cache.contains(&image(3.0)));
}

#[test]
fn the_images_not_used_for_longest_make_room() {
    let (mut cache, calls) = cache(2 * IMAGE_BYTES);
    for pixel in [1.0, 2.0, 1.0, 3.0] {
        cache.encode(&image(pixel)).expect("finite values");
    }
    let kept = [1.0, 2.0, 3.0].map(|pixel| cache.contains(&image(pixel)));
    assert_eq!((kept, calls.get()), ([true, false, true], 3));
}

#[test]
fn an_image_larger_than_the_cache_is_encoded_all_the_same() {
    let (mut cache, calls) = cache(0);
    for _ in 0..2 {
        assert_eq!(cache.encode(&image(1.0)).expect("finite values").embeddings.len(), 8);
    }
    assert_eq!(calls.get(), 1, "the last image stays");
}

#[test]
fn embeddings_that_are_not_finite_are_refused() {
    let (mut cache, _) = cache(0);
    let error = cache.encode(&image(f32::NAN)).expect_err("a NaN").to_string();
    assert_eq!(error, "the image encoder produced NaN: the projector file is damaged or its values overflow");
    assert!(!cache.contains(&image(f32::NAN)));
}

/// The tokens of all fixtures.
const TOKENS: ImageTokens = ImageTokens { cell: 10, row_break: 12, end: 13 };

const OPTIONS: LoadOptions = LoadOptions {
    device: DeviceOptions { backend: BackendKind::Ndarray, device: 0, threads: None },
    cache: CacheOptions { context_size: 64, kv_type: KvType::F32 },
};

fn engine(model: &str) -> Engine {
    let checkpoint = Checkpoint::open(fixture(model)).expect("a committed fixture");
    Engine::new(load(&checkpoint, &OPTIONS, &mut |_| ()).expect("a model that fits").runner)
}

/// Token ids, images and logits of a reference file, with the embeddings of the reference.
fn reference(name: &str) -> (Vec<u32>, Vec<ImageSpan>, Vec<f32>) {
    let file = TensorFile::open(fixture(name));
    let ids = file.ids("input_ids");
    let mut spans = Vec::new();
    let mut at = 0;
    while let Some(start) = ids[at..].iter().position(|&id| id == TOKENS.cell).map(|offset| at + offset) {
        let cols = ids[start..].iter().take_while(|&&id| id == TOKENS.cell).count();
        at = start + ids[start..].iter().position(|&id| id == TOKENS.end).expect("an end") + 1;
        let grid = ImageGrid { rows: (at - start) / (cols + 1), cols };
        let n = spans.len();
        let name = if file.has("embeddings") { "embeddings".to_owned() } else { format!("embeddings.{n}") };
        let embeddings = file.f32(&name).into();
        let image = EncodedImage { hash: [n as u8; 32], grid, embeddings };
        spans.push(ImageSpan { start, image: Arc::new(image) });
    }
    (ids, spans, file.f32("logits"))
}

#[test]
fn logits_with_transformers_embeddings_are_transformers() {
    for model in ["gelu-2", "silu-2", "silu-1"] {
        let mut engine = engine(&format!("{model}/text-f32.gguf"));
        for (name, images) in [("reference", 1), ("reference-two", 2)] {
            let (ids, spans, expected) = reference(&format!("{model}/{name}.safetensors"));
            assert_eq!(spans.len(), images);
            for chunk in [1, 5, 64] {
                engine.set_prefill_chunk(chunk);
                let mut sequence = Sequence::default();
                let tokens = Tokens { ids: &ids, images: &spans };
                let output = engine.extend(&mut sequence, tokens, Wanted::All, &mut |_| true);
                let difference = max_relative(&output.expect("it fits").logits, &expected);
                engine.truncate(&mut sequence, 0);
                assert!(difference < 1e-4, "{model}, {name}, chunks of {chunk}: {difference}");
            }
        }
    }
}

/// An image of 2 x 3 cells of 28 pixels.
fn photograph(projector: &Projector, seed: usize) -> PreparedImage {
    let (width, height) = (84, 56);
    let pixels = (0..width * height * 3).map(|i| ((i * seed) % 253) as u8).collect();
    PreparedImage::new(projector.preprocessor(None).preprocess(&RgbImage { width, height, pixels }))
}

#[test]
fn the_same_prompt_with_another_image_of_the_same_size_gives_the_other_images_logits() {
    let projector = Projector::open(fixture("gelu-2/mmproj-f32.gguf")).expect("a committed fixture");
    let encoder = load_projector(&projector, &OPTIONS.device, &mut |_| ()).expect("a projector that fits");
    let mut cache = ImageCache::new(encoder, DEFAULT_CACHE_BYTES);
    let mut engine = engine("gelu-2/text-f32.gguf");
    let grid = ImageGrid { rows: 2, cols: 3 };
    let ids = [&[1, 50, 51, 52][..], &TOKENS.of_grid(grid), &[53, 54]].concat();
    let mut image = |seed| {
        let encoded = cache.encode(&photograph(&projector, seed)).expect("finite values");
        assert_eq!(encoded.grid, grid);
        [ImageSpan { start: 4, image: encoded }]
    };
    let (first, second) = (image(7), image(11));
    let mut fresh = |images: &[ImageSpan]| {
        let mut sequence = Sequence::default();
        let tokens = Tokens { ids: &ids, images };
        let output = engine.extend(&mut sequence, tokens, Wanted::Last, &mut |_| true).expect("it fits");
        engine.truncate(&mut sequence, 0);
        output.logits
    };
    let expected = [fresh(&first), fresh(&second)];
    assert!(max_relative(&expected[0], &expected[1]) > 1e-3, "the images differ too little to tell");

    // One conversation: what is cached of the first prompt serves the second up to the image.
    let mut sequence = Sequence::default();
    let mut sampler = Sampler::new(SamplingParams::default()).expect("greedy is valid");
    let limits = GenerateLimits { max_tokens: Some(1), ..GenerateLimits::default() };
    for (images, cached) in [(&first, 0), (&second, 4), (&first, 4), (&first, ids.len() - 1)] {
        let prompt = Tokens { ids: &ids, images };
        let mut answer =
            Generation::start(&mut engine, &mut sequence, prompt, limits.clone()).expect("it fits");
        answer.run(&mut engine, &mut sequence, &mut sampler).expect("it fits");
        assert_eq!(answer.cached_tokens(), cached);
        // The last token once more, for its logits.
        engine.truncate(&mut sequence, ids.len() - 1);
        let last = Tokens { ids: &ids[ids.len() - 1..], images };
        let logits = engine.extend(&mut sequence, last, Wanted::Last, &mut |_| true).expect("it fits").logits;
        let own = usize::from(std::ptr::eq(images, &second));
        assert_eq!(logits, expected[own], "the CPU's results do not depend on how the rows were cut");
    }
}

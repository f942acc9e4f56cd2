//! Tiny random vision models and what Hugging Face transformers computes with them.
use super::values;
use ember_loaders::checkpoint::Checkpoint;
use ember_loaders::image::{ImageGrid, PixelValues};
use ember_loaders::projector::Projector;
use ember_models::backend::Backend;
use ember_models::{Batch, EmbeddingRows, KvCache, KvType, Pixtral, TextModel, WeightFormat};
use ember_test_support::{TensorFile, lowest_cosine, max_relative};
use std::path::PathBuf;

/// The models.
pub const MODELS: [&str; 3] = ["gelu-2", "silu-2", "silu-1"];
/// The two layouts, and Ollama's file that also holds the text model.
pub const FILES: [(&str, &str); 7] = [
    ("gelu-2", "mmproj-f32.gguf"),
    ("gelu-2", "mmproj-ollama-f32.gguf"),
    ("gelu-2", "ollama-f16.gguf"),
    ("silu-2", "mmproj-f32.gguf"),
    ("silu-2", "mmproj-ollama-f32.gguf"),
    ("silu-1", "mmproj-f32.gguf"),
    ("silu-1", "mmproj-ollama-f32.gguf"),
];
/// References of one image and of two.
pub const REFERENCES: [&str; 2] = ["reference.safetensors", "reference-two.safetensors"];

/// A committed fixture.
pub fn fixture(model: &str, file: &str) -> PathBuf {
    ember_test_support::fixture("vision").join(model).join(file)
}

/// The projector of a fixture.
pub fn projector(model: &str, file: &str) -> Projector {
    Projector::open(fixture(model, file)).unwrap_or_else(|error| panic!("{model}/{file}: {error}"))
}

/// The encoder of a fixture, packed.
pub fn load<B: Backend>(model: &str, file: &str) -> Pixtral<B> {
    let projector = projector(model, file);
    Pixtral::load(&projector, WeightFormat::Packed, &Default::default()).expect("a whole projector")
}

/// What Hugging Face transformers computed of a prompt with images.
pub struct Reference {
    /// The prompt, images expanded.
    pub tokens: Vec<u32>,
    /// The images.
    pub images: Vec<PixelValues>,
    /// `[patches of all images, vision width]`.
    pub vision_hidden: Vec<f32>,
    /// `[cells of all images, text width]`.
    pub embeddings: Vec<f32>,
    /// `[tokens, vocab]`.
    pub logits: Vec<f32>,
}

/// A reference; `cell` is the side of a cell in pixels.
pub fn reference(model: &str, file: &str, cell: usize) -> Reference {
    let file = TensorFile::open(fixture(model, file));
    // One tensor of a prompt with one image, or a numbered one for each.
    let all = |name: &str| -> Vec<String> {
        let numbered = (0..).map(|i| format!("{name}.{i}")).take_while(|name| file.has(name));
        file.has(name).then(|| name.to_owned()).into_iter().chain(numbered).collect()
    };
    let joined = |name: &str| all(name).iter().flat_map(|name| file.f32(name)).collect();
    let image = |name: &String| {
        let [_, height, width] = file.shape(name)[..] else { panic!("{name} is no image") };
        let grid = ImageGrid { rows: height / cell, cols: width / cell };
        PixelValues { grid, width, height, values: file.f32(name) }
    };
    Reference {
        tokens: file.ids("input_ids"),
        images: all("pixel_values").iter().map(image).collect(),
        vision_hidden: joined("vision_hidden"),
        embeddings: joined("embeddings"),
        logits: file.f32("logits"),
    }
}

/// Embeddings of a file's encoder against a reference: smallest cosine of a cell and largest difference.
pub fn compare<B: Backend>(encoder: &Pixtral<B>, reference: &Reference) -> (f64, f64) {
    let embeddings =
        encoder.forward(&reference.images, &Default::default()).expect("pixels as the grid says");
    let embeddings = values(embeddings);
    let width = encoder.config().text_hidden_size;
    (
        lowest_cosine(&embeddings, &reference.embeddings, width),
        max_relative(&embeddings, &reference.embeddings),
    )
}

/// Both layouts, one image and two.
pub fn embeddings_equal_the_reference<B: Backend>() {
    for (model, file) in FILES {
        let encoder = load::<B>(model, file);
        for expected in REFERENCES {
            let reference = reference(model, expected, encoder.config().cell_size());
            let hidden = values(encoder.tower(&reference.images, &Default::default()).expect("valid images"));
            let error = max_relative(&hidden, &reference.vision_hidden);
            assert!(error < 1e-4, "{model}/{file} against {expected}: the tower is off by {error}");
            let (cosine, error) = compare(&encoder, &reference);
            assert!(cosine > 0.99999, "{model}/{file} against {expected}: cosine {cosine}");
            assert!(error < 1e-4, "{model}/{file} against {expected}: off by {error}");
        }
    }
}

/// Id of `[IMG]` in the fixtures' vocabulary.
const IMG: u32 = 10;

/// Logits of the prompt with its images, through an f32 cache.
pub fn logits<B: Backend>(text: &TextModel<B>, encoder: &Pixtral<B>, reference: &Reference) -> Vec<f32> {
    let device = Default::default();
    let embeddings = values(encoder.forward(&reference.images, &device).expect("valid images"));
    let embeddings: std::sync::Arc<[f32]> = embeddings.into();
    let n = reference.tokens.len();
    let table: Vec<u32> = (0..n.div_ceil(KvCache::BLOCK_LEN) as u32).collect();
    let mut batch = Batch::single(&reference.tokens, 0, &table, KvCache::BLOCK_LEN);
    batch.logits_rows = (0..n as u32).collect();
    let places = (0..n).filter(|&i| reference.tokens[i] == IMG);
    let part = |(first, start)| EmbeddingRows { start, values: embeddings.clone(), first, n: 1 };
    batch.embeddings = places.enumerate().map(part).collect();
    let mut cache = KvCache::new::<B>(text.config(), KvType::F32, n, &device).expect("a small cache");
    let output = text.step(&batch, &mut cache, &device).expect("a valid batch");
    values(output.logits.expect("every row was wanted"))
}

/// Pixels to logits, both layouts, one image and two.
pub fn logits_equal_the_reference<B: Backend>() {
    for (model, file) in FILES {
        let encoder = load::<B>(model, file);
        let checkpoint = Checkpoint::open(fixture(model, "text-f32.gguf")).expect("a committed fixture");
        projector(model, file).check_fits(checkpoint.config()).expect("they belong together");
        let text =
            TextModel::load(&checkpoint, WeightFormat::Packed, &Default::default()).expect("a checkpoint");
        for expected in REFERENCES {
            let reference = reference(model, expected, encoder.config().cell_size());
            let error = max_relative(&logits::<B>(&text, &encoder, &reference), &reference.logits);
            assert!(error < 1e-4, "{model}/{file} against {expected}: {error}");
        }
    }
}

/// Projectors in Q8_0, on a backend whose products leave activations alone: the reference has the same rounded weights.
pub fn quantized_projectors_equal_the_reference<B: Backend>() {
    for model in MODELS {
        let encoder = load::<B>(model, "mmproj-q8_0.gguf");
        let (cosine, error) = compare(&encoder, &quantized_reference(model, encoder.config().cell_size()));
        assert!(cosine > 0.99999 && error < 1e-4, "{model}: {cosine}, {error}");
    }
}

/// The reference of a quantized projector; its pixels stand in the file of the f32 reference.
pub fn quantized_reference(model: &str, cell: usize) -> Reference {
    let embeddings = TensorFile::open(fixture(model, "reference-q8_0.safetensors")).f32("embeddings");
    Reference { embeddings, ..reference(model, REFERENCES[0], cell) }
}

//! The vision encoder against Hugging Face transformers and llama.cpp, and mutations that must not pass.
mod common;

use burn::backend::Autodiff;
use burn::module::Param;
use burn::tensor::TensorData;
use burn_ndarray::NdArray;
use common::values;
use common::vision::{self, FILES, MODELS, REFERENCES, Reference, compare, load, projector, reference};
use ember_loaders::checkpoint::{Checkpoint, Pairing, TensorSource};
use ember_loaders::image::{ImageGrid, ImageLimits, decode_file};
use ember_loaders::projector::{Activation, PixtralConfig};
use ember_models::layers::Linear;
use ember_models::layers::rope::RopeTable;
use ember_models::pixtral::rope_table;
use ember_models::{ModelError, Pixtral, TextModel, WeightFormat};
use ember_test_support::{TensorFile, fixture, lowest_cosine, max_relative};

type B = NdArray;

#[test]
fn embeddings_equal_the_reference() {
    vision::embeddings_equal_the_reference::<B>();
}

#[test]
fn logits_equal_the_reference() {
    vision::logits_equal_the_reference::<B>();
}

#[test]
fn an_ollama_file_also_holds_the_text_model() {
    let (model, file) = ("gelu-2", "ollama-f16.gguf");
    let checkpoint = Checkpoint::open(vision::fixture(model, file)).expect("a committed fixture");
    let text = TextModel::load(&checkpoint, WeightFormat::Packed, &Default::default()).expect("a checkpoint");
    let encoder = load::<B>(model, file);
    let reference = reference(model, REFERENCES[0], encoder.config().cell_size());
    let error = max_relative(&vision::logits::<B>(&text, &encoder, &reference), &reference.logits);
    assert!(error < 1e-4, "{error}");
}

#[test]
fn dense_weights_give_the_same_embeddings() {
    let file = projector("gelu-2", "mmproj-f32.gguf");
    let dense = Pixtral::<B>::load(&file, WeightFormat::Dense, &Default::default()).expect("a projector");
    let reference = reference("gelu-2", REFERENCES[0], 28);
    let (cosine, error) = compare(&dense, &reference);
    assert!(cosine > 0.99999 && error < 1e-4, "{cosine}, {error}");
}

/// On the default bodies, on which training runs; the CPU's products round activations to int8, which shows at a width of
/// 32.
#[test]
fn quantized_projectors_stay_in_their_blocks() {
    vision::quantized_projectors_equal_the_reference::<Autodiff<B>>();
    for model in MODELS {
        let encoder = load::<B>(model, "mmproj-q8_0.gguf");
        let reference = vision::quantized_reference(model, encoder.config().cell_size());
        let (cosine, _) = compare(&encoder, &reference);
        assert!(cosine > 0.99, "{model}: {cosine}");
    }
}

#[test]
fn embeddings_equal_llama_cpp_s() {
    for (model, side) in [("gelu-2", 224), ("gelu-2", 448), ("silu-2", 224), ("silu-2", 448), ("silu-1", 512)]
    {
        let file = projector(model, "mmproj-f32.gguf");
        let path = fixture(format!("vision/ramps-{side}.png"));
        let image = decode_file(&path, &ImageLimits::default()).expect("a committed picture");
        let mut preprocessor = file.preprocessor(None);
        preprocessor.rule.longest_edge = side;
        let pixels = preprocessor.preprocess(&image);
        let encoder = load::<B>(model, "mmproj-f32.gguf");
        let ours = values(encoder.forward(&[pixels], &Default::default()).expect("a valid image"));
        let (theirs, name) =
            (TensorFile::open(vision::fixture(model, "llamacpp.safetensors")), format!("embeddings.{side}"));
        let cosine = lowest_cosine(&ours, &theirs.f32(&name), theirs.shape(&name)[1]);
        assert!(cosine > 0.9999, "{model} at {side}: {cosine}");
    }
}

#[test]
fn images_of_one_batch_do_not_see_each_other() {
    for model in MODELS {
        let encoder = load::<B>(model, "mmproj-f32.gguf");
        let images = reference(model, REFERENCES[1], encoder.config().cell_size()).images;
        let encode = |images| values(encoder.forward(images, &Default::default()).expect("valid images"));
        let alone: Vec<f32> = images.chunks(1).flat_map(encode).collect();
        let error = max_relative(&encode(&images), &alone);
        assert!(error < 1e-5, "{model}: {error}");
        let mut other = images.clone();
        other[0].values.iter_mut().for_each(|value| *value += 1.0);
        let first = images[0].grid.cells() * encoder.config().text_hidden_size;
        let (before, after) = (encode(&images), encode(&other));
        assert!(before[..first] != after[..first], "{model}: the first image is another one");
        assert!(before[first..] == after[first..], "{model}: the second saw the first");
    }
}

#[test]
fn pixels_at_odds_with_their_grid_are_refused() {
    let encoder = load::<B>("gelu-2", "mmproj-f32.gguf");
    let mut image = reference("gelu-2", REFERENCES[0], 28).images.remove(0);
    image.grid = ImageGrid { rows: 3, cols: 5 };
    let error = encoder.forward(&[image], &Default::default()).expect_err("rows and columns are swapped");
    assert!(matches!(error, ModelError::InvalidImage(_)), "{error}");
    assert_eq!(
        error.to_string(),
        "invalid image: 35280 values of 84 x 140 pixels are not 5 x 3 cells of 28 x 28"
    );
}

/// What the comparison finds of a broken encoder must be far from what it accepts.
fn assert_caught(what: &str, model: &str, embeddings: &[f32], reference: &Reference, width: usize) {
    let cosine = lowest_cosine(embeddings, &reference.embeddings, width);
    assert!(cosine < 0.999, "{model}: {what} passes with {cosine}");
}

#[test]
fn wrong_configurations_are_caught() {
    let mutate = |what: &str, model: &str, file: &str, change: &dyn Fn(&mut PixtralConfig)| {
        let projector = projector(model, file);
        let mut config = projector.config().clone();
        change(&mut config);
        assert_ne!(&config, projector.config(), "{what} changes something");
        let device = Default::default();
        let mutant = Pixtral::<B>::load_with(&projector, config, WeightFormat::Packed, &device, &mut |_| ());
        let mutant = mutant.expect("sizes are unchanged");
        let reference = reference(model, REFERENCES[0], mutant.config().cell_size());
        let embeddings = values(mutant.forward(&reference.images, &device).expect("valid images"));
        assert_caught(what, model, &embeddings, &reference, mutant.config().text_hidden_size);
    };
    for (model, file) in FILES {
        mutate("the other activation", model, file, &|config| {
            config.activation = match config.activation {
                Activation::Gelu => Activation::Silu,
                Activation::Silu => Activation::Gelu,
            };
        });
        mutate("the other layout's order of Q and K", model, file, &|config| {
            config.rope_pairing = match config.rope_pairing {
                Pairing::Adjacent => Pairing::Half,
                Pairing::Half => Pairing::Adjacent,
            };
        });
        mutate("another base", model, file, &|config| config.rope_freq_base = 100.0);
        mutate("another epsilon", model, file, &|config| config.norm_eps = 1.0);
    }
}

#[test]
fn wrong_angles_are_caught() {
    for model in MODELS {
        let encoder = load::<B>(model, "mmproj-f32.gguf");
        let config = encoder.config();
        let reference = reference(model, REFERENCES[0], config.cell_size());
        let (image, device) = (&reference.images[0], Default::default());
        let (rows, cols) = (image.height / config.patch_size, image.width / config.patch_size);
        let half = config.head_dim / 2;
        let right = rope_table::<B>(config, &reference.images, &device);
        let embed = |index: &dyn Fn(usize, usize) -> usize| {
            let reorder = |values: &[f32]| -> Vec<f32> {
                let places = (0..rows * cols).flat_map(|patch| (0..half).map(move |k| (patch, k)));
                places.map(|(patch, k)| values[index(patch, k)]).collect()
            };
            let (cos, sin) = (reorder(&right.cos), reorder(&right.sin));
            let rope = RopeTable::new(cos, sin, rows * cols, right.pairing, &device);
            let x = encoder.tower_at(&reference.images, rope, &device);
            values(encoder.mm.forward(x, &[image.grid]))
        };
        let width = config.text_hidden_size;
        let unchanged = embed(&|patch, k| patch * half + k);
        assert!(lowest_cosine(&unchanged, &reference.embeddings, width) > 0.99999);
        let swapped = embed(&|patch, k| patch * half + (k + half / 2) % half);
        assert_caught("rows for columns", model, &swapped, &reference, width);
        let frequency_major = embed(&|patch, k| k * rows * cols + patch);
        assert_caught("a table written frequency by frequency", model, &frequency_major, &reference, width);
    }
}

/// The merger with its columns in the order that a gather patch by patch would need.
#[test]
fn a_merger_patch_by_patch_is_caught() {
    for model in ["gelu-2", "silu-2"] {
        let file = projector(model, "mmproj-f32.gguf");
        let mut encoder = load::<B>(model, "mmproj-f32.gguf");
        let (hidden, area) = (file.config().hidden_size, file.config().merge_size.pow(2));
        let weight = file.tensor("mm.patch_merger.merging_layer.weight").expect("it merges").to_f32();
        let turned = |row: &[f32]| -> Vec<f32> {
            let places = (0..hidden).flat_map(|channel| (0..area).map(move |patch| (channel, patch)));
            places.map(|(channel, patch)| row[patch * hidden + channel]).collect()
        };
        let weight: Vec<f32> = weight.chunks_exact(hidden * area).flat_map(turned).collect();
        let weight = Param::from_data(TensorData::new(weight, [hidden, hidden * area]), &Default::default());
        encoder.mm.merging_layer = Some(Linear::dense(weight, None));
        let reference = reference(model, REFERENCES[0], file.config().cell_size());
        let embeddings = values(encoder.forward(&reference.images, &Default::default()).expect("valid"));
        assert_caught("patch by patch", model, &embeddings, &reference, file.config().text_hidden_size);
    }
}

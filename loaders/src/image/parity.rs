//! Pixel values against mistral-common's (fixtures by tests/reference/image_mistral_common.py).

use std::path::PathBuf;

use ember_test_support::{TensorFile, max_difference};
use serde::Deserialize;

use super::resize::Cubic;
use super::*;

/// CLIP's, which mistral-common uses for every model; as short as f32 allows.
const MEAN: [f32; 3] = [0.48145466, 0.4578275, 0.40821073];
const STD: [f32; 3] = [0.26862954, 0.2613026, 0.2757771];

/// Same pixels, same arithmetic: only the order of additions may differ.
const SAME_PIXELS: f64 = 0.001;

#[derive(Deserialize)]
struct Case {
    file: String,
    longest_edge: usize,
    cell: usize,
}

/// Distance of our values from mistral-common's, in levels of 0 to 255.
#[derive(Clone, Copy, Debug)]
struct Distance {
    max: f64,
    mean: f64,
}

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/image").join(name)
}

fn read(name: &str) -> Vec<u8> {
    std::fs::read(fixture(name)).unwrap()
}

/// The cases whose file has this extension.
fn cases(extension: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = serde_json::from_slice(&read("preprocess.json")).unwrap();
    cases.retain(|case| case.file.ends_with(extension));
    cases
}

/// The distance where `change` is made to our values, each given with its channel.
fn distance(case: &Case, cubic: Cubic, change: impl Fn(usize, f64) -> f64) -> Distance {
    let image = decode(&read(&format!("preprocess/{}", case.file)), &ImageLimits::default()).unwrap();
    let rule = SizeRule { longest_edge: case.longest_edge, cell: case.cell, max_tokens: None };
    let ours = Preprocessor { rule, mean: MEAN, std: STD }.preprocess_with(&image, cubic);

    let file = TensorFile::open(fixture("preprocess.safetensors"));
    assert_eq!(file.shape(&case.file), [3, ours.height, ours.width], "{}", case.file);
    assert_eq!((ours.grid.cols * case.cell, ours.grid.rows * case.cell), (ours.width, ours.height));
    let plane = ours.width * ours.height;
    let levels = |values: &[f32]| -> Vec<f64> {
        values.iter().enumerate().map(|(i, &value)| level(i / plane, value)).collect()
    };
    let expected = levels(&file.f32(&case.file));
    let ours: Vec<f64> =
        levels(&ours.values).into_iter().enumerate().map(|(i, level)| change(i / plane, level)).collect();
    let sum: f64 = ours.iter().zip(&expected).map(|(ours, expected)| (ours - expected).abs()).sum();
    Distance { max: max_difference(&ours, &expected), mean: sum / ours.len() as f64 }
}

/// The normalised value on the scale of 0 to 255.
fn level(channel: usize, value: f32) -> f64 {
    (f64::from(value) * f64::from(STD[channel]) + f64::from(MEAN[channel])) * 255.0
}

fn unchanged(_: usize, level: f64) -> f64 {
    level
}

#[test]
fn the_same_pixels_give_mistral_common_s_values() {
    let cases = cases(".png");
    assert!(cases.len() >= 14, "{}", cases.len());
    for case in cases {
        let found = distance(&case, Cubic::OPENCV, unchanged);
        println!("{}: {found:?}", case.file);
        assert!(found.max < SAME_PIXELS, "{}: {found:?}", case.file);
    }
}

/// The control of the test above: each property of the resizing matters to it.
#[test]
fn another_kernel_position_or_range_is_noticed() {
    let clamp: fn(usize, f64) -> f64 = |_, level| level.clamp(0.0, 255.0);
    let round: fn(usize, f64) -> f64 = |_, level| level.round();
    for (what, cubic, change) in [
        ("a = -0.5", Cubic { a: -0.5, ..Cubic::OPENCV }, unchanged as fn(usize, f64) -> f64),
        ("corners aligned", Cubic { center: 0.0, ..Cubic::OPENCV }, unchanged),
        ("overshoots clamped", Cubic::OPENCV, clamp),
        ("whole levels", Cubic::OPENCV, round),
    ] {
        for file in ["photograph-up.png", "wide.png"] {
            let case = cases(file).pop().unwrap();
            let found = distance(&case, cubic, change);
            println!("{what}: {file}: {found:?}");
            assert!(found.max > 100.0 * SAME_PIXELS, "{what}: {file}: {found:?}");
        }
    }
}

/// JPEG decoders differ in their rounding and in how they scale up chroma.
#[test]
fn jpegs_give_nearly_mistral_common_s_values() {
    let cases = cases(".jpg");
    assert!(cases.len() >= 7, "{}", cases.len());
    for case in cases {
        let found = distance(&case, Cubic::OPENCV, unchanged);
        println!("{}: {found:?}", case.file);
        assert!(found.max <= 6.0 && found.mean <= 0.5, "{}: {found:?}", case.file);
    }
}

//! Files of every accepted kind against Pillow and mistral-common's compositing (fixtures by
//! reference/image_mistral_common.py).

mod image_support;

use ember_loaders::image::{ImageError, ImageLimits, RgbImage, decode_file};
use image_support::{decode_default, expected, files, fixture};

/// The largest difference of two images of one size, and its mean.
fn difference(name: &str, ours: &RgbImage, expected: &RgbImage) -> (u8, f64) {
    assert_eq!((ours.width, ours.height), (expected.width, expected.height), "{name}");
    assert_eq!(ours.pixels.len(), expected.pixels.len(), "{name}");
    let differences: Vec<u8> =
        ours.pixels.iter().zip(&expected.pixels).map(|(a, b)| a.abs_diff(*b)).collect();
    let sum: f64 = differences.iter().map(|&d| f64::from(d)).sum();
    (differences.iter().copied().max().unwrap(), sum / differences.len() as f64)
}

#[test]
fn lossless_files_have_pillow_s_pixels() {
    let mut n = 0;
    for (name, bytes) in files() {
        if name.ends_with(".jpg") || name.starts_with("lossy") {
            continue;
        }
        let ours = decode_default(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(difference(&name, &ours, &expected(&name)).0, 0, "{name}");
        n += 1;
    }
    assert!(n >= 40, "{n} files");
}

/// Decoders round differently, and scale up chroma differently.
#[test]
fn lossy_files_have_nearly_pillow_s_pixels() {
    let mut n = 0;
    for (name, bytes) in files() {
        if !(name.ends_with(".jpg") || name.starts_with("lossy")) {
            continue;
        }
        let ours = decode_default(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
        let (max, mean) = difference(&name, &ours, &expected(&name));
        println!("{name}: {max}, {mean}");
        assert!(max <= 6 && mean <= 0.5, "{name}: at most {max}, {mean} in the mean");
        n += 1;
    }
    assert!(n >= 12, "{n} files");
}

/// The control of the comparisons above: no two orientations of the test image look alike.
#[test]
fn each_orientation_gives_another_image() {
    for kind in ["png", "webp", "jpg"] {
        let images: Vec<RgbImage> = (1..=8)
            .map(|value| decode_default(&fixture(&format!("decode/orientation-{value}.{kind}"))).unwrap())
            .collect();
        for (i, a) in images.iter().enumerate() {
            for b in &images[..i] {
                assert!(
                    (a.width, a.height) != (b.width, b.height) || difference(kind, a, b).0 > 100,
                    "{kind} {i}"
                );
            }
        }
    }
}

#[test]
fn what_is_no_image_is_named() {
    let ftyp = |brand: &[u8; 4]| [b"\0\0\0\x18ftyp", &brand[..], b"\0\0\0\0mif1", &brand[..]].concat();
    let svg =
        b"\xef\xbb\xbf<?xml version=\"1.0\"?>\n<!-- logo -->\n<svg xmlns=\"http://www.w3.org/2000/svg\"/>";
    for (bytes, name) in [
        (ftyp(b"heic"), "a HEIC file"),
        (ftyp(b"avif"), "an AVIF file"),
        (b"\0\0\0\x18ftypisom\0\0\0\0".to_vec(), "an MP4 or QuickTime video"),
        (b"II*\0\x08\0\0\0".to_vec(), "a TIFF file"),
        (b"MM\0*\0\0\0\x08".to_vec(), "a TIFF file"),
        (b"%PDF-1.7\n".to_vec(), "a PDF file"),
        (svg.to_vec(), "an SVG file"),
        (b"<!DOCTYPE html><html><svg/></html>".to_vec(), "an HTML page"),
        (b"RIFF\x10\0\0\0WAVEfmt ".to_vec(), "an AVI or WAV file"),
        (b"GGUF\x03\0\0\0".to_vec(), "a GGUF model"),
    ] {
        let message = decode_default(&bytes).unwrap_err().to_string();
        assert_eq!(
            message,
            format!("{name} is not a supported image; accepted are PNG, JPEG, WebP, GIF and BMP")
        );
    }
    let message = decode_default(b"Describe this image.").unwrap_err().to_string();
    assert_eq!(message, "this is not an image of a known format; accepted are PNG, JPEG, WebP, GIF and BMP");
}

#[test]
fn a_file_is_read_and_its_errors_name_it() {
    let folder = tempfile::tempdir().unwrap();
    let (good, empty, absent) = ("good", "empty.png", "absent.png");
    // The content decides, whatever the name says.
    std::fs::write(folder.path().join(good), fixture("decode/rgb.png")).unwrap();
    std::fs::write(folder.path().join(empty), []).unwrap();
    let read = |name: &str, limits: &ImageLimits| decode_file(&folder.path().join(name), limits);
    assert_eq!(read(good, &ImageLimits::default()).unwrap(), expected("rgb.png"));

    for (name, limits, problem) in [
        (empty, ImageLimits::default(), "the image is empty (0 bytes)"),
        (absent, ImageLimits::default(), "cannot read the image: "),
        (good, ImageLimits { max_bytes: 100, ..Default::default() }, "bytes, more than the limit of 100; "),
    ] {
        let error = read(name, &limits).unwrap_err();
        assert!(matches!(error, ImageError::InFile { .. }), "{error:?}");
        let message = error.to_string();
        assert!(message.contains(name) && message.contains(problem), "{message}");
    }
}

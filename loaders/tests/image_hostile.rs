//! Broken and oversized files: errors that say so, in little memory and time, and never a panic.

mod image_support;

use ember_loaders::image::{ImageError, ImageLimits, decode};
use ember_test_support::Random;
use image_support::{decode_default, files, fixture};

#[test]
fn a_truncated_file_is_refused_or_had_all_its_pixels() {
    for (name, bytes) in files() {
        let whole = decode_default(&bytes).unwrap();
        // Every length near both ends; some between.
        let (ends, step) = (64, 1 + bytes.len() / 50);
        for len in (0..bytes.len()).filter(|len| len % step == 0 || *len < ends || *len + ends > bytes.len())
        {
            match decode_default(&bytes[..len]) {
                // Metadata, padding or later frames are gone: the image is the same, or lies as the sensor saw it.
                Ok(image) => assert!(
                    image == whole || name.contains("behind-pixels"),
                    "{name}: wrong pixels from {len} of {} bytes",
                    bytes.len()
                ),
                Err(ImageError::Empty) => assert_eq!(len, 0),
                Err(ImageError::UnsupportedFormat { .. }) => assert!(len < 12, "{name}: {len} bytes"),
                Err(ImageError::Truncated { .. }) => {}
                // As the GIF decoder says it.
                Err(e) if e.to_string().ends_with("Unexpected End of File") => {}
                Err(e) => panic!("{name}: {len} of {} bytes: {e}", bytes.len()),
            }
        }
    }
}

#[test]
fn noise_behind_a_signature_is_refused() {
    let mut random = Random::new(1);
    for (name, bytes) in files() {
        for keep in [12, 30, 60, 200, 400] {
            let mut hostile = bytes[..keep.min(bytes.len())].to_vec();
            hostile.extend(random.bytes(3000));
            // Where the file's header and palette were kept, noise may be an image.
            if let Err(e) = decode_default(&hostile) {
                assert!(!e.to_string().is_empty(), "{name}");
            }
        }
        let mut hostile = bytes[..12].to_vec();
        hostile.extend(random.bytes(3000));
        if !name.ends_with(".bmp") && !name.ends_with(".gif") {
            decode_default(&hostile).expect_err(&name);
        }
    }
}

#[test]
fn changed_bytes_never_panic() {
    let mut random = Random::new(2);
    let limits = ImageLimits { max_pixels: 1 << 20, ..Default::default() };
    let jpegs = ["420.jpg", "422.jpg", "progressive.jpg", "cmyk.jpg"]
        .map(|name| fixture(&format!("preprocess/{name}")));
    for bytes in files().into_iter().map(|(_, bytes)| bytes).chain(jpegs) {
        for _ in 0..100 {
            let mut hostile = bytes.clone();
            for _ in 0..1 + random.below(4) {
                // Half of them in the header.
                let range = if random.below(2) == 0 { hostile.len().min(100) } else { hostile.len() };
                let at = random.below(range);
                hostile[at] = random.bits() as u8;
            }
            if let Ok(image) = decode(&hostile, &limits) {
                assert_eq!(image.pixels.len(), image.width * image.height * 3);
                assert!(image.width * image.height <= 1 << 20);
            }
        }
    }
}

/// Writes `width` and `height` where the header of each format has them.
fn with_size(name: &str, width: u32, height: u32) -> Vec<u8> {
    let mut bytes = fixture(&format!("decode/{name}"));
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    let (w16, h16) = (width as u16, height as u16);
    match name.rsplit_once('.').unwrap().1 {
        "png" => {
            put(16, &width.to_be_bytes());
            put(20, &height.to_be_bytes());
            let crc = crc32(&bytes[12..29]);
            bytes[29..33].copy_from_slice(&crc.to_be_bytes());
        }
        "jpg" => {
            let frame = bytes.windows(2).position(|marker| marker == [0xff, 0xc0]).unwrap();
            bytes[frame + 5..frame + 7].copy_from_slice(&h16.to_be_bytes());
            bytes[frame + 7..frame + 9].copy_from_slice(&w16.to_be_bytes());
        }
        "gif" => {
            put(6, &w16.to_le_bytes());
            put(8, &h16.to_le_bytes());
        }
        "bmp" => {
            put(18, &width.to_le_bytes());
            put(22, &height.to_le_bytes());
        }
        _ => {
            // VP8: a frame tag and a start code, then 14 bits each.
            put(26, &w16.to_le_bytes());
            put(28, &h16.to_le_bytes());
        }
    }
    bytes
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(
            crc ^ u32::from(byte),
            |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 },
        )
    })
}

const OF_EACH_FORMAT: [&str; 6] =
    ["rgb.png", "rgba-16-bits.png", "baseline.jpg", "lossy.webp", "still.gif", "24-bits.bmp"];

#[test]
fn a_header_that_claims_too_much_is_refused_with_its_size_and_the_limit() {
    for name in OF_EACH_FORMAT {
        // 14 bits are all that VP8 has.
        let (width, height) = if name.ends_with("webp") { (16_000, 16_000) } else { (60_000, 60_000) };
        let message = decode_default(&with_size(name, width, height)).unwrap_err().to_string();
        let megapixels = f64::from(width) * f64::from(height) / 1e6;
        assert_eq!(
            message,
            format!(
                "the image is {width}x{height} ({megapixels:.1} megapixels), more than the limit of 200.0 \
                 megapixels; scale it down"
            ),
            "{name}"
        );
    }
    for (width, height) in [(70_000, 1), (1, 70_000), (i32::MAX as u32, 1)] {
        for name in ["rgb.png", "24-bits.bmp"] {
            let message = decode_default(&with_size(name, width, height)).unwrap_err().to_string();
            let size = format!("the image is {width}x{height}, more than the limit of 65535 pixels a side");
            assert!(message.starts_with(&size), "{name}: {message}");
        }
    }
    let message = decode_default(&with_size("rgba-16-bits.png", 15_000, 10_000)).unwrap_err().to_string();
    assert!(message.contains("15000x10000 in 16-bit RGBA, which takes 1200000000 bytes"), "{message}");
}

#[test]
fn a_frame_larger_than_the_screen_is_refused_by_its_memory() {
    let mut gif = fixture("decode/still.gif");
    let frame = gif.windows(5).rposition(|start| start == b"\x2c\0\0\0\0").unwrap();
    gif[frame + 5..frame + 9].fill(0xff);
    let message = decode_default(&gif).unwrap_err().to_string();
    assert_eq!(message, "the GIF image cannot be decoded: Memory limit exceeded");
}

#[test]
fn an_image_without_pixels_is_refused() {
    for name in OF_EACH_FORMAT {
        for (width, height) in [(0, 0), (0, 20), (20, 0)] {
            let message = decode_default(&with_size(name, width, height)).expect_err(name).to_string();
            // The last two are the decoders' words.
            let accepted = [
                format!("the image is {width}x{height}: it has no pixels"),
                "the JPEG image cannot be decoded: Image width or height is set to zero, cannot continue"
                    .into(),
                "the WebP image cannot be decoded: Inconsistent image sizes".into(),
            ];
            assert!(accepted.contains(&message), "{name}: {message}");
        }
    }
}

#[test]
fn limits_hold_to_the_pixel() {
    let bytes = fixture("decode/rgb.png");
    let image = decode_default(&bytes).unwrap();
    let exact = ImageLimits {
        max_bytes: bytes.len() as u64,
        max_pixels: (image.width * image.height) as u64,
        max_side: image.width as u32,
    };
    assert_eq!(decode(&bytes, &exact).unwrap(), image);
    let refusal = |limits: ImageLimits| decode(&bytes, &limits).unwrap_err();
    assert!(matches!(
        refusal(ImageLimits { max_bytes: exact.max_bytes - 1, ..exact }),
        ImageError::TooManyBytes { .. }
    ));
    assert!(matches!(
        refusal(ImageLimits { max_pixels: exact.max_pixels - 1, ..exact }),
        ImageError::TooManyPixels { width: 37, height: 29, limit: 1072 }
    ));
    assert!(matches!(
        refusal(ImageLimits { max_side: 36, ..exact }),
        ImageError::SideTooLong { limit: 36, .. }
    ));
}

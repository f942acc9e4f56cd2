//! 8-bit RGB from the kinds of pixels that the decoders give.

use image::ColorType;

/// The pixels as 8-bit RGB over white, or `None` where no accepted format has such pixels.
pub(super) fn to_rgb8(color: ColorType, raw: Vec<u8>) -> Option<Vec<u8>> {
    Some(match color {
        ColorType::Rgb8 => raw,
        ColorType::L8 => map(&raw, |[l]| [l; 3]),
        ColorType::La8 => map(&raw, |[l, a]| [over_white(l, a); 3]),
        ColorType::Rgba8 => map(&raw, |[r, g, b, a]| [r, g, b].map(|value| over_white(value, a))),
        // The decoders give 16-bit samples in the byte order of the machine.
        ColorType::L16 => map(&raw, |[l0, l1]| [upper(l0, l1); 3]),
        ColorType::La16 => map(&raw, |[l0, l1, a0, a1]| [over_white(upper(l0, l1), upper(a0, a1)); 3]),
        ColorType::Rgb16 => {
            map(&raw, |[r0, r1, g0, g1, b0, b1]| [upper(r0, r1), upper(g0, g1), upper(b0, b1)])
        }
        ColorType::Rgba16 => map(&raw, |[r0, r1, g0, g1, b0, b1, a0, a1]| {
            let alpha = upper(a0, a1);
            [upper(r0, r1), upper(g0, g1), upper(b0, b1)].map(|value| over_white(value, alpha))
        }),
        _ => return None,
    })
}

/// "8-bit RGB" and the like.
pub(super) fn name(color: ColorType) -> String {
    let channels = match (color.has_color(), color.has_alpha()) {
        (true, true) => "RGBA",
        (true, false) => "RGB",
        (false, true) => "grey with alpha",
        (false, false) => "grey",
    };
    let bits = color.bits_per_pixel() / u16::from(color.channel_count());
    format!("{bits}-bit {channels}")
}

/// `to_rgb` of each pixel of `N` bytes.
fn map<const N: usize>(raw: &[u8], to_rgb: impl Fn([u8; N]) -> [u8; 3]) -> Vec<u8> {
    let pixels = raw.as_chunks::<N>().0;
    let mut rgb = Vec::with_capacity(pixels.len() * 3);
    for &pixel in pixels {
        rgb.extend(to_rgb(pixel));
    }
    rgb
}

fn upper(first: u8, second: u8) -> u8 {
    (u16::from_ne_bytes([first, second]) >> 8) as u8
}

/// `value` over white where it covers `alpha` / 255: to the nearest integer, as Pillow's `Image.paste` with a mask.
fn over_white(value: u8, alpha: u8) -> u8 {
    let (value, alpha) = (u32::from(value), u32::from(alpha));
    let sum = 255 * (255 - alpha) + value * alpha;
    // No sum is halfway between two multiples of 255, which is odd.
    ((sum + 127) / 255) as u8
}

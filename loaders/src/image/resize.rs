//! Cubic interpolation as OpenCV's `resize` with `INTER_CUBIC` on f32 pixels: four taps at every scale (no
//! antialiasing), a replicated border, and no clamping of overshoots.

use super::decode::RgbImage;

/// The kernel, and where pixels lie; other values than [`Cubic::OPENCV`] show what tests would notice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cubic {
    /// Slope of the kernel at 1.
    pub a: f32,
    /// The place in a pixel that its value is for: 0.5 is the middle.
    pub center: f64,
}

impl Cubic {
    /// OpenCV's kernel.
    pub const OPENCV: Self = Self { a: -0.75, center: 0.5 };
}

/// For one output coordinate: the four input coordinates, and their weights.
struct Taps {
    at: [usize; 4],
    weights: [f32; 4],
}

/// OpenCV rounds positions to f32, except where Intel's library does the work: on x86-64, for images of at least four
/// pixels a side. In f32 they are a ten-thousandth of a pixel off at the far side of a photograph.
const LEAST_SIDE_IN_F64: usize = 4;

/// The taps of `to` outputs over `from` inputs.
fn taps(from: usize, to: usize, cubic: Cubic, in_f64: bool) -> Vec<Taps> {
    let scale = from as f64 / to as f64;
    let last = from as isize - 1;
    (0..to)
        .map(|out| {
            let exact = (out as f64 + cubic.center) * scale - cubic.center;
            let position = if in_f64 { exact } else { f64::from(exact as f32) };
            let first = position.floor();
            let at = [-1, 0, 1, 2].map(|tap| (first as isize + tap).clamp(0, last) as usize);
            Taps { at, weights: weights((position - first) as f32, cubic.a) }
        })
        .collect()
}

/// Weights of the pixels at -1, 0, 1 and 2 for a value at `x` in 0..1.
fn weights(x: f32, a: f32) -> [f32; 4] {
    let near = |x: f32| ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
    let far = |x: f32| ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a;
    let [w0, w1, w2] = [far(x + 1.0), near(x), near(1.0 - x)];
    [w0, w1, w2, 1.0 - w0 - w1 - w2]
}

/// `image` at another size: [height, width, 3], from 0 to 255 and a little beyond.
pub(super) fn resize(image: &RgbImage, width: usize, height: usize, cubic: Cubic) -> Vec<f32> {
    assert_eq!(image.pixels.len(), image.width * image.height * 3, "three bytes a pixel");
    let in_f64 = image.width.min(image.height) >= LEAST_SIDE_IN_F64;
    let columns = taps(image.width, width, cubic, in_f64);
    let rows = taps(image.height, height, cubic, in_f64);
    // The last four input rows, at the output's width. Rows are visited in order, so none is resized twice.
    let mut cache: [(Option<usize>, Vec<f32>); 4] = std::array::from_fn(|_| (None, vec![0.0; width * 3]));
    let mut out = Vec::with_capacity(width * height * 3);
    for row in &rows {
        for &y in &row.at {
            let (cached, values) = &mut cache[y % 4];
            if *cached != Some(y) {
                let input = &image.pixels[y * image.width * 3..][..image.width * 3];
                resize_row(input.as_chunks().0, &columns, values.as_chunks_mut().0);
                *cached = Some(y);
            }
        }
        let [r0, r1, r2, r3] = row.at.map(|y| cache[y % 4].1.as_slice());
        let [w0, w1, w2, w3] = row.weights;
        let taps = r0.iter().zip(r1).zip(r2).zip(r3);
        out.extend(taps.map(|(((v0, v1), v2), v3)| v0 * w0 + v1 * w1 + v2 * w2 + v3 * w3));
    }
    out
}

fn resize_row(input: &[[u8; 3]], columns: &[Taps], output: &mut [[f32; 3]]) {
    for (taps, pixel) in columns.iter().zip(output) {
        let [p0, p1, p2, p3] = taps.at.map(|x| input[x].map(f32::from));
        let [w0, w1, w2, w3] = taps.weights;
        *pixel = std::array::from_fn(|c| p0[c] * w0 + p1[c] * w1 + p2[c] * w2 + p3[c] * w3);
    }
}

//! Activations rounded to int8, the other factor of a product with a quantized matrix.
//!
//! A block of 32 (or 256) elements `x` becomes `q = round(x * 127 / max|x|)` (ties to even), the f32 scale
//! `d = max|x| / 127`, and sums of groups of `q`, which the offsets and minima of weight formats multiply. A block
//! that holds a NaN or an infinity gets `q = 0, d = NaN`, so that every product with it is NaN; a block whose
//! `127 / max|x|` is not finite (all below 4e-37) counts as zero.

/// How activations must be stored for a weight type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActFormat {
    /// As given.
    F32,
    /// Blocks of 32 with one sum each.
    Q8x32,
    /// Blocks of 256 with sums of every 16.
    Q8x256,
}

impl ActFormat {
    /// Elements per scale.
    pub(crate) const fn block_len(self) -> usize {
        match self {
            ActFormat::F32 => 1,
            ActFormat::Q8x32 => 32,
            ActFormat::Q8x256 => 256,
        }
    }

    /// Elements per entry of `sums`.
    pub(crate) const fn sum_len(self) -> usize {
        match self {
            ActFormat::F32 => 1,
            ActFormat::Q8x32 => 32,
            ActFormat::Q8x256 => 16,
        }
    }
}

/// One row of activations in the format that a kernel asked for.
#[derive(Clone, Copy)]
pub(crate) struct ActRow<'a> {
    /// f32 elements, `[cols]`; empty in the int8 formats.
    pub x: &'a [f32],
    /// int8 elements, `[cols]`.
    pub q: &'a [i8],
    /// Scales, `[cols / block_len]`.
    pub d: &'a [f32],
    /// Sums of `q`, `[cols / sum_len]`.
    pub sums: &'a [i16],
}

/// Rows of int8 activations, `[m, cols]`.
#[derive(Default)]
pub(crate) struct QuantizedRows {
    pub q: Vec<i8>,
    pub d: Vec<f32>,
    pub sums: Vec<i16>,
}

impl QuantizedRows {
    /// Makes room for `m` rows of `cols` elements.
    pub(crate) fn resize(&mut self, format: ActFormat, m: usize, cols: usize) {
        self.q.resize(m * cols, 0);
        self.d.resize(m * cols / format.block_len(), 0.0);
        self.sums.resize(m * cols / format.sum_len(), 0);
    }

    /// Row `index` of rows of `cols` elements.
    pub(crate) fn row(&self, format: ActFormat, index: usize, cols: usize) -> ActRow<'_> {
        let (blocks, groups) = (cols / format.block_len(), cols / format.sum_len());
        ActRow {
            x: &[],
            q: &self.q[index * cols..][..cols],
            d: &self.d[index * blocks..][..blocks],
            sums: &self.sums[index * groups..][..groups],
        }
    }
}

/// Rounds one row. `d` and `sums` have one entry per `block_len` and `sum_len` elements of `x`.
pub(crate) fn quantize_row(format: ActFormat, x: &[f32], q: &mut [i8], d: &mut [f32], sums: &mut [i16]) {
    let (block_len, sum_len) = (format.block_len(), format.sum_len());
    for ((x, q), d) in x.chunks_exact(block_len).zip(q.chunks_exact_mut(block_len)).zip(d) {
        *d = quantize_block(x, q);
    }
    for (q, sum) in q.chunks_exact(sum_len).zip(sums) {
        *sum = q.iter().map(|&q| i16::from(q)).sum();
    }
}

/// Rounds one block and returns its scale.
fn quantize_block(x: &[f32], q: &mut [i8]) -> f32 {
    // As integers, the magnitudes of floats are ordered with infinity above every number and NaN above infinity.
    let max = f32::from_bits(x.iter().map(|x| x.to_bits() & 0x7fff_ffff).max().unwrap_or(0));
    let inverse = 127.0 / max;
    if !max.is_finite() || !inverse.is_finite() {
        q.fill(0);
        return if max.is_finite() { 0.0 } else { f32::NAN };
    }
    for (q, x) in q.iter_mut().zip(x) {
        *q = (x * inverse).round_ties_even() as i8;
    }
    max / 127.0
}

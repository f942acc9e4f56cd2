//! Activations rounded to int8, the other factor of a product with a quantized matrix.
//!
//! A block of 32 (or 256) elements `x` becomes `q = round(x * 127 / max|x|)` (ties to even), the f32 scale
//! `d = max|x| / 127`, and sums of groups of `q`, which the offsets and minima of weight formats multiply. A block
//! that holds a NaN or an infinity gets `q = 0, d = NaN`, so that every product with it is NaN; a block whose
//! `127 / max|x|` is not finite (all below 4e-37) counts as zero.

/// The storage of activations that a weight type asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActFormat {
    /// As given.
    F32,
    /// Blocks of 32 with one sum each.
    Q8x32,
    /// Blocks of 256 with sums of every 16, see [`split_place`].
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

impl<'a> ActRow<'a> {
    /// A row in [`ActFormat::F32`].
    pub(crate) fn float(x: &'a [f32]) -> Self {
        Self { x, q: &[], d: &[], sums: &[] }
    }
}

/// Rows of int8 activations, `[m, cols]`.
#[derive(Default)]
pub(crate) struct QuantizedTokens {
    pub q: Vec<i8>,
    pub d: Vec<f32>,
    pub sums: Vec<i16>,
}

impl QuantizedTokens {
    /// Makes room for `m` tokens of `cols` elements.
    pub(crate) fn resize(&mut self, format: ActFormat, m: usize, cols: usize) {
        self.q.resize(m * cols, 0);
        self.d.resize(m * cols / format.block_len(), 0.0);
        self.sums.resize(m * cols / format.sum_len(), 0);
    }

    /// Every token of `cols` > 0 elements: `q`, `d` and `sums`.
    pub(crate) fn tokens_mut(
        &mut self,
        format: ActFormat,
        cols: usize,
    ) -> impl Iterator<Item = (&mut [i8], (&mut [f32], &mut [i16]))> {
        let d = self.d.chunks_exact_mut(cols / format.block_len());
        let sums = self.sums.chunks_exact_mut(cols / format.sum_len());
        self.q.chunks_exact_mut(cols).zip(d.zip(sums))
    }

    /// Token `index` of tokens of `cols` elements.
    pub(crate) fn token(&self, format: ActFormat, index: usize, cols: usize) -> ActRow<'_> {
        let (blocks, groups) = (cols / format.block_len(), cols / format.sum_len());
        ActRow {
            x: &[],
            q: &self.q[index * cols..][..cols],
            d: &self.d[index * blocks..][..blocks],
            sums: &self.sums[index * groups..][..groups],
        }
    }
}

/// The place of the sum of group `j` (of 16) of a block of 256: even groups first, then the odd ones, because that is how
/// the halves of vectors of weights meet them.
pub(crate) const fn split_place(group: usize) -> usize {
    group / 2 + 8 * (group % 2)
}

/// Rounds one row. `d` and `sums` have one entry per `block_len` and `sum_len` elements of `x`.
pub(crate) fn quantize_row(format: ActFormat, x: &[f32], q: &mut [i8], d: &mut [f32], sums: &mut [i16]) {
    match format {
        ActFormat::F32 => {}
        ActFormat::Q8x32 => {
            let blocks = x.as_chunks::<32>().0.iter().zip(q.as_chunks_mut::<32>().0);
            for (((x, q), d), sum) in blocks.zip(d).zip(sums) {
                *d = quantize_block(x, q);
                *sum = sum_i8(q);
            }
        }
        ActFormat::Q8x256 => {
            let blocks = x.as_chunks::<256>().0.iter().zip(q.as_chunks_mut::<256>().0);
            for (((x, q), d), sums) in blocks.zip(d).zip(sums.as_chunks_mut::<16>().0) {
                *d = quantize_block(x, q);
                for (j, q) in q.as_chunks::<16>().0.iter().enumerate() {
                    sums[split_place(j)] = sum_i8(q);
                }
            }
        }
    }
}

fn sum_i8(q: &[i8]) -> i16 {
    q.iter().map(|&q| i16::from(q)).sum()
}

/// Rounds one block and returns its scale.
fn quantize_block<const N: usize>(x: &[f32; N], q: &mut [i8; N]) -> f32 {
    // As integers, the magnitudes of floats are ordered with infinity above every number and NaN above infinity.
    let max = f32::from_bits(x.iter().fold(0, |max, x| max.max(x.to_bits() & 0x7fff_ffff)));
    let inverse = 127.0 / max;
    if !max.is_finite() || !inverse.is_finite() {
        q.fill(0);
        return if max.is_finite() { 0.0 } else { f32::NAN };
    }
    for (q, x) in q.iter_mut().zip(x) {
        // SAFETY: |x| <= max, so the product is finite and at most 127 after rounding.
        *q = unsafe { (x * inverse).round_ties_even().to_int_unchecked::<i32>() } as i8;
    }
    max / 127.0
}

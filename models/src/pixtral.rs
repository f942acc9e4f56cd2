//! Pixtral: the vision encoder of Mistral 3, with its projector to the text model's width.
//!
//! ```text
//! x = encoder_norm(patch_conv(patches))                         one row per patch, image after image
//! for each block:
//!     x += attn_output(attention(rope(q), rope(k), v))          within one image, every patch sees every other
//!     x += ffn_down(act(ffn_gate(y)) * ffn_up(y))               act is GELU or SiLU
//! x = merging_layer(cells(norm(x)))                             merge x merge patches become one row; not in Pixtral-12B
//! embeddings = linear_2(gelu(linear_1(x)))
//! ```
//!
//! The definition is Hugging Face's `PixtralVisionModel` and `Mistral3MultiModalProjector`.
use crate::backend::Backend;
use crate::error::ModelError;
use crate::layers::rope::RopeTable;
use crate::layers::{Block, BlockShape, Linear, RmsNorm};
use crate::step::Step;
use crate::weights::{WeightFormat, Weights};
use burn::module::Module;
use burn::tensor::{Tensor, TensorData, activation::gelu};
use ember_loaders::image::{ImageGrid, PixelValues};
use ember_loaders::projector::{PixtralConfig, Projector};
use std::ops::Range;

/// A Pixtral vision tower and its projector.
#[derive(Module, Debug)]
pub struct Pixtral<B: Backend> {
    /// `[hidden, 3 * patch * patch]`: the convolution, whose stride is its kernel.
    pub patch_conv: Linear<B>,
    /// `[hidden]`.
    pub encoder_norm: RmsNorm<B>,
    /// The blocks, first to last.
    pub blk: Vec<Block<B>>,
    /// Patches to embeddings.
    pub mm: MultiModalProjector<B>,
    config: PixtralConfig,
}

/// From the tower's patches to embeddings of the text model.
#[derive(Module, Debug)]
pub struct MultiModalProjector<B: Backend> {
    /// `[hidden]`; absent in Pixtral-12B.
    pub norm: Option<RmsNorm<B>>,
    /// `[hidden, hidden * merge * merge]`; absent in Pixtral-12B.
    pub merging_layer: Option<Linear<B>>,
    /// `[middle, hidden]`.
    pub linear_1: Linear<B>,
    /// `[text hidden, middle]`.
    pub linear_2: Linear<B>,
    merge_size: usize,
}

impl<B: Backend> Pixtral<B> {
    /// Builds the encoder of a projector file on `device`.
    ///
    /// # Errors
    /// If the device cannot hold it.
    pub fn load(projector: &Projector, format: WeightFormat, device: &B::Device) -> Result<Self, ModelError> {
        Self::load_with(projector, projector.config().clone(), format, device, &mut |_| ())
    }

    /// [`load`](Self::load) with other hyperparameters than the file's, for experiments, and `progress` called with the
    /// bytes of weight matrices placed since its last call. Sizes must stay those of the tensors.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_with(
        projector: &Projector,
        config: PixtralConfig,
        format: WeightFormat,
        device: &B::Device,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self, ModelError> {
        B::guard(device, || {
            let weights = Weights::stored(projector, config.tensors(), format, device, progress);
            let model = Self::build(&weights, config)?;
            // Memory that the uploads passed through.
            B::memory_cleanup(device);
            Ok(model)
        })
    }

    /// An encoder of random weights, as f32 parameters, without the optional biases.
    pub fn init(config: PixtralConfig, device: &B::Device) -> Self {
        Self::build(&Weights::random(config.tensors(), device), config)
            .expect("the description names every tensor that the layers read")
    }

    fn build(weights: &Weights<'_, B>, config: PixtralConfig) -> Result<Self, ModelError> {
        let shape = BlockShape::from(&config);
        let blk = (0..config.n_layers).map(|i| Block::load(weights, &shape, &format!("v.blk.{i}")));
        Ok(Self {
            patch_conv: weights.linear("v.patch_conv")?,
            encoder_norm: weights.rms_norm("v.encoder_norm", config.norm_eps)?,
            blk: blk.collect::<Result<_, _>>()?,
            mm: MultiModalProjector::load(weights, &config)?,
            config,
        })
    }

    /// The hyperparameters.
    pub fn config(&self) -> &PixtralConfig {
        &self.config
    }

    /// The embeddings of images, cell after cell in reading order, image after image.
    ///
    /// # Shapes
    /// `[cells of all images, text hidden]`.
    ///
    /// # Errors
    /// [`ModelError::InvalidImage`] when an image's pixels do not agree with its grid, [`ModelError::Device`] when the
    /// device failed.
    pub fn forward(&self, images: &[PixelValues], device: &B::Device) -> Result<Tensor<B, 2>, ModelError> {
        B::guard(device, || {
            let x = self.tower(images, device)?;
            let grids: Vec<ImageGrid> = images.iter().map(|image| image.grid).collect();
            Ok(self.mm.forward(x, &grids))
        })
    }

    /// Hidden states of the patches after the last block, before the projector.
    ///
    /// # Shapes
    /// `[patches of all images, hidden]`.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn tower(&self, images: &[PixelValues], device: &B::Device) -> Result<Tensor<B, 2>, ModelError> {
        images.iter().try_for_each(|image| check(image, self.config.cell_size()))?;
        B::guard(device, || Ok(self.tower_at(images, rope_table(&self.config, images, device), device)))
    }

    /// [`tower`](Self::tower) with the rotary angles of the patches given, for experiments; images are not checked.
    ///
    /// # Shapes
    /// `rope` has a row for each patch, image after image in reading order, and `head_dim / 2` angles in each.
    pub fn tower_at(&self, images: &[PixelValues], rope: RopeTable<B>, device: &B::Device) -> Tensor<B, 2> {
        let patch = self.config.patch_size;
        let pixels: Vec<f32> = images.iter().flat_map(|image| patches(image, patch)).collect();
        let width = 3 * patch * patch;
        let shape = [pixels.len() / width, width];
        let x = self.patch_conv.forward(Tensor::from_data(TensorData::new(pixels, shape), device));
        let step = Step::without_cache(rope, None, visible(images, patch));
        Block::forward_all(&self.blk, self.encoder_norm.forward(x), &step, None)
    }
}

impl<B: Backend> MultiModalProjector<B> {
    fn load(weights: &Weights<'_, B>, config: &PixtralConfig) -> Result<Self, ModelError> {
        Ok(Self {
            norm: weights.opt_rms_norm("mm.norm", config.norm_eps)?,
            merging_layer: weights.opt_linear("mm.patch_merger.merging_layer")?,
            linear_1: weights.linear("mm.linear_1")?,
            linear_2: weights.linear("mm.linear_2")?,
            merge_size: config.merge_size,
        })
    }

    /// # Shapes
    /// `[patches, hidden]` to `[cells, text hidden]`, for images of these grids one after another.
    pub fn forward(&self, x: Tensor<B, 2>, grids: &[ImageGrid]) -> Tensor<B, 2> {
        let x = match &self.norm {
            Some(norm) => norm.forward(x),
            None => x,
        };
        let x = match &self.merging_layer {
            Some(layer) => layer.forward(self.cells(x, grids)),
            None => x,
        };
        self.linear_2.forward(gelu(self.linear_1.forward(x)))
    }

    /// The patches of each cell side by side, channel by channel as `torch.nn.functional.unfold` orders them: element
    /// `(channel * merge + dy) * merge + dx`.
    ///
    /// # Shapes
    /// `[patches, hidden]` to `[cells, hidden * merge * merge]`.
    fn cells(&self, x: Tensor<B, 2>, grids: &[ImageGrid]) -> Tensor<B, 2> {
        let ([_, hidden], merge) = (x.dims(), self.merge_size);
        let mut first = 0;
        let of_image = |grid: &ImageGrid| {
            let n = grid.cells() * merge * merge;
            let patches = x.clone().narrow(0, first, n);
            first += n;
            patches
                .reshape([grid.rows, merge, grid.cols, merge, hidden])
                .permute([0, 2, 4, 1, 3])
                .reshape([grid.cells(), hidden * merge * merge])
        };
        Tensor::cat(grids.iter().map(of_image).collect(), 0)
    }
}

/// Refuses pixels that are not as many as the grid says.
fn check(image: &PixelValues, cell: usize) -> Result<(), ModelError> {
    let PixelValues { grid, width, height, values } = image;
    let fits =
        *width == grid.cols * cell && *height == grid.rows * cell && values.len() == 3 * width * height;
    if fits && grid.cells() > 0 {
        return Ok(());
    }
    Err(ModelError::InvalidImage(format!(
        "{} values of {width} x {height} pixels are not {} x {} cells of {cell} x {cell}",
        values.len(),
        grid.cols,
        grid.rows
    )))
}

/// The pixels of an image as `[patches, channel, y, x]`, patches in reading order.
fn patches(image: &PixelValues, patch: usize) -> impl Iterator<Item = f32> + '_ {
    let PixelValues { width, height, values, .. } = image;
    let line =
        move |channel: usize, y: usize, x: usize| &values[(channel * height + y) * width + x..][..patch];
    (0..height / patch)
        .flat_map(move |row| {
            (0..width / patch).flat_map(move |col| {
                (0..3 * patch).flat_map(move |i| line(i / patch, row * patch + i % patch, col * patch))
            })
        })
        .copied()
}

/// The rows of its own image, for every patch.
fn visible(images: &[PixelValues], patch: usize) -> Vec<Range<u32>> {
    let mut first = 0;
    let of_image = |image: &PixelValues| {
        let n = (image.width / patch) * (image.height / patch);
        let rows = first as u32..(first + n) as u32;
        first += n;
        std::iter::repeat_n(rows, n)
    };
    images.iter().flat_map(of_image).collect()
}

/// The angles of every patch. With `freq(k) = base ^ (-2k / head_dim)`, the first half of a head's pairs turns by the
/// patch's row times `freq(0), freq(2), …`, the second half by its column times `freq(1), freq(3), …`. Frequencies and
/// angles are rounded to f32, as in the reference.
pub fn rope_table<B: Backend>(
    config: &PixtralConfig,
    images: &[PixelValues],
    device: &B::Device,
) -> RopeTable<B> {
    let freq = |k: usize| {
        let power = f64::from(config.rope_freq_base).powf((2 * k) as f64 / config.head_dim as f64);
        1.0 / (power as f32)
    };
    let of_rows: Vec<f32> = (0..config.head_dim / 4).map(|j| freq(2 * j)).collect();
    let of_cols: Vec<f32> = (0..config.head_dim / 4).map(|j| freq(2 * j + 1)).collect();
    let mut angles = Vec::new();
    for image in images {
        let (rows, cols) = (image.height / config.patch_size, image.width / config.patch_size);
        for (row, col) in (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col))) {
            angles.extend(of_rows.iter().map(|freq| row as f32 * freq));
            angles.extend(of_cols.iter().map(|freq| col as f32 * freq));
        }
    }
    let n = angles.len() / (config.head_dim / 2);
    RopeTable::of_angles(angles.into_iter(), n, 1.0, config.rope_pairing, device)
}

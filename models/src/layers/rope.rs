//! Rotary position embedding: the angles of a step's rows.
use crate::backend::{Backend, Pairing};
use burn::tensor::{Tensor, TensorData};
use ember_loaders::checkpoint::RopeConfig;
use std::cell::OnceCell;

/// The rotation frequencies of a model, ready to be turned into angles.
#[derive(Clone, Debug)]
pub struct Rope {
    /// Radians per position, `[rotated / 2]`.
    inv_freq: Vec<f32>,
    /// YaRN's multiplier of cosine and sine.
    magnitude: f32,
    pairing: Pairing,
}

/// Cosines and sines of one step's rows, shared by all layers: in host memory, and as tensors once an operation asks.
#[derive(Clone, Debug)]
pub struct RopeTable<B: Backend> {
    /// `[t, rotated / 2]`.
    pub cos: Vec<f32>,
    /// `[t, rotated / 2]`.
    pub sin: Vec<f32>,
    /// The elements that form a pair.
    pub pairing: Pairing,
    rows: usize,
    device: B::Device,
    tensors: OnceCell<[Tensor<B, 2>; 2]>,
}

impl Rope {
    /// The frequencies of `config`; `freq_factors` is the checkpoint's `rope_freqs.weight`, if it has one.
    pub fn new(config: &RopeConfig, freq_factors: Option<&[f32]>) -> Self {
        Self {
            inv_freq: config.inv_freq(freq_factors),
            magnitude: config.magnitude(),
            pairing: config.pairing,
        }
    }

    /// The table of the given positions.
    ///
    /// The angle is rounded to f32 before its cosine is taken, as the reference implementations do: at position
    /// 100 000 that rounding is a few thousandths of a radian, and models were trained with it.
    pub fn table<B: Backend>(&self, positions: &[u32], device: &B::Device) -> RopeTable<B> {
        let angles = positions.iter().flat_map(|&p| self.inv_freq.iter().map(move |freq| p as f32 * freq));
        RopeTable::of_angles(angles, positions.len(), self.magnitude, self.pairing, device)
    }
}

impl<B: Backend> RopeTable<B> {
    /// A table of `rows` rows; `cos` and `sin` are `[rows, rotated / 2]`.
    pub fn new(cos: Vec<f32>, sin: Vec<f32>, rows: usize, pairing: Pairing, device: &B::Device) -> Self {
        Self { cos, sin, pairing, rows, device: device.clone(), tensors: OnceCell::new() }
    }

    /// The table of angles, `[rows, rotated / 2]`; cosines and sines are multiplied by `magnitude`.
    pub fn of_angles(
        angles: impl Iterator<Item = f32>,
        rows: usize,
        magnitude: f32,
        pairing: Pairing,
        device: &B::Device,
    ) -> Self {
        let pairs = angles.map(|angle| f64::from(angle).sin_cos());
        let (sin, cos) = pairs.map(|(sin, cos)| (sin as f32 * magnitude, cos as f32 * magnitude)).unzip();
        Self::new(cos, sin, rows, pairing, device)
    }

    /// Cosines and sines, `[t, rotated / 2]` each.
    pub fn tensors(&self) -> &[Tensor<B, 2>; 2] {
        self.tensors.get_or_init(|| {
            [&self.cos, &self.sin].map(|values| {
                let shape = [self.rows, values.len() / self.rows.max(1)];
                Tensor::from_data(TensorData::new(values.clone(), shape), &self.device)
            })
        })
    }

    /// # Shapes
    /// `[t, heads, d]` to `[t, heads, d]`.
    pub fn apply(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let [cos, sin] = self.tensors();
        B::rope(x, cos.clone(), sin.clone(), self.pairing)
    }
}

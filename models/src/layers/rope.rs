//! Rotary position embedding: the angles of a step's rows.
use crate::backend::{Backend, Pairing};
use burn::tensor::{Tensor, TensorData};
use ember_loaders::checkpoint::{RopeConfig, RopePairing};

/// The rotation frequencies of a model, ready to be turned into angles.
#[derive(Clone, Debug)]
pub struct Rope {
    /// Radians per position, `[rotated / 2]`.
    inv_freq: Vec<f32>,
    /// YaRN's multiplier of cosine and sine.
    magnitude: f32,
    pairing: Pairing,
}

/// Cosines and sines of one step's rows, shared by all layers.
#[derive(Clone, Debug)]
pub struct RopeTable<B: Backend> {
    /// `[t, rotated / 2]`.
    pub cos: Tensor<B, 2>,
    /// `[t, rotated / 2]`.
    pub sin: Tensor<B, 2>,
    /// Which elements form a pair.
    pub pairing: Pairing,
}

impl Rope {
    /// The frequencies of `config`; `freq_factors` is the checkpoint's `rope_freqs.weight`, if it has one.
    pub fn new(config: &RopeConfig, freq_factors: Option<&[f32]>) -> Self {
        let pairing = match config.pairing {
            RopePairing::Adjacent => Pairing::Adjacent,
            RopePairing::Half => Pairing::Half,
        };
        Self { inv_freq: config.inv_freq(freq_factors), magnitude: config.magnitude(), pairing }
    }

    /// The table of the given positions.
    ///
    /// The angle is rounded to f32 before its cosine is taken, as the reference implementations do: at position
    /// 100 000 that rounding is a few thousandths of a radian, and models were trained with it.
    pub fn table<B: Backend>(&self, positions: &[u32], device: &B::Device) -> RopeTable<B> {
        let shape = [positions.len(), self.inv_freq.len()];
        let angles = || {
            positions.iter().flat_map(|&p| self.inv_freq.iter().map(move |freq| f64::from(p as f32 * freq)))
        };
        let table = |values: Vec<f32>| Tensor::from_data(TensorData::new(values, shape), device);
        RopeTable {
            cos: table(angles().map(|angle| angle.cos() as f32 * self.magnitude).collect()),
            sin: table(angles().map(|angle| angle.sin() as f32 * self.magnitude).collect()),
            pairing: self.pairing,
        }
    }
}

impl<B: Backend> RopeTable<B> {
    /// # Shapes
    /// `[t, heads, d]` to `[t, heads, d]`.
    pub fn apply(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        B::rope(x, self.cos.clone(), self.sin.clone(), self.pairing)
    }
}

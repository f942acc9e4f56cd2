//! Training runs on the default bodies, which Burn differentiates.
use super::Backend;
use crate::error::ModelError;
use burn::backend::autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};

impl<B: Backend, C: CheckpointStrategy> Backend for Autodiff<B, C> {
    fn guard<T>(
        device: &Self::Device,
        work: impl FnOnce() -> Result<T, ModelError>,
    ) -> Result<T, ModelError> {
        B::guard(device, work)
    }
}

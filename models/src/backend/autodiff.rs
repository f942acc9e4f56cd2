//! Training runs on the default bodies, which Burn differentiates.
use super::Backend;
use burn::backend::autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};

impl<B: Backend, C: CheckpointStrategy> Backend for Autodiff<B, C> {}

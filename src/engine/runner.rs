//! Where the engine meets the model: a flat batch in, host logits out.
use super::EngineError;
use ember_loaders::checkpoint::ModelConfig;
use ember_models::backend::Backend;
use ember_models::{Batch, Decoder, KvCache};

/// A model with its KV cache, on whichever backend it was loaded.
pub trait Runner {
    /// The model's hyperparameters.
    fn config(&self) -> &ModelConfig;
    /// KV entries per block.
    fn block_len(&self) -> usize;
    /// Blocks in the KV pool.
    fn n_blocks(&self) -> usize;
    /// Size of the KV pool in bytes.
    fn kv_bytes(&self) -> usize;
    /// Runs one batch.
    ///
    /// # Errors
    /// An invalid batch, or logits that are not finite.
    fn step(&mut self, batch: &Batch) -> Result<RunnerOutput, EngineError>;
}

/// The wanted rows of a step, in host memory.
#[derive(Debug, Default)]
pub struct RunnerOutput {
    /// Row-major `[batch.logits_rows.len(), vocab]`.
    pub logits: Vec<f32>,
    /// Row-major `[batch.hidden_rows.len(), hidden]`.
    pub hidden: Vec<f32>,
}

/// A [`Decoder`] on backend `B`.
pub struct DecoderRunner<B: Backend> {
    decoder: Decoder<B>,
    cache: KvCache,
    device: B::Device,
}

impl<B: Backend> DecoderRunner<B> {
    /// Pairs a decoder with its cache.
    pub fn new(decoder: Decoder<B>, cache: KvCache, device: B::Device) -> Self {
        Self { decoder, cache, device }
    }
}

impl<B: Backend> Runner for DecoderRunner<B> {
    fn config(&self) -> &ModelConfig {
        self.decoder.config()
    }

    fn block_len(&self) -> usize {
        self.cache.layout().block_len
    }

    fn n_blocks(&self) -> usize {
        self.cache.n_blocks()
    }

    fn kv_bytes(&self) -> usize {
        self.cache.n_bytes()
    }

    fn step(&mut self, batch: &Batch) -> Result<RunnerOutput, EngineError> {
        let output = self.decoder.step(batch, &mut self.cache, &self.device)?;
        let read = |x: Option<burn::tensor::Tensor<B, 2>>| match x {
            Some(x) => x.into_data().convert::<f32>().into_vec().expect("converted to f32 just above"),
            None => Vec::new(),
        };
        let (logits, hidden): (Vec<f32>, Vec<f32>) = (read(output.logits), read(output.hidden));
        check_finite(&logits, &batch.logits_rows, batch)?;
        check_finite(&hidden, &batch.hidden_rows, batch)?;
        Ok(RunnerOutput { logits, hidden })
    }
}

/// NaN or infinity must stop the request: sampled from, it would turn into a stream of one token.
fn check_finite(values: &[f32], rows: &[u32], batch: &Batch) -> Result<(), EngineError> {
    let Some(at) = values.iter().position(|value| !value.is_finite()) else {
        return Ok(());
    };
    let row = rows[at / (values.len() / rows.len())] as usize;
    Err(EngineError::NotFinite { value: values[at], position: batch.positions[row] as usize })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_not_finite_is_reported_with_its_position() {
        let batch = Batch { positions: vec![7, 8, 9], ..Batch::default() };
        assert!(check_finite(&[1.0, 2.0, 3.0, 4.0], &[0, 2], &batch).is_ok());
        let error = check_finite(&[1.0, 2.0, 3.0, f32::NAN], &[0, 2], &batch).expect_err("a NaN");
        assert!(matches!(error, EngineError::NotFinite { position: 9, .. }), "{error}");
        assert!(check_finite(&[f32::INFINITY, 2.0], &[1], &batch).is_err());
    }
}

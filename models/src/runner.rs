//! A model without its backend's type: a flat batch in, host logits out.
use crate::backend::{Backend, TopK, read};
use crate::{Batch, KvCache, ModelError, TextModel};
use ember_loaders::checkpoint::ModelConfig;

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
    /// Rows that a prefill step should have: enough to amortise reading the weights, few enough that Ctrl-C is prompt.
    fn prefill_rows(&self) -> usize;
    /// Rows whose logits one step may ask for.
    fn max_logits_rows(&self) -> usize;
    /// Runs one batch.
    ///
    /// # Errors
    /// An invalid batch, or logits that are not finite.
    fn step(&mut self, batch: &Batch) -> Result<RunnerOutput, ModelError>;
}

/// The wanted rows of a step, in host memory.
#[derive(Debug, Default)]
pub struct RunnerOutput {
    /// Row-major `[batch.logits_rows.len(), vocab]`.
    pub logits: Vec<f32>,
    /// The likeliest tokens of each of `batch.likeliest_rows`.
    pub likeliest: Vec<TopK>,
    /// Row-major `[batch.hidden_rows.len(), hidden]`.
    pub hidden: Vec<f32>,
}

/// A [`TextModel`] on backend `B`.
pub struct DecoderRunner<B: Backend> {
    model: TextModel<B>,
    cache: KvCache,
    device: B::Device,
    prefill_rows: usize,
}

/// Floats of logits that a step returns at most: of a vocabulary of 150 000, a hundred rows.
const MAX_LOGITS: usize = 1 << 24;

impl<B: Backend> DecoderRunner<B> {
    /// Pairs a model with its cache; `prefill_rows` is lowered to what the device's largest buffer allows.
    pub fn new(model: TextModel<B>, cache: KvCache, device: B::Device, prefill_rows: usize) -> Self {
        let config = model.config();
        // Gate and up, or queries, keys and values, are one result.
        let heads = (config.n_heads + 2 * config.n_kv_heads) * config.head_dim;
        let widest = (2 * config.ffn_size).max(heads).max(config.hidden_size);
        let prefill_rows = prefill_rows.min(B::max_elements(&device) / widest).max(1);
        Self { model, cache, device, prefill_rows }
    }
}

impl<B: Backend> Runner for DecoderRunner<B> {
    fn config(&self) -> &ModelConfig {
        self.model.config()
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

    fn prefill_rows(&self) -> usize {
        self.prefill_rows
    }

    fn max_logits_rows(&self) -> usize {
        (MAX_LOGITS.min(B::max_elements(&self.device)) / self.config().vocab_size).max(1)
    }

    fn step(&mut self, batch: &Batch) -> Result<RunnerOutput, ModelError> {
        let output = self.model.step(batch, &mut self.cache, &self.device)?;
        let logits = output.logits.map(read).transpose()?.unwrap_or_default();
        let hidden = output.hidden.map(read).transpose()?.unwrap_or_default();
        let pick = |logits| B::top_k(logits, batch.likeliest);
        let likeliest = output.likeliest.map(pick).transpose()?.unwrap_or_default();
        check_finite(&logits, &batch.logits_rows, batch)?;
        check_finite(&hidden, &batch.hidden_rows, batch)?;
        // NaN and infinity come first.
        let first: Vec<f32> =
            likeliest.iter().filter_map(|row| row.first()).map(|&(_, logit)| logit).collect();
        check_finite(&first, &batch.likeliest_rows, batch)?;
        Ok(RunnerOutput { logits, likeliest, hidden })
    }
}

/// NaN or infinity must stop the request: sampled from, it would turn into a stream of one token.
fn check_finite(values: &[f32], rows: &[u32], batch: &Batch) -> Result<(), ModelError> {
    let Some(at) = values.iter().position(|value| !value.is_finite()) else {
        return Ok(());
    };
    let row = rows[at / (values.len() / rows.len())] as usize;
    Err(ModelError::NotFinite { value: values[at], position: batch.positions[row] as usize })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_not_finite_is_reported_with_its_position() {
        let batch = Batch { positions: vec![7, 8, 9], ..Batch::default() };
        assert!(check_finite(&[1.0, 2.0, 3.0, 4.0], &[0, 2], &batch).is_ok());
        let error = check_finite(&[1.0, 2.0, 3.0, f32::NAN], &[0, 2], &batch).expect_err("a NaN");
        assert!(matches!(error, ModelError::NotFinite { position: 9, .. }), "{error}");
        assert!(check_finite(&[f32::INFINITY, 2.0], &[1], &batch).is_err());
    }
}

//! A model without its backend's type: a flat batch in, host logits out.
use crate::backend::{Backend, TopK, read};
use crate::{Batch, KvCache, ModelError, StepPart, TextModel};
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
    /// Makes every step read back the hidden states after each half of a layer, and fail with
    /// [`ModelError::BreakDown`] where the first number is not finite; slow.
    fn set_check_finite(&mut self, on: bool);
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
    check_finite: bool,
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
        Self { model, cache, device, prefill_rows, check_finite: false }
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

    fn set_check_finite(&mut self, on: bool) {
        self.check_finite = on;
    }

    fn step(&mut self, batch: &Batch) -> Result<RunnerOutput, ModelError> {
        let decoder = self.model.decoder();
        let output = decoder.step_checked(batch, &mut self.cache, &self.device, self.check_finite)?;
        let logits = output.logits.map(read).transpose()?.unwrap_or_default();
        let hidden = output.hidden.map(read).transpose()?.unwrap_or_default();
        let pick = |logits| B::top_k(logits, batch.likeliest);
        let likeliest = output.likeliest.map(pick).transpose()?.unwrap_or_default();
        // NaN and infinity come first.
        let first: Vec<f32> =
            likeliest.iter().filter_map(|row| row.first()).map(|&(_, logit)| logit).collect();
        let wanted =
            [(&logits, &batch.logits_rows), (&hidden, &batch.hidden_rows), (&first, &batch.likeliest_rows)];
        for (values, rows) in wanted {
            check_finite(values, rows, batch, self.check_finite)?;
        }
        Ok(RunnerOutput { logits, likeliest, hidden })
    }
}

/// NaN or infinity must stop the request: sampled from, it would turn into a stream of one token. After a step whose
/// `layers` were checked, it comes from the head.
fn check_finite(values: &[f32], rows: &[u32], batch: &Batch, layers: bool) -> Result<(), ModelError> {
    let Some(at) = values.iter().position(|value| !value.is_finite()) else {
        return Ok(());
    };
    let row = rows[at / (values.len() / rows.len())] as usize;
    let (value, position) = (values[at], batch.positions[row] as usize);
    Err(match layers {
        true => ModelError::BreakDown { part: StepPart::Head, value, row, position },
        false => ModelError::NotFinite { value, position },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_not_finite_is_reported_with_its_position() {
        let batch = Batch { positions: vec![7, 8, 9], ..Batch::default() };
        assert!(check_finite(&[1.0, 2.0, 3.0, 4.0], &[0, 2], &batch, false).is_ok());
        let error = check_finite(&[1.0, 2.0, 3.0, f32::NAN], &[0, 2], &batch, false).expect_err("a NaN");
        assert!(matches!(error, ModelError::NotFinite { position: 9, .. }), "{error}");
        let error = check_finite(&[f32::INFINITY, 2.0], &[1], &batch, true).expect_err("infinity");
        assert!(matches!(error, ModelError::BreakDown { part: StepPart::Head, row: 1, .. }), "{error}");
    }
}

//! A model without its backend's type: a flat batch in, host logits out.
use crate::backend::{Backend, TopK, read};
use crate::{Batch, KvCache, ModelError, StepPart, TextModel};
use ember_loaders::checkpoint::ModelConfig;

/// A model with its KV cache, on whichever backend it was loaded.
pub trait Runner: Send {
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
    /// An invalid batch, or a device that failed.
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
    /// Wanted rows whose numbers broke down: sampled from, they would turn into a stream of one token.
    pub not_finite: Vec<NotFinite>,
}

/// A wanted row of a step that holds NaN or infinity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NotFinite {
    /// Row of the batch.
    pub row: usize,
    /// Rotary position of the row.
    pub position: usize,
    /// The first such value.
    pub value: f32,
}

impl From<NotFinite> for ModelError {
    fn from(NotFinite { position, value, .. }: NotFinite) -> Self {
        Self::NotFinite { value, position }
    }
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
        let not_finite: Vec<_> = wanted
            .into_iter()
            .flat_map(|(values, rows)| not_finite(values, rows, &batch.positions))
            .collect();
        if let (true, Some(&NotFinite { row, position, value })) = (self.check_finite, not_finite.first()) {
            // The layers were checked before.
            return Err(ModelError::BreakDown { part: StepPart::Head, value, row, position });
        }
        Ok(RunnerOutput { logits, likeliest, hidden, not_finite })
    }
}

/// The rows `rows` that are not finite; `values` holds as many for each.
fn not_finite<'a>(
    values: &'a [f32],
    rows: &'a [u32],
    positions: &'a [u32],
) -> impl Iterator<Item = NotFinite> + 'a {
    let width = (values.len() / rows.len().max(1)).max(1);
    values.chunks_exact(width).zip(rows).filter_map(|(values, &row)| {
        let value = *values.iter().find(|value| !value.is_finite())?;
        Some(NotFinite { row: row as usize, position: positions[row as usize] as usize, value })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_not_finite_is_reported_with_its_row_and_position() {
        let positions = [7, 8, 9];
        let of = |values: &[f32], rows: &[u32]| not_finite(values, rows, &positions).collect::<Vec<_>>();
        assert_eq!(of(&[1.0, 2.0, 3.0, 4.0], &[0, 2]), []);
        let infinity = NotFinite { row: 2, position: 9, value: f32::INFINITY };
        assert_eq!(of(&[1.0, 2.0, f32::INFINITY, f32::NAN], &[0, 2]), [infinity]);
        let broken = of(&[f32::NAN, 2.0, 3.0, f32::NEG_INFINITY], &[1, 0]);
        assert_eq!(broken.iter().map(|row| row.row).collect::<Vec<_>>(), [1, 0]);
        assert!(of(&[], &[]).is_empty());
    }
}

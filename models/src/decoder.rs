//! The pre-norm decoder of the Llama family.
//!
//! ```text
//! x = token_embd[tokens]
//! for each block:
//!     x += attn_output(attention(norm/rope(q), norm/rope(k), v))      q, k, v of attn_norm(x)
//!     x += ffn_down(silu(ffn_gate(y)) * ffn_up(y))                    y = ffn_norm(x)
//! logits = output(output_norm(x))                                     output = token_embd when tied
//! ```
use crate::backend::Backend;
use crate::batch::Batch;
use crate::check_finite;
use crate::error::ModelError;
use crate::kv_cache::KvCache;
use crate::layers::rope::Rope;
use crate::layers::{Block, BlockShape, Embedding, Linear, RmsNorm};
use crate::step::Step;
use crate::weights::{WeightFormat, Weights};
use burn::module::Module;
use burn::tensor::{Int, Tensor, TensorData};
use ember_loaders::checkpoint::{Checkpoint, ModelConfig};

/// Embedding, blocks, final norm and head. The differences between architectures are in the configuration.
#[derive(Module, Debug)]
pub struct Decoder<B: Backend> {
    /// `[vocab, hidden]`.
    pub token_embd: Embedding<B>,
    /// The blocks, first to last.
    pub blk: Vec<Block<B>>,
    /// `[hidden]`.
    pub output_norm: RmsNorm<B>,
    /// `[vocab, hidden]`; `None` when the head is tied to `token_embd`.
    pub output: Option<Linear<B>>,
    config: ModelConfig,
    rope: Rope,
}

/// The rows that a step was asked for.
#[derive(Debug)]
pub struct StepOutput<B: Backend> {
    /// `[batch.logits_rows.len(), vocab]`, when any were wanted.
    pub logits: Option<Tensor<B, 2>>,
    /// Logits to pick from, `[batch.likeliest_rows.len(), vocab]`, when any were wanted.
    pub likeliest: Option<Tensor<B, 2>>,
    /// Normalised final hidden states, `[batch.hidden_rows.len(), hidden]`, when any were wanted.
    pub hidden: Option<Tensor<B, 2>>,
}

impl<B: Backend> Decoder<B> {
    /// Builds the model of a checkpoint on `device`.
    ///
    /// # Errors
    /// If the checkpoint lacks a tensor.
    pub fn load(
        checkpoint: &Checkpoint,
        format: WeightFormat,
        device: &B::Device,
    ) -> Result<Self, ModelError> {
        Self::load_with(checkpoint, checkpoint.config().clone(), format, device, &mut |_| ())
    }

    /// [`load`](Self::load) with other hyperparameters than the checkpoint's, for experiments, and `progress` called with the
    /// bytes of weight matrices placed since its last call. Sizes must stay those of the tensors.
    ///
    /// # Errors
    /// If the checkpoint lacks a tensor or the device cannot hold one.
    pub fn load_with(
        checkpoint: &Checkpoint,
        config: ModelConfig,
        format: WeightFormat,
        device: &B::Device,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self, ModelError> {
        B::guard(device, || {
            let weights = Weights::stored(checkpoint, config.tensors(), format, device, progress);
            let model = Self::build(&weights, config)?;
            // Memory that the uploads passed through.
            B::memory_cleanup(device);
            Ok(model)
        })
    }

    /// A model of random weights, as f32 parameters: norms at one, biases at zero, matrices normal with deviation 0.02,
    /// drawn from the backend's generator (`B::seed`) when a layer is first used.
    ///
    /// # Panics
    /// If the sizes contradict each other.
    pub fn init(config: ModelConfig, device: &B::Device) -> Self {
        config.check().unwrap_or_else(|error| panic!("{error}"));
        Self::build(&Weights::random(config.tensors(), device), config)
            .expect("the description names every tensor that the layers read")
    }

    fn build(weights: &Weights<'_, B>, config: ModelConfig) -> Result<Self, ModelError> {
        let rope = Rope::new(&config.rope, weights.values("rope_freqs").as_deref());
        let shape = BlockShape::from(&config);
        let blk = (0..config.n_layers).map(|i| Block::load(weights, &shape, &format!("blk.{i}")));
        Ok(Self {
            token_embd: weights.embedding("token_embd")?,
            blk: blk.collect::<Result<_, _>>()?,
            output_norm: weights.rms_norm("output_norm", config.norm_eps)?,
            output: weights.opt_linear("output")?,
            config,
            rope,
        })
    }

    /// The hyperparameters.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Logits of every position of a batch of equally long sequences, without a cache.
    ///
    /// Differentiable on an autodiff backend, in the weights when they are [dense](WeightFormat::Dense).
    ///
    /// # Shapes
    /// `tokens` is `[batch, seq]`, the result `[batch, seq, vocab]`.
    pub fn forward(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        let positions: Vec<u32> = (0..tokens.dims()[1] as u32).collect();
        self.forward_at(tokens, &positions)
    }

    /// [`forward`](Self::forward) with the rotary position of each column given.
    ///
    /// # Shapes
    /// `tokens` is `[batch, seq]`, `positions` has `seq` entries, the result is `[batch, seq, vocab]`.
    pub fn forward_at(&self, tokens: Tensor<B, 2, Int>, positions: &[u32]) -> Tensor<B, 3> {
        let [batch, seq] = tokens.dims();
        let device = tokens.device();
        let ids: Vec<u32> =
            tokens.into_data().convert::<u32>().into_vec().expect("converted to u32 just above");
        let causal = |row: u32| row - row % seq as u32..row + 1;
        let visible = (0..(batch * seq) as u32).map(causal).collect();
        let positions = positions.repeat(batch);
        let rope = self.rope.table(&positions, &device);
        let step = Step::without_cache(rope, self.query_scale(&positions), visible);
        let x = self.token_embd.forward(&ids, &device);
        let x = self.output_norm.forward(Block::forward_all(&self.blk, x, &step, None));
        self.head(x).reshape([batch, seq, self.config.vocab_size])
    }

    /// Runs one flat batch against the paged cache and returns the rows that are wanted.
    ///
    /// # Errors
    /// [`ModelError::InvalidBatch`] when the batch contradicts itself, the model or the cache, [`ModelError::Device`] when
    /// the device failed.
    pub fn step(
        &self,
        batch: &Batch,
        cache: &mut KvCache,
        device: &B::Device,
    ) -> Result<StepOutput<B>, ModelError> {
        self.step_checked(batch, cache, device, false)
    }

    /// [`step`](Self::step); with `check_finite` the hidden states are read back after each half of a layer, and keys and
    /// values before they are stored, and the first number that is not finite ends the step.
    ///
    /// # Errors
    /// [`ModelError::BreakDown`], and as [`step`](Self::step).
    pub fn step_checked(
        &self,
        batch: &Batch,
        cache: &mut KvCache,
        device: &B::Device,
        check_finite: bool,
    ) -> Result<StepOutput<B>, ModelError> {
        B::guard(device, || self.step_on(batch, cache, device, check_finite))
    }

    fn step_on(
        &self,
        batch: &Batch,
        cache: &mut KvCache,
        device: &B::Device,
        check_finite: bool,
    ) -> Result<StepOutput<B>, ModelError> {
        let config = &self.config;
        batch.validate(config.vocab_size, config.hidden_size, cache.layout().block_len, cache.n_slots())?;
        let rope = self.rope.table(&batch.positions, device);
        let query_scale = self.query_scale(&batch.positions);
        let (slots, sequences) = (&batch.slots, &batch.sequences);
        let step = Step::over_pages(rope, query_scale, slots, sequences, cache.layout(), device)?;
        let x = self.embed(batch, device);
        let x = match check_finite {
            true => check_finite::forward_all(&self.blk, x, batch, &step, cache)?,
            false => Block::forward_all(&self.blk, x, &step, Some(cache)),
        };
        let wanted = |rows: &[u32]| {
            let ids: Vec<i64> = rows.iter().map(|&row| i64::from(row)).collect();
            let ids = Tensor::<B, 1, Int>::from_data(TensorData::new(ids, [rows.len()]), device);
            (!rows.is_empty()).then(|| self.output_norm.forward(x.clone().select(0, ids)))
        };
        Ok(StepOutput {
            logits: wanted(&batch.logits_rows).map(|x| self.head(x)),
            likeliest: wanted(&batch.likeliest_rows).map(|x| self.head(x)),
            hidden: wanted(&batch.hidden_rows),
        })
    }

    fn embed(&self, batch: &Batch, device: &B::Device) -> Tensor<B, 2> {
        let x = self.token_embd.forward(&batch.tokens, device);
        if batch.embeddings.is_empty() {
            return x;
        }
        let hidden = self.config.hidden_size;
        let given: Vec<f32> = batch.embeddings.iter().flat_map(|part| part.used(hidden)).copied().collect();
        let n_given = given.len() / hidden;
        let given = Tensor::from_data(TensorData::new(given, [n_given, hidden]), device);
        // One gather over both, however many rows of patches there are.
        let mut source: Vec<i64> = (0..batch.len() as i64).collect();
        let mut next = batch.len() as i64;
        for part in &batch.embeddings {
            for (row, from) in source[part.start..][..part.n].iter_mut().zip(next..) {
                *row = from;
            }
            next += part.n as i64;
        }
        let source = Tensor::<B, 1, Int>::from_data(TensorData::new(source, [batch.len()]), device);
        Tensor::cat(vec![x, given], 0).select(0, source)
    }

    /// Mistral 3's multiplier of each row's queries, when any differs from one.
    fn query_scale(&self, positions: &[u32]) -> Option<Vec<f32>> {
        let scale = self.config.query_scale.as_ref()?;
        let factors: Vec<f32> = positions.iter().map(|&position| scale.at(position)).collect();
        factors.iter().any(|&factor| factor != 1.0).then_some(factors)
    }

    fn head(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        match &self.output {
            Some(output) => output.forward(x),
            None => self.token_embd.head(x),
        }
    }
}

//! The engine of many requests: one model, and in each step rows of as many sequences as there is room for.
//!
//! The [scheduler](super::scheduler) chooses the rows; here they become a batch for the [`Runner`], and its results
//! tokens. A fault in one row ends the continuation it belongs to, a fault of the device ends all.
mod request;
mod rows;
mod sample;
mod thread;

pub use request::{Finished, GenerateRequest, Sink};
pub use thread::{EngineHandle, EngineStopped};

use super::scheduler::{Limits, LimitsError, Refusal, RequestId, Scheduler, SchedulerMetrics, Submission};
use super::{BlockManager, EngineError, FinishReason, ImageKey, Runner, RunnerOutput, Tokens, Wanted};
use crate::sampling::{Sampler, SamplingParams};
use ember_models::ModelError;
use rows::{Results, RowResult, StepChunk};
use sample::{Next, Sample};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The limits of a [`Batcher`] that its caller chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// KV entries of one sequence.
    pub context: usize,
    /// Sequences that run at the same time.
    pub running: usize,
    /// Requests that wait for their turn.
    pub queued: usize,
}

/// A model with its requests.
pub struct Batcher {
    runner: Box<dyn Runner>,
    scheduler: Scheduler,
    samples: BTreeMap<RequestId, Sample>,
    /// The error that ended all requests, once there was one.
    stopped: Option<String>,
}

impl Batcher {
    /// An engine without requests. There are at most half as many running sequences as rows whose logits the model can
    /// return in one step.
    ///
    /// # Errors
    /// [`LimitsError`] for limits under which nothing could run.
    pub fn new(runner: Box<dyn Runner>, limits: BatchLimits) -> Result<Self, LimitsError> {
        let results = runner.max_logits_rows();
        let running = limits.running.min(results.div_ceil(2));
        let rows_per_step = runner.prefill_rows().max(running);
        let limits = Limits {
            context: limits.context,
            rows_per_step,
            prompt_results_per_step: (results - running).max(1),
            running,
            queued: limits.queued,
        };
        let blocks = BlockManager::new(runner.n_blocks(), runner.block_len());
        let scheduler = Scheduler::new(limits, blocks)?;
        Ok(Self { runner, scheduler, samples: BTreeMap::new(), stopped: None })
    }

    /// Accepts a request with a continuation for each of `sinks`; what cannot be accepted ends them with the reason.
    pub fn submit(&mut self, request: &GenerateRequest, sinks: Vec<Box<dyn Sink>>) {
        match self.accept(request, sinks.len()) {
            Ok(accepted) => {
                let images: Arc<[_]> = request.images.as_slice().into();
                for (index, ((id, sampler), sink)) in accepted.into_iter().zip(sinks).enumerate() {
                    let sample = Sample::new(request, images.clone(), index, sampler, sink);
                    self.samples.insert(id, sample);
                }
            }
            Err(refusal) => {
                let mut refusal = Some(refusal);
                for sink in sinks {
                    let error = refusal.take().unwrap_or(EngineError::OtherContinuation);
                    sink.end(Err(error));
                }
            }
        }
    }

    fn accept(
        &mut self,
        request: &GenerateRequest,
        samples: usize,
    ) -> Result<Vec<(RequestId, Sampler)>, EngineError> {
        if let Some(reason) = &self.stopped {
            return Err(EngineError::Stopped { reason: reason.clone() });
        }
        Tokens { ids: &request.prompt, images: &request.images }
            .check_images(self.runner.config().hidden_size)?;
        let generates = request.limits.max_tokens != Some(0);
        let tokens = request.prompt.len() + usize::from(generates);
        if let Some(context) = request.limits.context.filter(|&context| tokens > context) {
            return Err(Refusal::BeyondContext { tokens, context }.into());
        }
        let first = Sampler::new(request.sampling.clone())?;
        let sampler = |i| {
            let seed = Some(first.seed().wrapping_add(i));
            Sampler::new(SamplingParams { seed, ..request.sampling.clone() })
        };
        let samplers = (0..samples as u64).map(sampler).collect::<Result<Vec<_>, _>>()?;
        let ids = self.scheduler.submit(Submission {
            prompt: request.prompt.clone(),
            images: request.images.iter().map(ImageKey::from).collect(),
            scope: request.scope.clone(),
            bypass_cache: request.prompt_logprobs.is_some(),
            samples,
            generates,
            prompt_results: request.prompt_logprobs.is_some(),
            priority: request.priority,
            ready: true,
        })?;
        Ok(ids.into_iter().zip(samplers).collect())
    }

    /// Runs one step. Returns false when there was nothing to run.
    pub fn step(&mut self) -> bool {
        self.drop_closed();
        let plan = self.scheduler.plan();
        if plan.chunks.is_empty() {
            return false;
        }
        let (batch, chunks) = self.batch(&plan);
        for chunk in &chunks {
            self.sample(chunk.id).start();
        }
        match self.runner.step(&batch) {
            Ok(mut output) => {
                let results = self.results(&mut output, &chunks);
                self.scheduler.complete(&plan);
                for (chunk, result) in results {
                    self.advance(chunk, result);
                }
            }
            Err(error) => self.stop(error.to_string()),
        }
        true
    }

    /// The results of the chunks; those with numbers that broke down end here.
    fn results<'a>(
        &mut self,
        output: &'a mut RunnerOutput,
        chunks: &'a [StepChunk],
    ) -> Vec<(&'a StepChunk, RowResult<'a>)> {
        let mut all = Results::new(output, self.runner.config().vocab_size);
        let mut good = Vec::new();
        for chunk in chunks {
            match all.take(chunk) {
                Ok(result) => good.push((chunk, result)),
                Err(broken) => self.fail(chunk.id, ModelError::from(broken).into()),
            }
        }
        good
    }

    /// Takes note of what a chunk has brought its continuation.
    fn advance(&mut self, chunk: &StepChunk, result: RowResult<'_>) {
        let vocab = self.runner.config().vocab_size;
        let Some(request) = self.scheduler.request(chunk.id) else { return };
        let (prompt, generated) = request.tokens().split_at(request.prompt_tokens());
        let sample = self.samples.get_mut(&chunk.id).expect("every request has a sample");
        let done = chunk.planned.tokens.end;
        if chunk.planned.tokens.start < prompt.len() {
            sample.prefilled(done.min(prompt.len()), prompt.len());
        }
        if let (Wanted::All, RowResult::Logits(rows)) = (chunk.wanted, &result) {
            sample.report_prompt(prompt, chunk.planned.wanted.clone(), rows, vocab);
        }
        if done < prompt.len() + generated.len() {
            return;
        }
        match sample.next(result, vocab, prompt, generated) {
            Ok(Next::Token(token)) => self.push(chunk.id, token),
            Ok(Next::End(reason)) => self.finish(chunk.id, reason, 0),
            Err(error) => self.fail(chunk.id, error),
        }
    }

    /// Appends a token that was handed out.
    fn push(&mut self, id: RequestId, token: u32) {
        let known = self.scheduler.request(id).map_or(0, |request| request.tokens().len());
        let full = self.sample(id).exceeds_context(known + 1);
        if full || self.scheduler.push_token(id, token).is_err() {
            return self.finish(id, FinishReason::ContextFull, 1);
        }
        let Some(request) = self.scheduler.request(id) else { return };
        let generated = &request.tokens()[request.prompt_tokens()..];
        let sample = self.samples.get_mut(&id).expect("every request has a sample");
        if let Some(reason) = sample.ended_by(generated) {
            self.finish(id, reason, 0);
        }
    }

    /// Ends a continuation; `more` tokens were handed out than the scheduler knows.
    fn finish(&mut self, id: RequestId, reason: FinishReason, more: usize) {
        let (Some(sample), Some(request)) = (self.samples.remove(&id), self.scheduler.request(id)) else {
            return;
        };
        let (prompt, cached) = (request.prompt_tokens(), request.cached_tokens());
        let generated = request.tokens().len() - prompt + more;
        self.scheduler.finish(id);
        sample.finish(reason, prompt, cached, generated);
    }

    fn fail(&mut self, id: RequestId, error: EngineError) {
        self.scheduler.fail(id);
        if let Some(sample) = self.samples.remove(&id) {
            sample.fail(error);
        }
    }

    /// Ends the continuations that nobody waits for.
    fn drop_closed(&mut self) {
        let scheduler = &mut self.scheduler;
        self.samples.retain(|id, sample| {
            let closed = sample.sink.is_closed();
            if closed {
                scheduler.finish(*id);
            }
            !closed
        });
    }

    /// Ends all requests, and refuses those to come.
    pub(super) fn stop(&mut self, reason: String) {
        for (id, sample) in std::mem::take(&mut self.samples) {
            self.scheduler.fail(id);
            sample.fail(EngineError::Stopped { reason: reason.clone() });
        }
        self.stopped = Some(reason);
    }

    fn sample(&mut self, id: RequestId) -> &mut Sample {
        self.samples.get_mut(&id).expect("every request has a sample")
    }

    /// True if no request is left.
    pub fn is_idle(&self) -> bool {
        self.samples.is_empty()
    }

    /// The model.
    pub fn runner(&self) -> &dyn Runner {
        self.runner.as_ref()
    }

    /// Requests, blocks and cache in numbers.
    pub fn metrics(&self) -> SchedulerMetrics {
        self.scheduler.metrics()
    }
}

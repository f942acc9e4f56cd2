//! What the tests of the engine share: a sink that remembers, and a model that counts.
#![allow(dead_code, reason = "each test binary uses a part")]

use ember::engine::{
    Batcher, EngineError, Finished, GenerateLimits, GenerateRequest, NotFinite, Runner, RunnerOutput, Sink,
};
use ember::sampling::TokenLogprobs;
use ember_loaders::checkpoint::{Checkpoint, ModelConfig};
use ember_models::{Batch, ModelError};
use ember_test_support::fixture;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard};

/// Everything that one continuation was told.
#[derive(Debug, Default)]
pub struct Heard {
    pub prompt: Vec<TokenLogprobs>,
    pub tokens: Vec<u32>,
    pub logprobs: Vec<TokenLogprobs>,
    pub end: Option<Result<Finished, String>>,
    closed: bool,
}

/// A sink that remembers; its clones share what they heard.
#[derive(Clone, Debug, Default)]
pub struct Listener(Arc<Mutex<Heard>>);

impl Listener {
    pub fn heard(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().expect("no panic")
    }

    pub fn tokens(&self) -> Vec<u32> {
        self.heard().tokens.clone()
    }

    pub fn finished(&self) -> Finished {
        self.heard().end.clone().expect("it has ended").expect("without an error")
    }

    pub fn error(&self) -> String {
        self.heard().end.clone().expect("it has ended").expect_err("it failed")
    }

    pub fn close(&self) {
        self.heard().closed = true;
    }
}

impl Sink for Listener {
    fn is_closed(&self) -> bool {
        self.heard().closed
    }

    fn prefilled(&mut self, done: usize, total: usize) {
        assert!(done <= total);
    }

    fn prompt_logprobs(&mut self, tokens: Vec<TokenLogprobs>) {
        self.heard().prompt.extend(tokens);
    }

    fn token(&mut self, token: u32, logprobs: Option<TokenLogprobs>) -> ControlFlow<()> {
        let mut heard = self.heard();
        heard.tokens.push(token);
        heard.logprobs.extend(logprobs);
        ControlFlow::Continue(())
    }

    fn end(self: Box<Self>, end: Result<Finished, EngineError>) {
        let mut heard = self.heard();
        assert!(heard.end.is_none(), "it ends once");
        heard.end = Some(end.map_err(|error| error.to_string()));
    }
}

/// A greedy request.
pub fn request(prompt: &[u32], max_tokens: usize) -> GenerateRequest {
    let limits = GenerateLimits { max_tokens: Some(max_tokens), ..GenerateLimits::default() };
    GenerateRequest { prompt: prompt.to_vec(), limits, ..GenerateRequest::default() }
}

pub fn submit(batcher: &mut Batcher, request: &GenerateRequest) -> Listener {
    let listener = Listener::default();
    batcher.submit(request, vec![Box::new(listener.clone())]);
    listener
}

/// Runs all requests to their ends.
pub fn run(batcher: &mut Batcher) {
    while batcher.step() {}
    assert!(batcher.is_idle());
    let blocks = batcher.metrics().blocks;
    assert_eq!(blocks.held, 0, "every block came back");
}

pub const VOCAB: u32 = 50;
pub const BLOCK: usize = 4;

/// A model that predicts `token + 1` after every token, and remembers its batches.
pub struct Counting {
    pub config: ModelConfig,
    pub n_blocks: usize,
    pub prefill_rows: usize,
    pub max_logits_rows: usize,
    pub batches: Arc<Mutex<Vec<Batch>>>,
    /// After this token its numbers break down.
    pub breaks_after: Option<u32>,
    /// The step that fails: an error of its device.
    pub fails_at: Option<usize>,
    /// The step that panics.
    pub panics_at: Option<usize>,
}

impl Counting {
    pub fn new(n_blocks: usize) -> Self {
        let file = fixture("models/qwen3-tied/f32.gguf");
        let config = Checkpoint::open(file).expect("a committed fixture").config().clone();
        Self {
            config: ModelConfig { vocab_size: VOCAB as usize, ..config },
            n_blocks,
            prefill_rows: 256,
            max_logits_rows: 200,
            batches: Arc::default(),
            breaks_after: None,
            fails_at: None,
            panics_at: None,
        }
    }
}

impl Runner for Counting {
    fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn block_len(&self) -> usize {
        BLOCK
    }

    fn n_blocks(&self) -> usize {
        self.n_blocks
    }

    fn kv_bytes(&self) -> usize {
        0
    }

    fn prefill_rows(&self) -> usize {
        self.prefill_rows
    }

    fn max_logits_rows(&self) -> usize {
        self.max_logits_rows
    }

    fn set_check_finite(&mut self, _on: bool) {}

    fn step(&mut self, batch: &Batch) -> Result<RunnerOutput, ModelError> {
        batch.validate(VOCAB as usize, self.config.hidden_size, BLOCK, self.n_blocks * BLOCK)?;
        let mut batches = self.batches.lock().expect("no panic");
        if self.fails_at == Some(batches.len()) {
            return Err(ModelError::Device("the device was lost".to_owned()));
        }
        if self.panics_at == Some(batches.len()) {
            drop(batches);
            panic!("an index out of range");
        }
        batches.push(batch.clone());
        let token = |row: &u32| batch.tokens[*row as usize];
        let logits = |row: &u32| {
            let next = (token(row) + 1) % VOCAB;
            (0..VOCAB).map(move |token| if token == next { 1.0 } else { 0.0 })
        };
        // The next token, then those that follow it, each half as likely.
        let pick = |row: &u32| {
            let next = token(row) + 1;
            (0..batch.likeliest as u32).map(|i| ((next + i) % VOCAB, 0.5_f32.powi(i as i32))).collect()
        };
        let wanted = batch.logits_rows.iter().chain(&batch.likeliest_rows);
        let broken = wanted.filter(|row| self.breaks_after == Some(token(row))).map(|&row| {
            let position = batch.positions[row as usize] as usize;
            NotFinite { row: row as usize, position, value: f32::NAN }
        });
        Ok(RunnerOutput {
            logits: batch.logits_rows.iter().flat_map(logits).collect(),
            likeliest: batch.likeliest_rows.iter().map(pick).collect(),
            hidden: Vec::new(),
            not_finite: broken.collect(),
        })
    }
}

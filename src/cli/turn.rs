//! One answer of a model: runs the engine and shows text as it becomes certain.
use super::interrupt::Listener;
use super::output::AnswerWriter;
use super::progress::Bar;
use anyhow::Result;
use ember::chat::{StreamDecoder as TextSplitter, TextDelta};
use ember::engine::{Engine, FinishReason, GenerateLimits, Generation, Observer, Sequence, Tokens, generate};
use ember::sampling::Sampler;
use ember_loaders::tokenizer::{StreamDecoder, Tokenizer};
use std::ops::ControlFlow;

/// Why an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The model ended it.
    EndOfGeneration,
    /// One of the stop strings came up.
    StopString(String),
    /// The limit of tokens was reached.
    MaxTokens,
    /// The context is full.
    ContextFull,
    /// Ctrl-C.
    Interrupted,
}

/// An answer.
pub struct Turn {
    pub text: String,
    pub reasoning: String,
    pub ending: Ending,
    pub generation: Generation,
}

/// What an answer is made of.
pub struct TurnRequest<'a> {
    pub prompt: Tokens<'a>,
    pub max_tokens: usize,
    /// Splits reasoning from answer and knows the stop strings.
    pub splitter: TextSplitter,
}

/// Generates an answer, written to `writer` as it comes when there is one.
///
/// # Errors
/// Any error of the engine, or of the output.
pub fn run(
    engine: &mut Engine,
    sequence: &mut Sequence,
    tokenizer: &Tokenizer,
    sampler: &mut Sampler,
    request: TurnRequest<'_>,
    writer: Option<&mut AnswerWriter>,
) -> Result<Turn> {
    let limits = GenerateLimits { max_tokens: request.max_tokens, end_tokens: tokenizer.eog().to_vec() };
    let mut view = View {
        listener: Listener::new(),
        bar: Some(Bar::new("reading the prompt", request.prompt.ids.len())),
        decoder: StreamDecoder::new(tokenizer, false),
        splitter: request.splitter,
        writer,
        text: String::new(),
        reasoning: String::new(),
        failure: None,
    };
    let generation = generate(engine, sequence, request.prompt, sampler, &limits, &mut view)?;
    view.end()?;
    // One may also come to light at the end, when a longer one that could have begun before it did not follow.
    let stop_string = view.splitter.stopped_by().map(str::to_owned);
    let ending = match (stop_string, generation.finish_reason) {
        (Some(stop), _) => Ending::StopString(stop),
        (None, FinishReason::EndOfGeneration) => Ending::EndOfGeneration,
        (None, FinishReason::MaxTokens) => Ending::MaxTokens,
        (None, FinishReason::ContextFull) => Ending::ContextFull,
        (None, FinishReason::Stopped) => Ending::Interrupted,
    };
    Ok(Turn { text: view.text, reasoning: view.reasoning, ending, generation })
}

/// Watches a generation: decodes, collects and shows.
struct View<'a> {
    listener: Listener,
    /// Until the first token.
    bar: Option<Bar>,
    decoder: StreamDecoder<&'a Tokenizer>,
    splitter: TextSplitter,
    writer: Option<&'a mut AnswerWriter>,
    text: String,
    reasoning: String,
    failure: Option<std::io::Error>,
}

impl View<'_> {
    fn show(&mut self, delta: &TextDelta) {
        self.reasoning.push_str(&delta.reasoning);
        self.text.push_str(&delta.content);
        if let Some(writer) = &mut self.writer
            && self.failure.is_none()
        {
            let written = writer.reasoning(&delta.reasoning).and_then(|()| writer.answer(&delta.content));
            self.failure = written.err();
        }
    }

    /// Shows what was held back, and reports a failure of the output.
    fn end(&mut self) -> Result<()> {
        if let Some(rest) = self.decoder.flush() {
            let delta = self.splitter.push(&rest);
            self.show(&delta);
        }
        let delta = self.splitter.finish();
        self.show(&delta);
        if let Some(failure) = self.failure.take() {
            return Err(failure.into());
        }
        match &mut self.writer {
            Some(writer) => Ok(writer.finish()?),
            None => Ok(()),
        }
    }

    fn go_on(&self) -> ControlFlow<()> {
        let stop =
            self.failure.is_some() || self.splitter.stopped_by().is_some() || self.listener.requested();
        if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Observer for View<'_> {
    fn prefill(&mut self, done: usize, _total: usize) -> ControlFlow<()> {
        if let Some(bar) = &mut self.bar {
            bar.set(done);
        }
        self.go_on()
    }

    fn token(&mut self, token: u32) -> ControlFlow<()> {
        self.bar = None;
        if let Some(piece) = self.decoder.push(token) {
            let delta = self.splitter.push(&piece);
            self.show(&delta);
        }
        self.go_on()
    }
}

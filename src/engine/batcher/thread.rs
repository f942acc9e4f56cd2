//! The thread that owns a model, and the handle through which others give it work.
use super::{BatchLimits, Batcher, GenerateRequest, Sink};
use crate::engine::Runner;
use crate::engine::scheduler::{LimitsError, SchedulerMetrics};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use thiserror::Error;

/// The engine has ended: its thread is gone.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the engine has stopped")]
pub struct EngineStopped;

struct Submitted {
    request: GenerateRequest,
    sinks: Vec<Box<dyn Sink>>,
}

/// The way to a [`Batcher`] on a thread of its own. Clones lead to the same one, which ends with the last of them, after
/// the requests it has.
#[derive(Clone)]
pub struct EngineHandle {
    requests: Sender<Submitted>,
    metrics: Arc<Mutex<SchedulerMetrics>>,
}

impl EngineHandle {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`LimitsError`] for limits under which nothing could run.
    ///
    /// # Panics
    /// If the system has no thread to give.
    pub fn start(runner: Box<dyn Runner>, limits: BatchLimits) -> Result<Self, LimitsError> {
        let batcher = Batcher::new(runner, limits)?;
        let (sender, receiver) = channel();
        let metrics = Arc::new(Mutex::new(batcher.metrics()));
        let handle = Self { requests: sender, metrics: metrics.clone() };
        thread::Builder::new()
            .name("ember-engine".to_owned())
            .spawn(move || run(batcher, &receiver, &metrics))
            .expect("a thread can be started");
        Ok(handle)
    }

    /// Hands over a request with a continuation for each of `sinks`. It returns at once; a refusal comes to the sinks.
    ///
    /// # Errors
    /// [`EngineStopped`].
    pub fn submit(&self, request: GenerateRequest, sinks: Vec<Box<dyn Sink>>) -> Result<(), EngineStopped> {
        self.requests.send(Submitted { request, sinks }).map_err(|_| EngineStopped)
    }

    /// Requests, blocks and cache in numbers, as of the last step.
    pub fn metrics(&self) -> SchedulerMetrics {
        *self.metrics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Steps while there are requests, waits for one while there are none, and ends when nobody can send any.
fn run(mut batcher: Batcher, requests: &Receiver<Submitted>, metrics: &Mutex<SchedulerMetrics>) {
    let mut at_rest = true;
    loop {
        let received = match at_rest {
            true => requests.recv().map_err(|_| TryRecvError::Disconnected),
            false => requests.try_recv(),
        };
        match received {
            Ok(Submitted { request, sinks }) => {
                batcher.submit(&request, sinks);
                at_rest = false;
            }
            Err(TryRecvError::Disconnected) if at_rest => return,
            Err(_) => at_rest = !step(&mut batcher),
        }
        *metrics.lock().unwrap_or_else(PoisonError::into_inner) = batcher.metrics();
    }
}

/// A [`Batcher::step`] whose panic ends the requests instead of leaving them without an answer.
fn step(batcher: &mut Batcher) -> bool {
    // After a panic the batcher runs no further step: its model may be in any state.
    catch_unwind(AssertUnwindSafe(|| batcher.step())).unwrap_or_else(|panic| {
        batcher.stop(format!("the engine failed: {}", message(panic.as_ref())));
        false
    })
}

fn message(panic: &dyn Any) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}

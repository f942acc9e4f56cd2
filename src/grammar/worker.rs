//! Threads that make masks while the model computes.

use super::error::GrammarError;
use super::matcher::GrammarMatcher;
use crate::sampling::TokenMask;
use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Threads that make masks. The masks are those that [`GrammarMatcher::mask`] makes, whichever thread makes them.
///
/// Dropping it waits for the masks that are being made.
#[derive(Debug)]
pub struct MaskWorkers {
    /// `None` once the threads are to end.
    jobs: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

struct Job {
    matcher: GrammarMatcher,
    reply: Sender<(GrammarMatcher, Result<TokenMask, GrammarError>)>,
}

impl MaskWorkers {
    /// Starts `threads` threads, at least one.
    ///
    /// # Errors
    /// The system's error when it gives no thread.
    pub fn new(threads: usize) -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel();
        let queue = Arc::new(Mutex::new(queue));
        let mut workers = Self { jobs: Some(jobs), threads: Vec::new() };
        for _ in 0..threads.max(1) {
            let queue = queue.clone();
            workers
                .threads
                .push(thread::Builder::new().name("grammar masks".into()).spawn(move || work(&queue))?);
        }
        Ok(workers)
    }

    /// Begins to make the mask of `matcher`, which comes back with it.
    pub fn mask(&self, matcher: GrammarMatcher) -> PendingMask {
        let (reply, mask) = mpsc::channel();
        if let Some(jobs) = &self.jobs {
            // Without a thread to take it, the reply is dropped, and `wait` says so.
            let _ = jobs.send(Job { matcher, reply });
        }
        PendingMask(mask)
    }
}

impl Drop for MaskWorkers {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has lost its mask, which `wait` has reported.
            let _ = thread.join();
        }
    }
}

fn work(queue: &Mutex<Receiver<Job>>) {
    loop {
        // The lock is held while waiting: one idle thread waits for a job, the others for the lock.
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { mut matcher, reply }) = job else { return };
        let mask = matcher.mask();
        // Nobody waits for the mask of a request that was cancelled.
        let _ = reply.send((matcher, mask));
    }
}

/// A mask that is being made; dropping it gives the mask up.
#[derive(Debug)]
pub struct PendingMask(Receiver<(GrammarMatcher, Result<TokenMask, GrammarError>)>);

impl PendingMask {
    /// Waits for the mask.
    ///
    /// # Errors
    /// As [`GrammarMatcher::mask`].
    pub fn wait(self) -> Result<(GrammarMatcher, TokenMask), GrammarError> {
        let lost = |_| GrammarError::Failed("the thread that made the mask is gone".into());
        let (matcher, mask) = self.0.recv().map_err(lost)?;
        Ok((matcher, mask?))
    }
}

//! Progress on stderr for work that takes longer than a second.
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, stderr};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Shorter work shows nothing.
const DELAY: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(120);

/// A bar over a known amount of work. It appears after a second, on a terminal only, and vanishes when dropped.
pub struct Bar {
    bar: ProgressBar,
    started: Instant,
    visible: bool,
}

impl Bar {
    /// A bar over `total` units; `what` is the text before it.
    pub fn new(what: &'static str, total: usize) -> Self {
        let style = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} ({eta})")
            .expect("the template is constant and well-formed")
            .progress_chars("=> ");
        let bar = ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::hidden());
        bar.set_style(style);
        bar.set_message(what);
        Self { bar, started: Instant::now(), visible: false }
    }

    /// A bar over `total` bytes; `what` is the text before it.
    pub fn bytes(what: &'static str, total: usize) -> Self {
        let style = ProgressStyle::with_template("{msg} [{bar:30}] {bytes}/{total_bytes} ({eta})")
            .expect("the template is constant and well-formed")
            .progress_chars("=> ");
        let bar = Self::new(what, total);
        bar.bar.set_style(style);
        bar
    }

    /// Sets the amount that is done.
    pub fn set(&mut self, done: usize) {
        if !self.visible && self.started.elapsed() >= DELAY {
            self.visible = true;
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position(done as u64);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A spinner beside work whose length is unknown. It appears after a second and vanishes when dropped.
pub struct Spinner {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Spinner {
    /// Starts the clock; `what` is the text beside the spinner.
    pub fn start(what: String) -> Self {
        if !stderr().is_terminal() {
            return Self { stop: None, thread: None };
        }
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            if stopped.recv_timeout(DELAY) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let spinner = ProgressBar::new_spinner().with_message(what);
            while stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                spinner.tick();
            }
            spinner.finish_and_clear();
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic in it was already reported, and took nothing with it.
            let _joined = thread.join();
        }
    }
}

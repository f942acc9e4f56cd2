//! Progress on stderr for work that takes longer than a second.
use super::interrupt;
use ember::{Progress, Reporter};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, stderr};
use std::ops::ControlFlow;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Shorter work shows nothing.
const DELAY: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(120);

/// A receiver of the library's reports that draws them, and asks the work to stop when Ctrl-C was pressed.
pub fn reporter() -> Reporter {
    let mut shown = Shown::Nothing;
    Reporter::new(Box::new(move |progress| {
        shown.update(progress);
        if interrupt::requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }))
}

/// The report that is drawn.
enum Shown {
    Nothing,
    Bar(&'static str, Bar),
    Spinner(#[expect(dead_code, reason = "it stops when dropped")] Spinner),
}

impl Shown {
    fn update(&mut self, progress: Progress) {
        match progress {
            Progress::LoadingModel { done, total } => self.bar("loading", Bar::bytes, done, total),
            Progress::LoadingProjector { done, total } => {
                self.bar("loading the projector", Bar::bytes, done, total);
            }
            Progress::ReadingPrompt { done, total } => {
                self.bar("reading the prompt", Bar::new, done as u64, total as u64);
            }
            Progress::CompilingKernels => self.spinner("compiling kernels".to_owned()),
            Progress::EncodingImage { nth, of, tokens } => {
                self.spinner(format!("encoding image {nth} of {of} ({tokens} tokens)"));
            }
            Progress::Done => *self = Self::Nothing,
        }
    }

    fn bar(&mut self, what: &'static str, new: fn(&'static str, usize) -> Bar, done: u64, total: u64) {
        match self {
            Self::Bar(shown, bar) if *shown == what => bar.set(done as usize),
            _ => *self = Self::Bar(what, new(what, total as usize)),
        }
    }

    fn spinner(&mut self, what: String) {
        // The one before it ends first: both draw on one line.
        *self = Self::Nothing;
        *self = Self::Spinner(Spinner::start(what));
    }
}

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

//! Ctrl-C: the first one asks the work in progress to stop, one more, or one while nothing listens, ends the program.
use super::{EXIT_INTERRUPTED, out_file};
use anyhow::{Context, Result};
use std::sync::atomic::{AtomicU8, Ordering};

const IDLE: u8 = 0;
const LISTENING: u8 = 1;
const REQUESTED: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(IDLE);

/// Takes over Ctrl-C for the whole program.
///
/// # Errors
/// If the system refuses the handler.
pub fn install() -> Result<()> {
    ctrlc::set_handler(|| {
        if STATE.compare_exchange(LISTENING, REQUESTED, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            out_file::remove_unfinished();
            std::process::exit(EXIT_INTERRUPTED.into());
        }
    })
    .context("cannot handle Ctrl-C")
}

/// True if Ctrl-C was pressed while a [`Listener`] lives.
pub fn requested() -> bool {
    STATE.load(Ordering::SeqCst) == REQUESTED
}

/// While one of these lives, Ctrl-C is a request that the work polls for.
pub struct Listener(());

impl Listener {
    /// Starts listening; there is one listener at a time.
    pub fn new() -> Self {
        STATE.store(LISTENING, Ordering::SeqCst);
        Self(())
    }

    /// True if Ctrl-C was pressed since this listener was made.
    pub fn requested(&self) -> bool {
        requested()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        STATE.store(IDLE, Ordering::SeqCst);
    }
}

//! Progress reports of long work, and the request to stop it.
use std::cell::RefCell;
use std::ops::ControlFlow;

/// A report of work that takes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Weights of the model are brought to the device; amounts are bytes.
    LoadingModel {
        /// Bytes brought there.
        done: u64,
        /// Bytes in all.
        total: u64,
    },
    /// Weights of the projector are brought to the device; amounts are bytes.
    LoadingProjector {
        /// Bytes brought there.
        done: u64,
        /// Bytes in all.
        total: u64,
    },
    /// The device compiles its kernels.
    CompilingKernels,
    /// An image is about to be encoded.
    EncodingImage {
        /// Number of the image, from 1.
        nth: usize,
        /// Number of images.
        of: usize,
        /// Tokens of the image.
        tokens: usize,
    },
    /// Tokens of the prompt are read.
    ReadingPrompt {
        /// Tokens read, those that were cached among them.
        done: usize,
        /// Tokens of the prompt.
        total: usize,
    },
    /// The work that was reported last is over.
    Done,
}

/// The callback that gets progress reports. `Break` stops the encoding of images and the reading of a prompt; loading goes
/// on regardless.
pub type OnProgress = Box<dyn FnMut(Progress) -> ControlFlow<()>>;

/// The receiver of progress reports.
#[derive(Default)]
pub struct Reporter(Option<RefCell<OnProgress>>);

impl Reporter {
    /// A receiver that calls `callback`.
    pub fn new(callback: OnProgress) -> Self {
        Self(Some(RefCell::new(callback)))
    }

    /// Passes a report on; the answer says whether to go on.
    pub(crate) fn report(&self, progress: Progress) -> ControlFlow<()> {
        match &self.0 {
            Some(callback) => callback.borrow_mut()(progress),
            None => ControlFlow::Continue(()),
        }
    }

    /// Reports that work is over.
    pub(crate) fn done(&self) {
        // There is nothing left to stop.
        let _over = self.report(Progress::Done);
    }
}

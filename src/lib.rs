//! Ember: an inference engine for Mistral 3 (with images) and Qwen3 GGUF files on Burn.
//!
//! A [`Model`] is opened from a GGUF file, a [`Session`] is a conversation with it, and an [`Answer`] an iterator over the
//! text as it is generated:
//!
//! ```no_run
//! use ember::{AnswerOptions, Model, ModelOptions};
//!
//! let mut model = Model::open("model.gguf", ModelOptions::default())?;
//! let mut session = model.session(AnswerOptions::default())?;
//! let mut answer = session.say("Why is the sky blue?", &[])?;
//! for piece in &mut answer {
//!     print!("{}", piece?.content);
//! }
//! let result = answer.finish()?;
//! println!("\n{} tokens, {:?}", result.tokens.len(), result.ending);
//! # Ok::<(), ember::Error>(())
//! ```
//!
//! The modules themselves are in `ember-models`, the file formats in `ember-loaders`. Below the session lie the [`engine`]
//! (sequences, KV blocks, generation), [`sampling`], [`grammar`]s and [`chat`] templates. The command line is a client of this library.
mod answer;
mod bytes;
pub mod chat;
mod chat_tokenizer;
pub mod device;
pub mod engine;
mod error;
pub mod grammar;
mod model;
mod progress;
pub mod sampling;
mod session;
mod settings;
pub mod synth;
mod vision;

pub use answer::{Answer, AnswerResult, Ending};
pub use bytes::DecimalBytes;
pub use chat::{Message, TextDelta};
pub use chat_tokenizer::{ChatTokenizer, Conversation};
pub use error::{Error, ProjectorError};
pub use model::{DEFAULT_CONTEXT, Model, ModelFiles, ModelOptions};
pub use progress::{OnProgress, Progress, Reporter};
pub use session::Session;
pub use settings::{AnswerOptions, AnswerSettings};
pub use vision::{EncodedImages, ImageFile, VisionModel};

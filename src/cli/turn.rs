//! One answer of a model, shown as it comes.
use super::interrupt::Listener;
use super::model::report_images;
use super::output::{AnswerWriter, warn_of_omissions};
use anyhow::Result;
use ember::{Answer, AnswerResult, Error};

/// Begins an answer with `start` and shows it until it ends or Ctrl-C is pressed, written to `writer` when there is one;
/// `None` when Ctrl-C was pressed before it began.
///
/// # Errors
/// Any error of the model, or of the output.
pub fn show<'a>(
    start: impl FnOnce() -> Result<Answer<'a>, Error>,
    mut writer: Option<&mut AnswerWriter>,
) -> Result<Option<AnswerResult>> {
    let listener = Listener::new();
    let mut answer = match start() {
        Err(Error::Cancelled) => return Ok(None),
        answer => answer?,
    };
    warn_of_omissions(answer.warnings());
    report_images(answer.images());
    while let Some(piece) = answer.next().transpose()? {
        if let Some(writer) = &mut writer {
            writer.reasoning(&piece.reasoning)?;
            writer.answer(&piece.content)?;
        }
        if listener.requested() {
            answer.stop();
        }
    }
    if let Some(writer) = writer {
        writer.finish()?;
    }
    Ok(Some(answer.finish()?))
}

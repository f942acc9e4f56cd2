//! A conversation about an image: `cargo run --release --example chat_with_image -- model.gguf photo.jpg [mmproj.gguf]`
//!
//! The first question comes with the image, the second goes on from the cached answer to it.
use ember::sampling::SamplingOptions;
use ember::{AnswerOptions, Model, ModelOptions, Progress, Reporter};
use std::ops::ControlFlow;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [path, image, projector @ ..] = &args[..] else {
        return Err("usage: chat_with_image MODEL IMAGE [PROJECTOR]".into());
    };
    let options = ModelOptions {
        projector: projector.first().map(Into::into),
        image_max_tokens: Some(1024),
        progress: Reporter::new(Box::new(|progress| {
            if let Progress::EncodingImage { nth, of, tokens } = progress {
                eprintln!("encoding image {nth} of {of} ({tokens} tokens)");
            }
            ControlFlow::Continue(())
        })),
        ..ModelOptions::default()
    };
    let mut model = Model::open(path, options)?;
    let image = model.vision()?.read(Path::new(image))?;

    let sampling = SamplingOptions { temperature: Some(0.2), seed: Some(1), ..SamplingOptions::default() };
    let mut session =
        model.session(AnswerOptions { sampling, max_tokens: Some(200), ..AnswerOptions::default() })?;
    session.system = Some("Answer in one sentence.".to_owned());
    for (question, images) in [("What is this?", &[image][..]), ("What colour is it?", &[])] {
        println!("> {question}");
        let answer = session.say(question, images)?.finish()?;
        println!("{}", answer.text);
        println!("[{} of {} prompt tokens cached]", answer.cached_tokens, answer.prompt_tokens);
    }
    Ok(())
}

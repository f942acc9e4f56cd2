//! The same prompt on every backend of this binary: `cargo run --release --features vulkan --example swap_backend -- model.gguf`
//!
//! A cargo feature compiles a backend in; one binary can hold several.
use ember::device::{BackendKind, DeviceOptions};
use ember::{AnswerOptions, Model, ModelOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: swap_backend MODEL")?;
    for &backend in BackendKind::COMPILED {
        let device = DeviceOptions { backend, ..DeviceOptions::default() };
        let mut model = match Model::open(&path, ModelOptions { device, ..ModelOptions::default() }) {
            Ok(model) => model,
            Err(error) => {
                println!("{backend}: {error}");
                continue;
            }
        };
        println!("{backend}: {}", model.description());
        let mut session =
            model.session(AnswerOptions { max_tokens: Some(32), ..AnswerOptions::default() })?;
        let answer = session.say("Count from one to ten.", &[])?.finish()?;
        println!("{}\n[{:.1} tokens/s]", answer.text, answer.decode_rate().unwrap_or_default());
    }
    Ok(())
}

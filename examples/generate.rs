//! Answers one question and streams the text: `cargo run --release --example generate -- model.gguf "Why is the sky blue?"`
use ember::{AnswerOptions, Model, ModelOptions};
use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: generate MODEL [QUESTION]")?;
    let question = args.next().unwrap_or_else(|| "Why is the sky blue?".to_owned());

    let mut model = Model::open(path, ModelOptions::default())?;
    let mut session = model.session(AnswerOptions::default())?;
    let mut answer = session.say(question, &[])?;
    for piece in &mut answer {
        print!("{}", piece?.content);
        std::io::stdout().flush()?;
    }
    let result = answer.finish()?;
    let rate = result.decode_rate().unwrap_or_default();
    println!("\n[{} tokens, {rate:.1} tokens/s, {:?}]", result.tokens.len(), result.ending);
    Ok(())
}

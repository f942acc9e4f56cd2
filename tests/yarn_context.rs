//! A context beyond the stated one, as YaRN allows it.
use ember::engine::{Sequence, Wanted};
use ember::{Error, Model, ModelFiles, ModelOptions};
use ember_loaders::checkpoint::Checkpoint;
use ember_loaders::gguf::{Gguf, Value};
use ember_test_support::{GgufFile, fixture};

/// The fixture qwen3-yarn (an original context of 1024, factor 4) with another stated context.
fn checkpoint(context_length: u32) -> Checkpoint {
    let gguf = Gguf::open(fixture("models/qwen3-yarn/f32.gguf")).expect("a committed fixture");
    let mut file = GgufFile::of(&gguf);
    for (key, value) in &mut file.metadata {
        if key == "qwen3.context_length" {
            *value = Value::from(context_length);
        }
    }
    Checkpoint::from_gguf(Gguf::from_bytes(file.into_bytes()).expect("a valid file"))
        .expect("a whole checkpoint")
}

fn open(context_length: u32, context_size: Option<usize>) -> Result<Model, Error> {
    let options = ModelOptions { context_size, ..ModelOptions::default() };
    ModelFiles::of_checkpoint(checkpoint(context_length), options)?.load()
}

#[test]
fn positions_beyond_the_stated_context_are_computed_as_within_it() {
    let tokens: Vec<u32> = (0..1500).map(|i| (i * 7919) % 288).collect();
    let logits = |context_length| {
        let mut model = open(context_length, Some(2048)).expect("YaRN reaches 4096");
        let mut sequence = Sequence::default();
        let output = model.engine().extend(&mut sequence, &tokens, Wanted::Last, &mut |_| true);
        output.expect("it fits").logits
    };
    assert_eq!(logits(1280), logits(4096));
}

#[test]
fn the_default_stays_within_the_stated_context() {
    let mut model = open(1280, None).expect("a small cache");
    assert_eq!(model.engine().context_size(), 1280);
    open(1280, Some(4096)).expect("1024 tokens stretched by 4");
    let error = open(1280, Some(4097)).map(drop).expect_err("beyond it").to_string();
    assert!(error.contains("4096") && error.contains("1280") && error.contains("1024 by 4"), "{error}");
}

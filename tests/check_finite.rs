//! Steps that name the place where a model's numbers break down.
use ember::device::KvType;
use ember::engine::{Engine, EngineError, Sequence, Wanted};
use ember::{Model, ModelFiles, ModelOptions};
use ember_loaders::checkpoint::Checkpoint;
use ember_loaders::gguf::Gguf;
use ember_models::{ModelError, StepPart};
use ember_test_support::Scripted;

/// Four layers, in which every matrix of attention and feed-forward holds this value throughout.
fn layers(value: f32) -> Scripted {
    let mut script = Scripted::new("llama").layers(4);
    for layer in 0..4 {
        for name in ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"] {
            script = script.fill(&format!("blk.{layer}.{name}.weight"), value);
        }
    }
    script
}

fn open(script: &Scripted, kv_type: KvType, check_finite: bool) -> Model {
    let gguf = Gguf::from_bytes(script.gguf().into_bytes()).expect("a valid file");
    let checkpoint = Checkpoint::from_gguf(gguf).expect("a whole checkpoint");
    let options = ModelOptions { kv_type, check_finite, ..ModelOptions::default() };
    ModelFiles::of_checkpoint(checkpoint, options).expect("it fits").load().expect("a CPU")
}

fn step(engine: &mut Engine, tokens: &[u32]) -> Result<Vec<f32>, EngineError> {
    let mut sequence = Sequence::default();
    let output = engine.extend(&mut sequence, tokens, Wanted::All, &mut |_| true);
    engine.truncate(&mut sequence, 0);
    Ok(output?.logits)
}

/// The part that a checked step of three tokens names, its row, and the message.
fn break_down(script: &Scripted, kv_type: KvType) -> (StepPart, usize, String) {
    let error = step(open(script, kv_type, true).engine(), &[7, 8, 9]).expect_err("numbers that break down");
    match &error {
        EngineError::Model(ModelError::BreakDown { part, row, position, .. }) if row == position => {
            (*part, *row, error.to_string())
        }
        other => panic!("{other}"),
    }
}

#[test]
fn the_first_part_that_breaks_down_is_named() {
    let good = layers(0.01);
    for (tensor, value, kv_type, part) in [
        ("token_embd", f32::INFINITY, KvType::F16, StepPart::Embeddings),
        // Within f32's range, beyond f16's.
        ("blk.1.attn_k", 1e4, KvType::F16, StepPart::Keys(1)),
        ("blk.2.attn_v", 1e4, KvType::F16, StepPart::Values(2)),
        ("blk.0.attn_v", 1e6, KvType::Q8_0, StepPart::Values(0)),
        ("blk.3.attn_output", 3e38, KvType::F32, StepPart::Attention(3)),
        ("blk.1.ffn_down", 3e38, KvType::F16, StepPart::FeedForward(1)),
        ("blk.2.ffn_up", f32::NAN, KvType::F16, StepPart::FeedForward(2)),
        ("output", 3e38, KvType::F16, StepPart::Head),
    ] {
        let script = good.clone().fill(&format!("{tensor}.weight"), value);
        let (found, row, message) = break_down(&script, kv_type);
        assert_eq!((found, row), (part, 0), "{tensor}: {message}");
        assert!(message.starts_with(&format!("{part}: ")), "{message}");
    }
    // Keys and values that are too large for f16 are not for other types.
    for tensor in ["blk.1.attn_k.weight", "blk.2.attn_v.weight"] {
        let script = good.clone().fill(tensor, 1e4);
        for kv_type in [KvType::F32, KvType::BF16, KvType::Q8_0] {
            step(open(&script, kv_type, true).engine(), &[7, 8, 9]).expect("it fits");
        }
    }
}

#[test]
fn the_message_names_layer_row_and_position() {
    let script = layers(0.01).fill("blk.1.ffn_down.weight", 3e38);
    let (_, _, message) = break_down(&script, KvType::F16);
    assert_eq!(
        message,
        "layer 1 (feed-forward output): the first value that is not finite there is inf, in row 0 of the step \
         (token position 0); the file is damaged or its values overflow"
    );
}

/// The row whose numbers break down, not the first of the step.
#[test]
fn the_row_is_the_one_at_fault() {
    let mut file = Scripted::new("llama").gguf();
    let (.., bytes) =
        file.tensors.iter_mut().find(|(name, ..)| name == "token_embd.weight").expect("it has one");
    let of_token_9 = 9 * 400 * 4;
    bytes[of_token_9..of_token_9 + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    let checkpoint = Checkpoint::from_gguf(Gguf::from_bytes(file.into_bytes()).expect("a valid file"));
    let options = ModelOptions { check_finite: true, ..ModelOptions::default() };
    let files = ModelFiles::of_checkpoint(checkpoint.expect("a whole checkpoint"), options).expect("it fits");
    let mut model = files.load().expect("a CPU");
    let error = step(model.engine(), &[7, 8, 9, 7]).expect_err("a NaN");
    let EngineError::Model(ModelError::BreakDown { part: StepPart::Embeddings, row: 2, position: 2, value }) =
        error
    else {
        panic!("{error}")
    };
    assert!(value.is_nan());
}

/// Hidden states beyond f16's range are none of its business: they are f32.
#[test]
fn large_hidden_states_are_no_fault() {
    let script = Scripted::new("llama").walk(&[7, 8, 9]);
    let mut file = script.gguf();
    let (.., bytes) =
        file.tensors.iter_mut().find(|(name, ..)| name == "token_embd.weight").expect("it has one");
    for element in bytes.chunks_exact_mut(4) {
        let value = f32::from_le_bytes(element.try_into().expect("four bytes"));
        element.copy_from_slice(&(value * 1e7).to_le_bytes());
    }
    let checkpoint = Checkpoint::from_gguf(Gguf::from_bytes(file.into_bytes()).expect("a valid file"));
    let options = ModelOptions { check_finite: true, ..ModelOptions::default() };
    let files = ModelFiles::of_checkpoint(checkpoint.expect("a whole checkpoint"), options).expect("it fits");
    let logits = step(files.load().expect("a CPU").engine(), &[7, 8]).expect("finite numbers");
    let next = |row: usize| {
        let row = &logits[row * 400..][..400];
        (0..400).max_by(|&a, &b| row[a].total_cmp(&row[b]))
    };
    assert_eq!((next(0), next(1)), (Some(8), Some(9)));
}

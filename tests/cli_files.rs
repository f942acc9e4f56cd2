//! Kinds of files: models with tensors that cannot be computed with, Mistral's folders, SentencePiece vocabularies.
mod cli_support;

use cli_support::{ember, ember_with, model, scratch};
use ember_loaders::gguf::{GgmlType, Value};
use ember_loaders::tokenizer::Tokenizer;
use ember_test_support::GgufFile;
use serde_json::json;
use std::path::Path;

/// The tiny Qwen2 model with one tensor's type changed in the header.
fn relabelled(name: &str, tensor: &str, id: u32) -> String {
    let mut bytes = std::fs::read(model("qwen2/f32.gguf")).unwrap();
    let found = bytes.windows(tensor.len()).rposition(|window| window == tensor.as_bytes()).unwrap();
    let dims = found + tensor.len();
    let n_dims = u32::from_le_bytes(bytes[dims..dims + 4].try_into().unwrap()) as usize;
    let at = dims + 4 + 8 * n_dims;
    bytes[at..at + 4].copy_from_slice(&id.to_le_bytes());
    let path = scratch(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn files_that_cannot_run_can_be_looked_at() {
    for (id, name, bytes) in
        [(39, "MXFP4", "bytes"), (24, "I8", "bytes"), (99, "unknown type 99", "size unknown")]
    {
        let file = relabelled(&format!("type-{id}.gguf"), "blk.0.ffn_up.weight", id);
        let info = ember(&["info", &file]).ok();
        let line = info.stdout.lines().find(|line| line.contains("blk.0.ffn_up.weight")).unwrap();
        assert!(line.contains(name) && line.contains(bytes), "{line}");
        let json = ember(&["info", "--json", &file]).ok().json();
        let tensors = json["tensors"].as_array().unwrap();
        let tensor = tensors.iter().find(|tensor| tensor["name"] == "blk.0.ffn_up.weight").unwrap();
        assert_eq!((&tensor["type"], tensor["bytes"].is_null()), (&name.into(), id == 99));

        let tokens = ember(&["tokenize", "-m", &file, "is the end of it", "--json"]).ok().json();
        assert_eq!(tokens["tokens"], json!([273, 264, 223, 270, 70, 282, 223, 274]));
        let messages = r#"[{"role": "user", "content": "hi"}]"#;
        let rendered = ember_with(&["render", "-m", &file, "-"], messages).ok().stdout;
        assert!(rendered.starts_with("<|im_start|>user\nhi<|im_end|>"), "{rendered}");

        let run = ember(&["run", "-m", &file, "hi"]);
        assert_eq!((run.status, run.stdout.as_str()), (1, ""));
        let expected =
            format!("tensor blk.0.ffn_up.weight is of type {name}, which cannot be computed with:");
        assert!(run.stderr.contains(&expected), "{}", run.stderr);
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |group: &[u8]| {
        let bits = group.iter().chain(&[0, 0]).take(3).fold(0, |bits, &byte| bits << 8 | usize::from(byte));
        let digit =
            |i: usize| if i <= group.len() { char::from(DIGITS[bits >> (18 - 6 * i) & 63]) } else { '=' };
        [0, 1, 2, 3].map(digit)
    };
    bytes.chunks(3).flat_map(group).collect()
}

/// The vocabulary of a folder as tekken.json.
fn tekken_json(folder: &Path) -> String {
    let tokenizer = Tokenizer::from_folder(folder).unwrap();
    let special: Vec<_> = tokenizer
        .control_tokens()
        .map(|(text, id)| json!({"rank": id, "token_str": text, "is_control": true}))
        .collect();
    let size = tokenizer.vocab_size();
    let bytes = |rank: usize| tokenizer.token_bytes((special.len() + rank) as u32).unwrap();
    let vocab: Vec<_> = (0..size - special.len())
        .map(|rank| json!({"rank": rank, "token_bytes": base64(bytes(rank)), "token_str": null}))
        .collect();
    let file = std::fs::read_to_string(folder.join("tokenizer.json")).unwrap();
    let file: serde_json::Value = serde_json::from_str(&file).unwrap();
    json!({
        "config": {
            "pattern": file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"],
            "default_vocab_size": size, "default_num_special_tokens": special.len(), "version": "v13",
        },
        "vocab": vocab, "special_tokens": special,
    })
    .to_string()
}

#[test]
fn a_folder_with_tekken_json_answers_like_the_one_with_tokenizer_json() {
    let original = model("ministral3-short/hf");
    let folder = scratch("tekken-folder");
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["config.json", "model.safetensors", "tokenizer_config.json"] {
        std::fs::copy(Path::new(&original).join(name), folder.join(name)).unwrap();
    }
    std::fs::write(folder.join("tekken.json"), tekken_json(Path::new(&original))).unwrap();
    let path = folder.to_str().unwrap();
    let answer =
        |path| ember(&["run", "-m", path, "--json", "--max-tokens", "8", "What is the time?"]).ok().json();
    let (ours, expected) = (answer(path), answer(&original));
    assert_eq!((&ours["text"], &ours["prompt_tokens"]), (&expected["text"], &expected["prompt_tokens"]));

    // Mistral's own layout has no config.json: its vocabulary can be used, the weights cannot.
    std::fs::rename(folder.join("config.json"), folder.join("params.json")).unwrap();
    std::fs::rename(folder.join("model.safetensors"), folder.join("consolidated.safetensors")).unwrap();
    let tokens = |path| ember(&["tokenize", "-m", path, "--json", "What is the time?"]).ok().json();
    assert_eq!(tokens(path), tokens(&original));
    let run = ember(&["run", "-m", path, "hi"]);
    assert_eq!((run.status, run.stdout.as_str()), (1, ""));
    assert!(
        run.stderr.contains("has params.json but no config.json: Mistral's own layout is not supported"),
        "{}",
        run.stderr
    );
}

/// Pieces of the scripted model, behind the 3 special ones, `[INST]`, `[/INST]` and the bytes.
const PIECES: [&str; 8] = ["▁", "H", "i", "Hi", "▁Hi", "▁so", "▁long", "a"];

/// A model whose every token is followed by one certain other: its answer to anything that ends in `Hi` or `[/INST]` is
/// ` so long`.
fn scripted() -> GgufFile {
    let special = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"].map(str::to_owned);
    let bytes = (0..=u8::MAX).map(|byte| format!("<{byte:#04X}>"));
    let tokens: Vec<String> = special.into_iter().chain(bytes).chain(PIECES.map(str::to_owned)).collect();
    let id = |text: &str| tokens.iter().position(|token| token == text).unwrap();
    let kinds = [2, 3, 3, 3, 3].into_iter().chain([6; 256]).chain([1; PIECES.len()]).collect::<Vec<i32>>();
    let scores: Vec<f32> = (0..tokens.len()).map(|id| -(id as f32)).collect();
    let n = tokens.len().next_multiple_of(32);

    let mut next = vec![id("</s>"); tokens.len()];
    for (before, after) in [("▁Hi", "▁so"), ("[/INST]", "▁so"), ("▁so", "▁long")] {
        next[id(before)] = id(after);
    }
    let matrix = |rows: usize, cols: usize, one: &dyn Fn(usize, usize) -> bool| {
        let values = (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col)));
        values.flat_map(|(row, col)| f32::from(one(row, col)).to_le_bytes()).collect::<Vec<u8>>()
    };
    let mut file = GgufFile::default();
    let mut key = |key: &str, value: Value| file.metadata.push((key.to_owned(), value));
    key("general.architecture", "llama".into());
    for (name, value) in [
        ("block_count", 1),
        ("embedding_length", n),
        ("feed_forward_length", 32),
        ("context_length", 64),
        ("attention.head_count", 1),
        ("attention.head_count_kv", 1),
        ("attention.key_length", 32),
        ("attention.value_length", 32),
        ("rope.dimension_count", 32),
    ] {
        key(&format!("llama.{name}"), (value as u32).into());
    }
    key("llama.attention.layer_norm_rms_epsilon", 1e-5_f32.into());
    key("tokenizer.ggml.model", "llama".into());
    key("tokenizer.ggml.tokens", tokens.clone().into());
    key("tokenizer.ggml.scores", scores.into());
    key("tokenizer.ggml.token_type", kinds.into());
    key("tokenizer.ggml.bos_token_id", 1_u32.into());
    key("tokenizer.ggml.eos_token_id", 2_u32.into());
    key(
        "tokenizer.chat_template",
        "{{ bos_token }}{% for m in messages %}[INST] {{ m.content }}[/INST]{% endfor %}".into(),
    );
    let zeros = |_, _| false;
    for (name, dims, bytes) in [
        ("token_embd.weight", vec![n, tokens.len()], matrix(tokens.len(), n, &|row, col| row == col)),
        (
            "output.weight",
            vec![n, tokens.len()],
            matrix(tokens.len(), n, &|row, col| next.get(col) == Some(&row)),
        ),
        ("output_norm.weight", vec![n], matrix(1, n, &|_, _| true)),
        ("blk.0.attn_norm.weight", vec![n], matrix(1, n, &|_, _| true)),
        ("blk.0.ffn_norm.weight", vec![n], matrix(1, n, &|_, _| true)),
        ("blk.0.attn_q.weight", vec![n, 32], matrix(32, n, &zeros)),
        ("blk.0.attn_k.weight", vec![n, 32], matrix(32, n, &zeros)),
        ("blk.0.attn_v.weight", vec![n, 32], matrix(32, n, &zeros)),
        ("blk.0.attn_output.weight", vec![32, n], matrix(n, 32, &zeros)),
        ("blk.0.ffn_gate.weight", vec![n, 32], matrix(32, n, &zeros)),
        ("blk.0.ffn_up.weight", vec![n, 32], matrix(32, n, &zeros)),
        ("blk.0.ffn_down.weight", vec![32, n], matrix(n, 32, &zeros)),
    ] {
        file.tensors.push((name.to_owned(), GgmlType::F32, dims, bytes));
    }
    file
}

#[test]
fn a_sentencepiece_models_answer_continues_its_prompt() {
    let path = scratch("scripted.gguf");
    std::fs::write(&path, scripted().into_bytes()).unwrap();
    let file = path.to_str().unwrap();
    let text =
        |args: &[&str]| ember(&[&["run", "-m", file, "--json"], args].concat()).ok().json()["text"].clone();
    // Behind text the answer brings the space between; behind a control token it begins a text.
    assert_eq!(text(&["--raw", "Hi"]), " so long");
    assert_eq!(text(&["--raw", "[INST]Hi[/INST]"]), "so long");
    assert_eq!(text(&["Hi"]), "so long");

    let tokens = ember(&["tokenize", "-m", file, "--json", "Hi"]).ok().json();
    assert_eq!(tokens, json!({"tokens": [1, 265], "pieces": ["<s>", " Hi"]}));
    assert_eq!(ember(&["detokenize", "-m", file, "265", "266", "267"]).ok().stdout, "Hi so long");
    let messages = r#"[{"role": "user", "content": "Hi"}]"#;
    let rendered = ember_with(&["render", "-m", file, "-", "--json"], messages).ok().json();
    assert_eq!(rendered["text"], "<s>[INST] Hi[/INST]");
    assert_eq!(rendered["tokens"], json!([1, 3, 265, 4]));
}

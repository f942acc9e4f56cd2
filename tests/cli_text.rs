//! The commands that do not run a model: info, tokenize, detokenize, render; and how mistakes are reported.
mod cli_support;

use cli_support::{ember, ember_with, model, scratch};
use serde_json::json;

const CHAT_IDS: [u32; 18] = [1, 87, 85, 265, 201, 74, 75, 2, 201, 1, 67, 85, 85, 273, 86, 280, 86, 201];
const CHAT_TEXT: &str = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";

#[test]
fn info_as_json_has_every_key_and_tensor() {
    let info = ember(&["info", "--json", &model("qwen3-tied/f32.gguf")]).ok().json();
    assert_eq!(info["version"], 3);
    assert_eq!(info["metadata"].as_object().unwrap().len(), 24);
    assert_eq!(info["metadata"]["qwen3.attention.key_length"], 32);
    assert_eq!(info["metadata"]["qwen3.attention.layer_norm_rms_epsilon"], 1e-6);
    assert_eq!(info["metadata"]["tokenizer.ggml.tokens"].as_array().unwrap().len(), 288);
    let tensors = info["tensors"].as_array().unwrap();
    assert_eq!(tensors.len(), 24);
    let q = tensors.iter().find(|t| t["name"] == "blk.0.attn_q.weight").unwrap();
    assert_eq!(*q, json!({"name": "blk.0.attn_q.weight", "type": "F32", "dims": [64, 128], "bytes": 32768}));
}

#[test]
fn info_as_text_shortens_arrays_only() {
    let short = ember(&["info", &model("qwen3-tied/q8_0.gguf")]).ok();
    let tokens = short.stdout.lines().find(|line| line.contains("tokenizer.ggml.tokens ")).unwrap();
    assert_eq!(
        tokens,
        "  tokenizer.ggml.tokens (array of 288 string): [\"<|endoftext|>\", \"<|im_start|>\", \"<|im_end|>\", \"!\", \
         \"\\\"\", \"#\", \"$\", \"%\", \"&\", \"'\", \"(\", \")\", \"*\", \"+\", \",\", \"-\", ... 272 more]"
    );
    let info = ember(&["info", "--full", &model("qwen3-tied/q8_0.gguf")]).ok();
    let but_arrays = |text: &str| {
        text.lines().filter(|line| !line.contains("(array of ")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(but_arrays(&short.stdout), but_arrays(&info.stdout));
    assert!(info.stdout.contains("\nmetadata: 24 keys\n"), "{}", info.stdout);
    assert!(info.stdout.contains("\ntensors: 24\n"));
    assert!(
        info.stdout
            .contains("  tokenizer.ggml.tokens (array of 288 string): [\"<|endoftext|>\", \"<|im_start|>\"")
    );
    assert!(info.stdout.contains("\"<tool_call>\", \"</tool_call>\"]\n"));
    let tensor_lines = info.stdout.lines().filter(|line| line.contains(" bytes  [")).count();
    assert_eq!(tensor_lines, 24);
    let gate = info.stdout.lines().find(|line| line.contains("blk.1.ffn_gate.weight")).unwrap();
    assert_eq!(
        gate.split_whitespace().collect::<Vec<_>>().join(" "),
        "blk.1.ffn_gate.weight Q8_0 6528 bytes [64, 96]"
    );
}

#[test]
fn tokens_equal_those_of_hugging_face() {
    let qwen = model("qwen2/f32.gguf");
    let run = ember(&["tokenize", "-m", &qwen, "is the end of it", "--json"]).ok().json();
    assert_eq!(run["tokens"], json!([273, 264, 223, 270, 70, 282, 223, 274]));
    assert_eq!(run["pieces"], json!(["is", " the", " ", "en", "d", " of", " ", "it"]));
    let special = ember(&["tokenize", "-m", &qwen, "--special", "--json", CHAT_TEXT]).ok().json();
    assert_eq!(special["tokens"], json!(CHAT_IDS));
    let plain = ember(&["tokenize", "-m", &qwen, "--json", CHAT_TEXT]).ok().json();
    let control = |id: &serde_json::Value| [json!(1), json!(2)].contains(id);
    assert!(!plain["tokens"].as_array().unwrap().iter().any(control), "user text became a control token");
}

#[test]
fn bos_comes_once_and_can_be_left_out() {
    let ministral = model("ministral3/f32.gguf");
    let tokens = |args: &[&str]| {
        ember(&[&["tokenize", "--json", "-m", &ministral], args].concat()).ok().json()["tokens"].clone()
    };
    assert_eq!(tokens(&["a"]), json!([1, 84]));
    assert_eq!(tokens(&["a", "--no-bos"]), json!([84]));
    assert_eq!(tokens(&["<s>a", "--special"]), json!([1, 84]));
}

#[test]
fn text_survives_the_way_to_ids_and_back() {
    let qwen = model("qwen2/f32.gguf");
    let text = "é ö\n\tüber <think>日本\r\n🙂 the end\n";
    let lines = ember_with(&["tokenize", "-m", &qwen], text).ok().stdout;
    assert!(lines.starts_with("130\tb\"\\xc3\"\n105\tb\"\\xa9\"\n"), "{lines}");
    let ids: Vec<&str> = lines.lines().map(|line| line.split_once('\t').unwrap().0).collect();
    assert_eq!(ember(&[&["detokenize", "-m", &qwen], ids.as_slice()].concat()).ok().stdout, text);
    assert_eq!(ember_with(&["detokenize", "-m", &qwen], &ids.join(", ")).ok().stdout, text);
}

#[test]
fn a_folder_tokenizes_like_the_file() {
    let run = ember(&["tokenize", "-m", &model("qwen2/hf"), "is the end of it", "--json"]).ok().json();
    assert_eq!(run["tokens"], json!([273, 264, 223, 270, 70, 282, 223, 274]));
}

#[test]
fn messages_are_rendered_with_the_models_template() {
    let (qwen, messages) = (model("qwen2/f32.gguf"), r#"[{"role": "user", "content": "hi"}]"#);
    assert_eq!(ember_with(&["render", "-m", &qwen, "-"], messages).ok().stdout, CHAT_TEXT);
    let run = ember_with(&["render", "-m", &qwen, "-", "--json"], messages).ok().json();
    assert_eq!(run, json!({"text": CHAT_TEXT, "tokens": CHAT_IDS}));
    let closed = ember_with(&["render", "-m", &qwen, "-", "--no-generation-prompt"], messages).ok().stdout;
    assert_eq!(closed, "<|im_start|>user\nhi<|im_end|>\n");
    let switch = ember_with(&["render", "-m", &qwen, "-", "--think"], messages);
    assert_eq!(switch.status, 1);
    assert!(switch.stderr.contains("has no switch (enable_thinking)"), "{}", switch.stderr);
}

#[test]
fn a_message_cannot_smuggle_control_tokens_in() {
    let messages = r#"[{"role": "user", "content": "a<|im_end|>b"}]"#;
    let run = ember_with(&["render", "-m", &model("qwen2/f32.gguf"), "-", "--json"], messages).ok().json();
    let ends = run["tokens"].as_array().unwrap().iter().filter(|id| **id == 2).count();
    assert_eq!(ends, 1, "only the template's own <|im_end|> is one");
    assert!(run["text"].as_str().unwrap().contains("a<|im_end|>b"));
}

#[test]
fn mistakes_in_the_arguments_are_usage_errors() {
    let qwen = model("qwen2/f32.gguf");
    for (args, message) in [
        (vec!["tokenise"], "unrecognized subcommand 'tokenise'"),
        (vec!["run", "hi"], "--model <MODEL>"),
        (vec!["run", "-m", &qwen, "hi", "-p", "ho"], "cannot be used with"),
        (vec!["run", "-m", &qwen, "--ctx-size", "0", "hi"], "must be at least 1"),
        (vec!["run", "-m", &qwen, "--kv-cache-dtype", "q4_0", "hi"], "possible values: f16, bf16, f32, q8_0"),
        (vec!["run", "-m", &qwen, "--raw", "--think", "hi"], "cannot be used with"),
        (vec!["logits", "-m", &qwen, "--out", "x"], "--tokens <IDS>"),
        (vec!["logits", "-m", &qwen, "--out", "x", "--tokens", "1,b"], "`b` is not a token id"),
        (vec!["detokenize", "-m", &qwen, "b"], "`b` is not a token id"),
    ] {
        let run = ember(&args);
        assert_eq!(run.status, 2, "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains(message), "{args:?}: {}", run.stderr);
        assert_eq!(run.stdout, "");
    }
}

#[test]
fn failures_name_the_thing_and_exit_with_1() {
    let (qwen, page) = (model("qwen2/f32.gguf"), scratch("page.gguf"));
    std::fs::write(&page, "<!DOCTYPE html><html><body>Not found</body></html>").unwrap();
    let page = page.to_str().unwrap();
    for (args, message) in [
        (vec!["info", "absent.gguf"], "absent.gguf: cannot open: No such file"),
        (vec!["info", page], "page.gguf"),
        (vec!["run", "-m", page, "hi"], "page.gguf"),
        (vec!["detokenize", "-m", &qwen, "288"], "token id 288 is outside the vocabulary of 288 tokens"),
        (vec!["render", "-m", &qwen, "absent.json"], "cannot read absent.json: No such file"),
        (vec!["run", "-m", &qwen, "--temp", "-1", "hi"], "temperature is -1"),
        (vec!["run", "-m", &qwen, "--no-think", "hi"], "has no switch (enable_thinking)"),
        (
            vec!["run", "-m", &qwen, "--ctx-size", "5000", "hi"],
            "a context of 5000 tokens is beyond the 4096 that the model allows: lower --ctx-size",
        ),
        (
            vec!["run", "-m", &qwen, "--ctx-size", "8", "hi"],
            "the prompt has 18 tokens and the context holds 8: raise --ctx-size (up to 4096)",
        ),
    ] {
        let run = ember(&args);
        assert_eq!(run.status, 1, "{args:?}: {}", run.stderr);
        assert!(
            run.stderr.starts_with("error: ") && run.stderr.contains(message),
            "{args:?}: {}",
            run.stderr
        );
        assert!(run.stderr.matches("No such file").count() <= 1, "{}", run.stderr);
        assert_eq!(run.stdout, "");
    }
}

#[test]
fn help_and_version_go_to_stdout() {
    let version = ember(&["--version"]).ok();
    assert_eq!(version.stdout, concat!("ember ", env!("CARGO_PKG_VERSION"), "\n"));
    for command in ["run", "chat", "info", "tokenize", "detokenize", "render", "logits"] {
        let help = ember(&[command, "--help"]).ok();
        assert!(help.stdout.contains("Examples:") && help.stderr.is_empty(), "{command}: {}", help.stdout);
    }
    assert_eq!(ember(&[]).status, 2);
}

#[test]
fn info_reads_projectors_of_both_layouts() {
    let vision = |file| cli_support::fixture(&format!("vision/{file}"));
    for (file, layout, activation, named) in [
        ("gelu-2/mmproj-f32.gguf", "llama.cpp", "GELU", true),
        ("silu-2/mmproj-q8_0.gguf", "llama.cpp", "SiLU", true),
        ("gelu-2/mmproj-ollama-f32.gguf", "Ollama", "GELU", false),
        ("gelu-2/ollama-f16.gguf", "Ollama", "GELU", false),
    ] {
        let info = ember(&["info", "--json", &vision(file)]).ok().json()["projector"].clone();
        let text_width = if file.starts_with("gelu") { 96 } else { 64 };
        let expected = json!({
            "type": "pixtral", "layout": layout, "layers": 3, "width": 32, "heads": 2, "patch_size": 14,
            "merge_size": 2, "image_size": 560, "max_image_tokens": 420, "activation": activation,
            "activation_named": named, "text_width": text_width,
        });
        assert_eq!(info, expected, "{file}");
    }
    let text = ember(&["info", &vision("silu-1/mmproj-f32.gguf")]).ok().stdout;
    let summary = "projector: pixtral, llama.cpp layout, 3 layers of width 32 with 2 heads, SiLU\n\
                   images: up to 1024 pixels a side and 4160 tokens, patches of 16 pixels, merged 1 x 1\n\
                   for text models of width 64\n";
    assert!(text.contains(summary), "{text}");
    let model = ember(&["info", "--json", &vision("gelu-2/text-f32.gguf")]).ok().json();
    assert_eq!(model["projector"], json!(null));
}

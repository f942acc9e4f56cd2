//! A model with a tensor that cannot be computed with: everything but running it works.
mod cli_support;

use cli_support::{ember, ember_with, model, scratch};

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
        assert_eq!(tokens["tokens"], serde_json::json!([273, 264, 223, 270, 70, 282, 223, 274]));
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

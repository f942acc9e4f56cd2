//! The number of threads changes no bit of a result. Each count needs a process of its own: the pool is global.
mod cli_support;

use cli_support::{ember, model, scratch};

#[test]
fn logits_are_the_same_for_any_number_of_threads() {
    let tokens: Vec<String> = (0..260).map(|i| (i * 37 % 288).to_string()).collect();
    for file in ["qwen3-tied/q8_0.gguf", "ministral3/f16.gguf", "blocks-256/q4_k.gguf"] {
        let logits = |threads: &str, kv: &str| {
            let out = scratch(&format!("{threads}-{kv}.safetensors"));
            let (model, path) = (model(file), out.to_str().expect("a UTF-8 path").to_owned());
            let args = ["--threads", threads, "--kv-cache-dtype", kv, "--out", &path];
            ember(&[&["logits", "-m", &model, "--tokens", &tokens.join(",")], &args[..]].concat()).ok();
            let bytes = std::fs::read(&out).expect("it was written");
            std::fs::remove_file(out).expect("it was written");
            bytes
        };
        let one = logits("1", "f16");
        for threads in ["2", "3", "7"] {
            assert!(one == logits(threads, "f16"), "{file} with {threads} threads");
        }
        assert!(one != logits("1", "f32"), "the comparison sees another cache type");
    }
}

//! SmolLM2-135M against llama.cpp. Needs EMBER_REFERENCE_DIR (see CONTRIBUTING.md).
mod real_support;

use std::process::Command;

const SMOLLM2: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

#[test]
fn agrees_with_llama_cpp() {
    real_support::assert_agrees(SMOLLM2, "smollm2-135m-q4_1.safetensors");
}

#[test]
fn knows_the_capital_of_france() {
    let output = Command::new(env!("CARGO_BIN_EXE_ember"))
        .args(["run", "--backend", "ndarray", "--raw", "--max-tokens", "8", "-m"])
        .arg(real_support::model(SMOLLM2))
        .arg("The capital of France is")
        .output()
        .expect("the binary runs");
    let answer = String::from_utf8(output.stdout).expect("streamed text is UTF-8");
    assert!(answer.starts_with(" Paris"), "{answer}");
}

#[test]
fn memory_is_the_file_and_the_cache() {
    real_support::assert_memory_is_bounded(SMOLLM2);
}

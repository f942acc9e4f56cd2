//! Qwen2.5-Coder-0.5B against llama.cpp: K-quants and Q/K/V biases on real weights. Its file is half a gigabyte, so it
//! stands behind a feature of its own. Needs EMBER_REFERENCE_DIR (see CONTRIBUTING.md).
mod real_support;

const QWEN: &str = "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf";

#[test]
fn agrees_with_llama_cpp() {
    real_support::assert_agrees(QWEN, "qwen2.5-coder-0.5b-q4_k_m.safetensors");
}

#[test]
fn memory_is_the_file_and_the_cache() {
    real_support::assert_memory_is_bounded(QWEN);
}

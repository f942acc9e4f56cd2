#![no_main]

#[path = "../entries/gguf.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::fuzz_gguf(data));

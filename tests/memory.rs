//! Memory that opening a model takes. Alone in its process: other tests would count.
#![cfg(all(feature = "ndarray", target_os = "linux"))]

use ember::device::{BackendKind, DeviceOptions, KvType};
use ember::{AnswerOptions, Model, ModelOptions};
use std::path::PathBuf;

/// Tokens of context: a gigabyte of f16 keys and values in the fixture's shape.
const CONTEXT: u32 = 8 << 20;

/// A copy of a fixture with a context of [`CONTEXT`] tokens.
fn long_context_model() -> PathBuf {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/models/qwen2/f32.gguf");
    let mut bytes = std::fs::read(path).expect("a committed fixture");
    let key = b"qwen2.context_length";
    let at = bytes.windows(key.len()).position(|window| window == key).expect("a key that all models have");
    // The type, u32, lies between key and value.
    let value = at + key.len() + 4;
    bytes[value..value + 4].copy_from_slice(&CONTEXT.to_le_bytes());
    let copy = std::env::temp_dir().join(format!("ember-memory-{}.gguf", std::process::id()));
    std::fs::write(&copy, bytes).expect("a writable folder");
    copy
}

/// Resident memory of this process.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line of its own");
    let kib = line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number");
    kib * 1024
}

/// The cache of the whole context takes a gigabyte and more, of which one answer touches a few kilobytes. The limit leaves
/// room for the table of the cache's blocks, which grows with the context too.
#[test]
fn a_cache_counts_when_it_is_used() {
    const LIMIT: usize = 100 << 20;
    let path = long_context_model();
    for kv_type in [KvType::F16, KvType::F32] {
        let before = resident_bytes();
        let device = DeviceOptions { backend: BackendKind::Ndarray, device: 0, threads: None };
        let context_size = Some(CONTEXT as usize);
        let options = ModelOptions { device, context_size, kv_type, ..ModelOptions::default() };
        let mut model = Model::open(&path, options).expect("the memory is there");
        let cache = model.engine().runner().kv_bytes();
        assert!(cache > 5 * LIMIT, "{kv_type}: {cache} bytes of cache show nothing");
        let opened = resident_bytes().saturating_sub(before);
        assert!(opened < LIMIT, "{kv_type}: {opened} bytes resident after opening, of {cache} of cache");
        let limited = AnswerOptions { max_tokens: Some(4), ..AnswerOptions::default() };
        let mut session = model.session(limited).expect("greedy");
        session.say("hello there", &[]).expect("it fits").finish().expect("a healthy model");
        let used = resident_bytes().saturating_sub(before);
        assert!(used < LIMIT, "{kv_type}: {used} bytes resident after an answer, of {cache} of cache");
    }
    std::fs::remove_file(path).expect("it was written");
}

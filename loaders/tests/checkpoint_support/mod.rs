//! Tiny GGUF models made in memory, one property at a time away from a valid one.
#![allow(dead_code, reason = "each test file uses its own part")]

pub mod folder;

use ember_loaders::checkpoint::{Checkpoint, CheckpointError};
use ember_loaders::gguf::{GgmlType, Gguf, Value};
use ember_test_support::GgufFile;

pub const LAYERS: usize = 2;
pub const HIDDEN: usize = 32;
pub const FFN: usize = 48;
pub const HEADS: usize = 4;
pub const KV_HEADS: usize = 2;
/// Not `HIDDEN / HEADS`.
pub const HEAD_DIM: usize = 16;

/// Metadata and tensors (F32, every element 1) of a model file.
pub struct TinyModel {
    label: String,
    metadata: Vec<(String, Value)>,
    tensors: Vec<(String, Vec<usize>, f32)>,
    /// Tensors whose type is said to be another one, by its id.
    relabelled: Vec<(String, u32)>,
}

impl TinyModel {
    /// Neither keys nor tensors; `label` is what [`set`](Self::set) puts before a key.
    pub fn empty(label: &str) -> Self {
        Self { label: label.to_owned(), metadata: Vec::new(), tensors: Vec::new(), relabelled: Vec::new() }
    }

    /// A dense model without Q/K norms and biases, of 10 tokens.
    pub fn dense(label: &str) -> Self {
        let tokens: Vec<String> = (0..10).map(|id| format!("token {id}")).collect();
        let model = Self::empty(label)
            .key("general.architecture", label)
            .key("general.name", "Tiny")
            .set("block_count", LAYERS as u32)
            .set("embedding_length", HIDDEN as u32)
            .set("feed_forward_length", FFN as u32)
            .set("context_length", 4096_u32)
            .set("attention.head_count", HEADS as u32)
            .set("attention.head_count_kv", KV_HEADS as u32)
            .set("attention.key_length", HEAD_DIM as u32)
            .set("attention.value_length", HEAD_DIM as u32)
            .set("attention.layer_norm_rms_epsilon", 1e-5_f32)
            .set("rope.freq_base", 1e6_f32)
            .key("tokenizer.ggml.pre", "default")
            .key("tokenizer.ggml.tokens", tokens)
            .tensor("token_embd.weight", &[HIDDEN, 10])
            .tensor("output.weight", &[HIDDEN, 10])
            .tensor("output_norm.weight", &[HIDDEN]);
        let (q, kv) = (HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM);
        model
            .in_blocks("attn_norm.weight", &[HIDDEN])
            .in_blocks("attn_q.weight", &[HIDDEN, q])
            .in_blocks("attn_k.weight", &[HIDDEN, kv])
            .in_blocks("attn_v.weight", &[HIDDEN, kv])
            .in_blocks("attn_output.weight", &[q, HIDDEN])
            .in_blocks("ffn_norm.weight", &[HIDDEN])
            .in_blocks("ffn_gate.weight", &[HIDDEN, FFN])
            .in_blocks("ffn_up.weight", &[HIDDEN, FFN])
            .in_blocks("ffn_down.weight", &[FFN, HIDDEN])
    }

    pub fn qwen3() -> Self {
        let model = Self::dense("qwen3");
        model.in_blocks("attn_q_norm.weight", &[HEAD_DIM]).in_blocks("attn_k_norm.weight", &[HEAD_DIM])
    }

    pub fn qwen2() -> Self {
        Self::dense("qwen2").qkv_biases()
    }

    pub fn qkv_biases(self) -> Self {
        self.in_blocks("attn_q.bias", &[HEADS * HEAD_DIM])
            .in_blocks("attn_k.bias", &[KV_HEADS * HEAD_DIM])
            .in_blocks("attn_v.bias", &[KV_HEADS * HEAD_DIM])
    }

    /// Ministral 3's rotary and query-scale keys, under the names llama.cpp's converter writes.
    pub fn ministral3() -> Self {
        Self::dense("mistral3")
            .set("context_length", 262144_u32)
            .set("rope.scaling.type", "yarn")
            .set("rope.scaling.factor", 16.0_f32)
            .set("rope.scaling.original_context_length", 16384_u32)
            .set("rope.scaling.yarn_beta_fast", 32.0_f32)
            .set("rope.scaling.yarn_beta_slow", 1.0_f32)
            .set("rope.scaling.yarn_log_multiplier", 1.0_f32)
            .set("attention.temperature_scale", 0.1_f32)
    }

    /// Mistral Small 3.x as files were labelled before llama.cpp knew `mistral3`.
    pub fn mistral_small_labelled_llama() -> Self {
        let tokens = [
            "<unk>",
            "<s>",
            "</s>",
            "[INST]",
            "[/INST]",
            "[SYSTEM_PROMPT]",
            "[/SYSTEM_PROMPT]",
            "a",
            "b",
            "c",
        ];
        Self::dense("llama")
            .key("tokenizer.ggml.pre", "tekken")
            .key("tokenizer.ggml.tokens", tokens.map(str::to_owned).to_vec())
    }

    /// Sets `{label}.{suffix}`.
    pub fn set(self, suffix: &str, value: impl Into<Value>) -> Self {
        let key = format!("{}.{suffix}", self.label);
        self.key(&key, value)
    }

    /// Sets a key by its full name.
    pub fn key(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.metadata.retain(|(name, _)| name != key);
        self.metadata.push((key.to_owned(), value.into()));
        self
    }

    /// The full names of all keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.metadata.iter().map(|(key, _)| key.as_str())
    }

    /// Removes `{label}.{suffix}`.
    pub fn unset(mut self, suffix: &str) -> Self {
        let key = format!("{}.{suffix}", self.label);
        self.metadata.retain(|(name, _)| *name != key);
        self
    }

    pub fn tensor(self, name: &str, dims: &[usize]) -> Self {
        self.filled(name, dims, 1.0)
    }

    pub fn filled(mut self, name: &str, dims: &[usize], value: f32) -> Self {
        self = self.without(name);
        self.tensors.push((name.to_owned(), dims.to_vec(), value));
        self
    }

    /// Changes the type that the file says a tensor has, to one of smaller elements; its data stays.
    pub fn typed(mut self, name: &str, id: u32) -> Self {
        self.relabelled.push((name.to_owned(), id));
        self
    }

    pub fn in_blocks(self, suffix: &str, dims: &[usize]) -> Self {
        (0..LAYERS).fold(self, |model, layer| model.tensor(&format!("blk.{layer}.{suffix}"), dims))
    }

    pub fn without(mut self, name: &str) -> Self {
        self.tensors.retain(|(other, ..)| other != name);
        self
    }

    pub fn without_tensors(mut self) -> Self {
        self.tensors.clear();
        self
    }

    pub fn open(&self) -> Result<Checkpoint, CheckpointError> {
        Checkpoint::from_gguf(self.gguf())
    }

    /// The file.
    pub fn gguf(&self) -> Gguf {
        let tensors = self.tensors.iter().map(|(name, dims, value)| {
            let bytes = value.to_le_bytes().repeat(dims.iter().product());
            (name.clone(), GgmlType::F32, dims.clone(), bytes)
        });
        let file = GgufFile { metadata: self.metadata.clone(), tensors: tensors.collect() };
        let mut bytes = file.into_bytes();
        for (name, id) in &self.relabelled {
            relabel(&mut bytes, name, *id);
        }
        Gguf::from_bytes(bytes).unwrap()
    }

    /// The message with which the model is refused.
    #[track_caller]
    pub fn refusal(&self) -> String {
        match self.open() {
            Ok(checkpoint) => panic!("accepted as {:?}", checkpoint.config()),
            Err(error) => error.to_string(),
        }
    }
}

/// Overwrites the type of a tensor in a file's header.
pub fn relabel(file: &mut [u8], name: &str, id: u32) {
    let written = [&(name.len() as u64).to_le_bytes(), name.as_bytes()].concat();
    let found = file.windows(written.len()).rposition(|window| window == written).unwrap();
    let dims = found + written.len();
    let n_dims = u32::from_le_bytes(file[dims..dims + 4].try_into().unwrap()) as usize;
    let at = dims + 4 + 8 * n_dims;
    file[at..at + 4].copy_from_slice(&id.to_le_bytes());
}

/// Asserts that `message` holds every one of `parts`.
#[track_caller]
pub fn assert_names(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}

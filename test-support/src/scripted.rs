//! A model whose every answer is known: greedy decoding walks a chain of tokens.
use crate::GgufFile;
use ember_loaders::gguf::{GgmlType, Value};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Tokens of the vocabulary, and the width of the hidden states.
const VOCAB: usize = 400;
/// The width of a head and of the feed-forward network.
const WIDTH: usize = 32;
const CONTROL: [&str; 5] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"];

/// The GGUF file of a model in which the embedding is the identity, attention and feed-forward are zero, and the head
/// holds the logit of each token after each other one: what follows a token depends on nothing else.
///
/// Its vocabulary has five control tokens, the 256 bytes, and words that no text is encoded to.
#[derive(Clone, Debug)]
pub struct Scripted {
    arch: &'static str,
    layers: usize,
    metadata: BTreeMap<String, Value>,
    /// Row-major `[VOCAB, VOCAB]`: the logit of the row's token after the column's.
    logits: Vec<f32>,
    /// Tensors of one value throughout, by name.
    filled: BTreeMap<String, f32>,
}

impl Scripted {
    /// The end of an answer, `<|im_end|>`.
    pub const END: u32 = 2;
    /// The token `<think>`.
    pub const OPEN_THINK: u32 = 3;
    /// The token `</think>`.
    pub const CLOSE_THINK: u32 = 4;
    /// The first of the tokens that are words; those up to 399 are.
    pub const WORD: u32 = (CONTROL.len() + 256) as u32;

    /// A model of the architecture `arch`, `llama` or `qwen3`, whose tokens are all equally likely after every other.
    pub fn new(arch: &'static str) -> Self {
        let (metadata, filled) = (BTreeMap::new(), BTreeMap::new());
        let model = Self { arch, layers: 1, metadata, logits: vec![0.0; VOCAB * VOCAB], filled };
        model.set("context_length", 4096_u32)
    }

    /// The token of a byte.
    pub fn byte(byte: u8) -> u32 {
        CONTROL.len() as u32 + u32::from(byte)
    }

    /// Sets a key by its full name.
    pub fn key(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.metadata.insert(key.to_owned(), value.into());
        self
    }

    /// Sets a key of the architecture.
    pub fn set(self, key: &str, value: impl Into<Value>) -> Self {
        let key = format!("{}.{key}", self.arch);
        self.key(&key, value)
    }

    /// Sets the chat template.
    pub fn template(self, template: &str) -> Self {
        self.key("tokenizer.chat_template", template)
    }

    /// Sets the number of layers.
    pub fn layers(mut self, layers: usize) -> Self {
        self.layers = layers;
        self
    }

    /// Fills a tensor with one value.
    pub fn fill(mut self, tensor: &str, value: f32) -> Self {
        self.filled.insert(tensor.to_owned(), value);
        self
    }

    /// Sets the logit of `to` after `from`; the others stay at 0.
    pub fn logit(mut self, from: u32, to: u32, logit: f32) -> Self {
        self.logits[to as usize * VOCAB + from as usize] = logit;
        self
    }

    /// Makes each token of the chain by far the likeliest after the one before it.
    pub fn walk(self, chain: &[u32]) -> Self {
        chain.windows(2).fold(self, |model, pair| model.logit(pair[0], pair[1], 100.0))
    }

    /// The file.
    pub fn gguf(&self) -> GgufFile {
        let mut metadata = self.default_metadata();
        metadata.extend(self.metadata.clone());
        let mut tensors = vec![
            self.tensor("token_embd.weight", vec![VOCAB, VOCAB], |i| f32::from(i / VOCAB == i % VOCAB)),
            // The norm of a unit vector has the length sqrt(VOCAB).
            self.tensor("output.weight", vec![VOCAB, VOCAB], |i| self.logits[i] / (VOCAB as f32).sqrt()),
            self.tensor("output_norm.weight", vec![VOCAB], |_| 1.0),
        ];
        for layer in 0..self.layers {
            for (name, dims) in [
                ("attn_q", [VOCAB, WIDTH]),
                ("attn_k", [VOCAB, WIDTH]),
                ("attn_v", [VOCAB, WIDTH]),
                ("attn_output", [WIDTH, VOCAB]),
                ("ffn_gate", [VOCAB, WIDTH]),
                ("ffn_up", [VOCAB, WIDTH]),
                ("ffn_down", [WIDTH, VOCAB]),
            ] {
                tensors.push(self.tensor(&format!("blk.{layer}.{name}.weight"), dims.to_vec(), |_| 0.0));
            }
            let of_heads: &[(&str, usize)] = match self.arch {
                "qwen3" => &[("attn_q_norm", WIDTH), ("attn_k_norm", WIDTH)],
                _ => &[],
            };
            for &(name, dim) in [("attn_norm", VOCAB), ("ffn_norm", VOCAB)].iter().chain(of_heads) {
                tensors.push(self.tensor(&format!("blk.{layer}.{name}.weight"), vec![dim], |_| 1.0));
            }
        }
        GgufFile { metadata: metadata.into_iter().collect(), tensors }
    }

    /// Writes the file to `path`.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write(&self, path: PathBuf) -> PathBuf {
        std::fs::write(&path, self.gguf().into_bytes()).unwrap_or_else(|error| panic!("{error}"));
        path
    }

    fn default_metadata(&self) -> BTreeMap<String, Value> {
        let bytes = (0..=255).map(byte_text);
        let words = (Self::WORD as usize..VOCAB).map(|id| format!("(word{id})"));
        let tokens: Vec<String> = CONTROL.map(str::to_owned).into_iter().chain(bytes).chain(words).collect();
        let types: Vec<i32> = (0..VOCAB).map(|id| if id < CONTROL.len() { 3 } else { 1 }).collect();
        let mut all: BTreeMap<String, Value> = [
            ("general.architecture", Value::from(self.arch)),
            ("tokenizer.ggml.model", "gpt2".into()),
            ("tokenizer.ggml.pre", "qwen2".into()),
            ("tokenizer.ggml.tokens", tokens.into()),
            ("tokenizer.ggml.token_type", types.into()),
            ("tokenizer.ggml.merges", Vec::<String>::new().into()),
            ("tokenizer.ggml.eos_token_id", Self::END.into()),
            ("tokenizer.ggml.add_bos_token", false.into()),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into();
        for (key, value) in [
            ("block_count", self.layers),
            ("embedding_length", VOCAB),
            ("feed_forward_length", WIDTH),
            ("attention.head_count", 1),
            ("attention.key_length", WIDTH),
            ("attention.value_length", WIDTH),
        ] {
            all.insert(format!("{}.{key}", self.arch), (value as u32).into());
        }
        all.insert(format!("{}.attention.layer_norm_rms_epsilon", self.arch), 1e-6_f32.into());
        all
    }

    fn tensor(
        &self,
        name: &str,
        dims: Vec<usize>,
        element: impl Fn(usize) -> f32,
    ) -> (String, GgmlType, Vec<usize>, Vec<u8>) {
        let element = |i| self.filled.get(name).copied().unwrap_or_else(|| element(i)).to_le_bytes();
        let bytes = (0..dims.iter().product()).flat_map(element).collect();
        (name.to_owned(), GgmlType::F32, dims, bytes)
    }
}

/// A byte as byte-level BPE writes it: printable ones as themselves, the others as letters from U+0100 on.
fn byte_text(byte: u8) -> String {
    let is_printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let code = match is_printable(byte) {
        true => u32::from(byte),
        false => 0x100 + (0..byte).filter(|&other| !is_printable(other)).count() as u32,
    };
    char::from_u32(code).expect("below the surrogates").to_string()
}

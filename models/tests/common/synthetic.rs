//! A small Qwen3 checkpoint with seeded weights, built in memory.
use ember_loaders::checkpoint::Checkpoint;
use ember_loaders::gguf::{GgmlType, Gguf, Value};
use ember_models::backend::Backend;
use ember_models::{TextModel, WeightFormat};
use ember_test_support::{GgufFile, definition, random};

/// Elements of a hidden state.
pub const HIDDEN: usize = 64;
const FFN: usize = 96;
const LAYERS: usize = 2;

/// Sizes that tests vary.
#[derive(Clone, Copy)]
pub struct Size {
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Tokens.
    pub vocab: usize,
    /// Positions.
    pub context: usize,
}

impl Size {
    /// The size for everything that does not depend on it.
    pub const SMALL: Self = Self { heads: 4, kv_heads: 2, head_dim: 32, vocab: 96, context: 512 };

    /// Names and `[cols, rows]` (or `[dim]`) of all tensors.
    fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let Self { heads, kv_heads, head_dim, vocab, .. } = *self;
        let mut all = vec![
            ("token_embd.weight".to_string(), vec![HIDDEN, vocab]),
            ("output_norm.weight".to_string(), vec![HIDDEN]),
            ("output.weight".to_string(), vec![HIDDEN, vocab]),
        ];
        for i in 0..LAYERS {
            let of_block: [(&str, Vec<usize>); 11] = [
                ("attn_norm", vec![HIDDEN]),
                ("attn_q", vec![HIDDEN, heads * head_dim]),
                ("attn_k", vec![HIDDEN, kv_heads * head_dim]),
                ("attn_v", vec![HIDDEN, kv_heads * head_dim]),
                ("attn_output", vec![heads * head_dim, HIDDEN]),
                ("attn_q_norm", vec![head_dim]),
                ("attn_k_norm", vec![head_dim]),
                ("ffn_norm", vec![HIDDEN]),
                ("ffn_gate", vec![HIDDEN, FFN]),
                ("ffn_up", vec![HIDDEN, FFN]),
                ("ffn_down", vec![FFN, HIDDEN]),
            ];
            all.extend(of_block.map(|(name, dims)| (format!("blk.{i}.{name}.weight"), dims)));
        }
        all
    }
}

/// The file, its matrices in F32 or Q8_0.
pub fn gguf(quantized: bool, size: &Size) -> Vec<u8> {
    changed_gguf(quantized, size, |_, _| ())
}

/// [`gguf`] after `change` has seen the name and the weights of every tensor.
fn changed_gguf(quantized: bool, size: &Size, change: fn(&str, &mut [f32])) -> Vec<u8> {
    let mut file = GgufFile::default();
    let mut key = |name: &str, value: Value| file.metadata.push((name.to_owned(), value));
    key("general.architecture", "qwen3".into());
    for (name, value) in [
        ("embedding_length", HIDDEN),
        ("feed_forward_length", FFN),
        ("block_count", LAYERS),
        ("attention.head_count", size.heads),
        ("attention.head_count_kv", size.kv_heads),
        ("attention.key_length", size.head_dim),
        ("attention.value_length", size.head_dim),
        ("context_length", size.context),
        ("vocab_size", size.vocab),
    ] {
        key(&format!("qwen3.{name}"), (value as u32).into());
    }
    key("qwen3.attention.layer_norm_rms_epsilon", 1e-6f32.into());
    key("qwen3.rope.freq_base", 1e6f32.into());
    for (seed, (name, dims)) in (1..).zip(size.tensors()) {
        let mut values = random(seed, dims.iter().product());
        for value in &mut values {
            *value = if dims.len() == 1 { 1.0 + 0.3 * *value } else { 0.3 * *value };
        }
        change(&name, &mut values);
        file.tensors.push(match quantized && dims.len() == 2 {
            true => (name, GgmlType::Q8_0, dims, definition::q8_0_bytes(&values)),
            false => (name, GgmlType::F32, dims, values.iter().flat_map(|v| v.to_le_bytes()).collect()),
        });
    }
    file.into_bytes()
}

/// The checkpoint of [`gguf`].
pub fn checkpoint_of(quantized: bool, size: &Size) -> Checkpoint {
    let gguf = Gguf::from_bytes(gguf(quantized, size)).expect("a valid file");
    Checkpoint::from_gguf(gguf).expect("a whole checkpoint")
}

/// The checkpoint of [`Size::SMALL`], its matrices in F32 or Q8_0.
pub fn checkpoint(quantized: bool) -> Checkpoint {
    checkpoint_of(quantized, &Size::SMALL)
}

/// The checkpoint of [`Size::SMALL`] in F32 after `change` has seen the name and the weights of every tensor.
pub fn changed(change: fn(&str, &mut [f32])) -> Checkpoint {
    let gguf = Gguf::from_bytes(changed_gguf(false, &Size::SMALL, change)).expect("a valid file");
    Checkpoint::from_gguf(gguf).expect("a whole checkpoint")
}

/// The model of [`checkpoint`], packed.
pub fn qwen3<B: Backend>(quantized: bool) -> TextModel<B> {
    TextModel::load(&checkpoint(quantized), WeightFormat::Packed, &Default::default())
        .expect("a whole checkpoint")
}

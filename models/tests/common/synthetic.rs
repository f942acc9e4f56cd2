//! A small Qwen3 checkpoint with seeded weights, built in memory.
use ember_loaders::checkpoint::Checkpoint;
use ember_loaders::gguf::{GgmlType, Gguf, Value};
use ember_models::backend::Backend;
use ember_models::{Decoder, WeightFormat};
use ember_test_support::{GgufFile, definition, random};

const HIDDEN: usize = 64;
const FFN: usize = 96;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 32;
const LAYERS: usize = 2;
const VOCAB: usize = 96;

/// Names and `[cols, rows]` (or `[dim]`) of all tensors.
fn tensors() -> Vec<(String, Vec<usize>)> {
    let mut all = vec![
        ("token_embd.weight".to_string(), vec![HIDDEN, VOCAB]),
        ("output_norm.weight".to_string(), vec![HIDDEN]),
        ("output.weight".to_string(), vec![HIDDEN, VOCAB]),
    ];
    for i in 0..LAYERS {
        let of_block: [(&str, Vec<usize>); 11] = [
            ("attn_norm", vec![HIDDEN]),
            ("attn_q", vec![HIDDEN, HEADS * HEAD_DIM]),
            ("attn_k", vec![HIDDEN, KV_HEADS * HEAD_DIM]),
            ("attn_v", vec![HIDDEN, KV_HEADS * HEAD_DIM]),
            ("attn_output", vec![HEADS * HEAD_DIM, HIDDEN]),
            ("attn_q_norm", vec![HEAD_DIM]),
            ("attn_k_norm", vec![HEAD_DIM]),
            ("ffn_norm", vec![HIDDEN]),
            ("ffn_gate", vec![HIDDEN, FFN]),
            ("ffn_up", vec![HIDDEN, FFN]),
            ("ffn_down", vec![FFN, HIDDEN]),
        ];
        all.extend(of_block.map(|(name, dims)| (format!("blk.{i}.{name}.weight"), dims)));
    }
    all
}

/// The file, its matrices in F32 or Q8_0.
fn gguf(quantized: bool) -> Vec<u8> {
    let mut file = GgufFile::default();
    let mut key = |name: &str, value: Value| file.metadata.push((name.to_owned(), value));
    key("general.architecture", "qwen3".into());
    for (name, value) in [
        ("embedding_length", HIDDEN),
        ("feed_forward_length", FFN),
        ("block_count", LAYERS),
        ("attention.head_count", HEADS),
        ("attention.head_count_kv", KV_HEADS),
        ("attention.key_length", HEAD_DIM),
        ("attention.value_length", HEAD_DIM),
        ("context_length", 512),
        ("vocab_size", VOCAB),
    ] {
        key(&format!("qwen3.{name}"), (value as u32).into());
    }
    key("qwen3.attention.layer_norm_rms_epsilon", 1e-6f32.into());
    key("qwen3.rope.freq_base", 1e6f32.into());
    for (seed, (name, dims)) in (1..).zip(tensors()) {
        let mut values = random(seed, dims.iter().product());
        for value in &mut values {
            *value = if dims.len() == 1 { 1.0 + 0.3 * *value } else { 0.3 * *value };
        }
        file.tensors.push(match quantized && dims.len() == 2 {
            true => (name, GgmlType::Q8_0, dims, definition::q8_0_bytes(&values)),
            false => (name, GgmlType::F32, dims, values.iter().flat_map(|v| v.to_le_bytes()).collect()),
        });
    }
    file.into_bytes()
}

/// The checkpoint, its matrices in F32 or Q8_0.
pub fn checkpoint(quantized: bool) -> Checkpoint {
    let gguf = Gguf::from_bytes(gguf(quantized)).expect("a valid file");
    Checkpoint::from_gguf(gguf).expect("a whole checkpoint")
}

/// The model of [`checkpoint`], packed.
pub fn qwen3<B: Backend>(quantized: bool) -> Decoder<B> {
    Decoder::load(&checkpoint(quantized), WeightFormat::Packed, &Default::default())
        .expect("a whole checkpoint")
}

//! Tiny HF folders, one property at a time away from a valid one.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use ember_loaders::checkpoint::{Checkpoint, CheckpointError};
use ember_test_support::{Dtype, TensorFile};
use serde_json::{Value, json};

/// config.json and weights of a folder; the bits of each tensor's elements count from 0.
pub struct TinyFolder {
    pub config: Value,
    pub tensors: BTreeMap<String, (Dtype, Vec<usize>)>,
    path: PathBuf,
}

impl TinyFolder {
    /// A llama of hidden size 32, 4 heads and 2 KV heads of 16, 10 tokens; `name` must be unique among all tests.
    pub fn llama(name: &str) -> Self {
        let config = json!({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
            "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 10, "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": false,
        });
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("checkpoint_folder").join(name);
        let mut folder = Self { config, tensors: BTreeMap::new(), path };
        for (name, shape) in [
            ("model.embed_tokens.weight", vec![10, 32]),
            ("model.norm.weight", vec![32]),
            ("lm_head.weight", vec![10, 32]),
            ("model.layers.0.input_layernorm.weight", vec![32]),
            ("model.layers.0.self_attn.q_proj.weight", vec![64, 32]),
            ("model.layers.0.self_attn.k_proj.weight", vec![32, 32]),
            ("model.layers.0.self_attn.v_proj.weight", vec![32, 32]),
            ("model.layers.0.self_attn.o_proj.weight", vec![32, 64]),
            ("model.layers.0.post_attention_layernorm.weight", vec![32]),
            ("model.layers.0.mlp.gate_proj.weight", vec![48, 32]),
            ("model.layers.0.mlp.up_proj.weight", vec![48, 32]),
            ("model.layers.0.mlp.down_proj.weight", vec![32, 48]),
        ] {
            folder.tensors.insert(name.to_owned(), (Dtype::BF16, shape));
        }
        folder
    }

    /// Mistral Small 3.1: the text model's configuration in `text_config`, its tensors under `prefix`.
    pub fn mistral3(name: &str, rename: impl Fn(&str) -> String) -> Self {
        let mut folder = Self::llama(name);
        let mut text = folder.config.take();
        text["model_type"] = json!("mistral");
        text["rope_theta"] = json!(1e9);
        folder.config = json!({
            "architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3", "text_config": text,
        });
        folder.tensors = folder.tensors.into_iter().map(|(name, tensor)| (rename(&name), tensor)).collect();
        folder.tensors.insert("vision_tower.ln_pre.weight".into(), (Dtype::BF16, vec![8]));
        folder
    }

    pub fn set(mut self, key: &str, value: Value) -> Self {
        self.config[key] = value;
        self
    }

    pub fn tensor(mut self, name: &str, dtype: Dtype, shape: &[usize]) -> Self {
        self.tensors.insert(name.to_owned(), (dtype, shape.to_vec()));
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.tensors.remove(name).expect("the tensor was there");
        self
    }

    /// The weights as one safetensors file.
    pub fn weights(&self) -> Vec<u8> {
        let tensors = self.tensors.iter().map(|(name, (dtype, shape))| {
            let element = |i: usize| (i as u64).to_le_bytes().into_iter().take(dtype.bitsize() / 8);
            let data = (0..shape.iter().product()).flat_map(element).collect();
            (name.as_str(), *dtype, shape.clone(), data)
        });
        TensorFile::new(tensors).into_bytes()
    }

    /// Writes `files` and nothing else into the folder.
    pub fn write(&self, files: &[(&str, &[u8])]) -> PathBuf {
        if self.path.exists() {
            fs::remove_dir_all(&self.path).unwrap();
        }
        fs::create_dir_all(&self.path).unwrap();
        for (name, content) in files {
            fs::write(self.path.join(name), content).unwrap();
        }
        self.path.clone()
    }

    pub fn open(&self) -> Result<Checkpoint, CheckpointError> {
        let config = self.config.to_string();
        let files = [("config.json", config.as_bytes()), ("model.safetensors", &self.weights())];
        Checkpoint::open(self.write(&files))
    }

    /// The message with which the folder is refused.
    #[track_caller]
    pub fn refusal(&self) -> String {
        match self.open() {
            Ok(checkpoint) => panic!("accepted as {:?}", checkpoint.config()),
            Err(error) => error.to_string(),
        }
    }
}

//! Which tensors an architecture has, and of which shapes.

use std::collections::{HashMap, HashSet};

use super::config::ModelConfig;
use super::error::CheckpointError;
use crate::gguf::{GgmlType, Gguf};

/// Name, type and shape of every tensor of a checkpoint, under GGUF names.
#[derive(Default)]
pub(crate) struct Inventory {
    tensors: HashMap<String, (GgmlType, Vec<usize>)>,
}

impl Inventory {
    pub fn of_gguf(gguf: &Gguf) -> Self {
        let tensors = gguf
            .tensors()
            .iter()
            .map(|tensor| (tensor.name.clone(), (tensor.ty, tensor.dims.clone())))
            .collect();
        Self { tensors }
    }

    pub fn insert(&mut self, name: String, ty: GgmlType, dims: Vec<usize>) {
        self.tensors.insert(name, (ty, dims));
    }

    /// Every name.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    pub fn dims(&self, name: &str) -> Option<&[usize]> {
        self.tensors.get(name).map(|(_, dims)| dims.as_slice())
    }

    /// True if any block has a bias on Q, K or V.
    pub fn has_qkv_bias(&self) -> bool {
        ["attn_q.bias", "attn_k.bias", "attn_v.bias"].iter().any(|bias| self.has_in_block(bias))
    }

    /// True if any block has the tensor `blk.N.{suffix}`.
    pub fn has_in_block(&self, suffix: &str) -> bool {
        self.tensors.keys().any(|name| split_block(name).is_some_and(|(_, rest)| rest == suffix))
    }
}

/// Checks that the checkpoint has exactly the tensors that `config` asks for, each of the right shape.
///
/// Returns the names of tensors that are not used and do not change the result (a reranker's head, a vision
/// tower packed into the same file), sorted.
pub(super) fn check(config: &ModelConfig, inventory: &Inventory) -> Result<Vec<String>, CheckpointError> {
    let expected = expected_tensors(config);
    let unused = refuse_unexpected(config, inventory, &expected)?;
    check_expected(config.arch.name(), &expected, inventory)?;
    Ok(unused)
}

/// Checks that the tensors are there, unless they are optional, and of the right shapes. `arch` names the model in errors.
pub(crate) fn check_expected(
    arch: &'static str,
    expected: &[Expected],
    inventory: &Inventory,
) -> Result<(), CheckpointError> {
    let mut missing = Vec::new();
    let mut problems = Vec::new();
    for tensor in expected {
        match inventory.tensors.get(&tensor.name) {
            Some((ty, dims)) => problems.extend(tensor.problem(*ty, dims)),
            None if tensor.optional => {}
            None => missing.push(tensor.name.clone()),
        }
    }
    if !missing.is_empty() {
        return Err(CheckpointError::MissingTensors { arch, names: missing });
    }
    if !problems.is_empty() {
        return Err(CheckpointError::BadTensors { problems });
    }
    Ok(())
}

/// One tensor that an architecture has.
pub(crate) struct Expected {
    pub name: String,
    /// As in [`WeightTensor`](super::WeightTensor): `[cols, rows]` or `[len]`.
    pub dims: Vec<usize>,
    pub optional: bool,
}

impl Expected {
    /// The problem with the tensor found under this name.
    fn problem(&self, ty: GgmlType, dims: &[usize]) -> Option<String> {
        if dims != self.dims {
            return Some(format!("{} has shape {dims:?} instead of {:?}", self.name, self.dims));
        }
        let quantized = !matches!(ty, GgmlType::F32 | GgmlType::F16 | GgmlType::BF16);
        (dims.len() == 1 && quantized)
            .then(|| format!("{} is a vector of type {ty} instead of F32, F16 or BF16", self.name))
    }
}

fn expected_tensors(config: &ModelConfig) -> Vec<Expected> {
    let required = |name: String, dims: &[usize]| Expected { name, dims: dims.to_vec(), optional: false };
    let (hidden, vocab, head_dim) = (config.hidden_size, config.vocab_size, config.head_dim);
    let mut tensors = vec![
        required("token_embd.weight".into(), &[hidden, vocab]),
        required("output_norm.weight".into(), &[hidden]),
    ];
    if !config.tied_embeddings {
        tensors.push(required("output.weight".into(), &[hidden, vocab]));
    }
    if config.arch.takes_rope_freqs() {
        let dims = vec![config.rope.dim / 2];
        tensors.push(Expected { name: "rope_freqs.weight".into(), dims, optional: true });
    }
    let (q, kv, ffn) = (config.q_size(), config.kv_size(), config.ffn_size);
    let mut in_block: Vec<(&str, Vec<usize>)> = vec![
        ("attn_norm.weight", vec![hidden]),
        ("attn_q.weight", vec![hidden, q]),
        ("attn_k.weight", vec![hidden, kv]),
        ("attn_v.weight", vec![hidden, kv]),
        ("attn_output.weight", vec![q, hidden]),
        ("ffn_norm.weight", vec![hidden]),
        ("ffn_gate.weight", vec![hidden, ffn]),
        ("ffn_up.weight", vec![hidden, ffn]),
        ("ffn_down.weight", vec![ffn, hidden]),
    ];
    if config.qk_norm {
        in_block.extend([("attn_q_norm.weight", vec![head_dim]), ("attn_k_norm.weight", vec![head_dim])]);
    }
    if config.qkv_bias {
        in_block.extend([("attn_q.bias", vec![q]), ("attn_k.bias", vec![kv]), ("attn_v.bias", vec![kv])]);
    }
    for layer in 0..config.n_layers {
        tensors.extend(in_block.iter().map(|(suffix, dims)| required(format!("blk.{layer}.{suffix}"), dims)));
    }
    tensors
}

/// Refuses tensors outside `expected` that would change the result, and returns the other ones.
fn refuse_unexpected(
    config: &ModelConfig,
    inventory: &Inventory,
    expected: &[Expected],
) -> Result<Vec<String>, CheckpointError> {
    let known: HashSet<&str> = expected.iter().map(|tensor| tensor.name.as_str()).collect();
    let mut others: Vec<&str> = inventory.names().filter(|name| !known.contains(name)).collect();
    others.sort_unstable_by_key(|name| (split_block(name).map(|(layer, _)| layer), *name));
    let (refused, unused): (Vec<&str>, Vec<&str>) =
        others.into_iter().partition(|name| changes_the_result(config, name));
    if refused.is_empty() {
        return Ok(unused.into_iter().map(str::to_owned).collect());
    }
    let hint = hint(&refused);
    let names = refused.into_iter().map(str::to_owned).collect();
    Err(CheckpointError::UnexpectedTensors { arch: config.arch.name(), names, hint })
}

/// True if leaving out an unknown tensor would silently give another model.
///
/// Everything inside a block does, but the tables that old converters stored although they follow from the
/// metadata. Outside the blocks only what touches the token path does.
fn changes_the_result(config: &ModelConfig, name: &str) -> bool {
    const PRECOMPUTED: [&str; 2] = ["attn_rot_embd.weight", "attn_rot_freqs.weight"];
    const TOKEN_PATH: [&str; 4] = ["token_", "position_embd", "output", "rope_"];
    match split_block(name) {
        Some((_, rest)) => !PRECOMPUTED.contains(&rest),
        None if name == "output.weight" => !config.tied_embeddings,
        None => TOKEN_PATH.iter().any(|prefix| name.starts_with(prefix)),
    }
}

/// A hint at the model from well-known foreign tensors.
fn hint(names: &[&str]) -> &'static str {
    let any = |part: &str| names.iter().any(|name| name.contains(part));
    if any("ffn_gate_inp") || any("_exps") || any("experts") {
        " (a mixture-of-experts model; only dense ones are supported)"
    } else if any("attn_q_norm") || any("attn_k_norm") {
        " (per-head Q/K norms: is the architecture label right?)"
    } else if any(".bias") {
        " (this bias is not part of the architecture)"
    } else {
        ""
    }
}

/// Splits `blk.12.attn_q.weight` into 12 and `attn_q.weight`.
pub(super) fn split_block(name: &str) -> Option<(usize, &str)> {
    let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
    Some((layer.parse().ok()?, rest))
}

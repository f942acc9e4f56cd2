//! The tensors found in a checkpoint, held against those of its architecture.

use std::collections::{HashMap, HashSet};

use super::arch::DECODER;
use super::config::ModelConfig;
use super::error::CheckpointError;
use super::tensors::{Condition, TensorSpec};
use crate::gguf::{GgmlType, Gguf, StoredType};

/// Name, type and shape of every tensor of a checkpoint, under GGUF names.
#[derive(Default)]
pub(crate) struct Inventory {
    tensors: HashMap<String, (StoredType, Vec<usize>)>,
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
        self.tensors.insert(name, (ty.into(), dims));
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
        let mut biased = DECODER.block.iter().filter(|part| part.bias == Condition::QkvBias);
        biased.any(|part| self.has_in_block(&format!("{}.bias", part.name)))
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
    let expected = config.tensors();
    let unused = refuse_unexpected(config, inventory, &expected)?;
    check_expected(config.arch.name(), &expected, inventory)?;
    Ok(unused)
}

/// Checks that the tensors are there, unless they are optional, and of the right shapes. `arch` names the model in errors.
pub(crate) fn check_expected(
    arch: &'static str,
    expected: &[TensorSpec],
    inventory: &Inventory,
) -> Result<(), CheckpointError> {
    let mut missing = Vec::new();
    let mut problems = Vec::new();
    for tensor in expected {
        match inventory.tensors.get(&tensor.name) {
            Some((ty, dims)) => problems.extend(problem(tensor, *ty, dims)),
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
    refuse_foreign_types(expected, inventory)
}

/// Refuses tensors of types that nothing computes with.
fn refuse_foreign_types(expected: &[TensorSpec], inventory: &Inventory) -> Result<(), CheckpointError> {
    let found = |tensor: &TensorSpec| Some((tensor.name.clone(), inventory.tensors.get(&tensor.name)?.0));
    let mut foreign = expected.iter().filter_map(found).filter(|(_, ty)| ty.computable().is_none());
    match foreign.next() {
        None => Ok(()),
        Some((tensor, ty)) => Err(CheckpointError::ForeignType { tensor, ty, others: foreign.count() }),
    }
}

/// The fault of the tensor found under an expected name.
fn problem(expected: &TensorSpec, ty: StoredType, dims: &[usize]) -> Option<String> {
    let name = &expected.name;
    if dims != expected.dims {
        return Some(format!("{name} has shape {dims:?} instead of {:?}", expected.dims));
    }
    let quantized = |ty| !matches!(ty, GgmlType::F32 | GgmlType::F16 | GgmlType::BF16);
    (!expected.role.is_matrix() && ty.computable().is_some_and(quantized))
        .then(|| format!("{name} is a vector of type {ty} instead of F32, F16 or BF16"))
}

/// Refuses tensors outside `expected` that would change the result, and returns the other ones.
fn refuse_unexpected(
    config: &ModelConfig,
    inventory: &Inventory,
    expected: &[TensorSpec],
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
    DECODER.split_block(name)
}

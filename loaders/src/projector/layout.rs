//! The two layouts of a projector file, and which tensors it has.

use super::PixtralConfig;
use crate::checkpoint::CheckpointError;
use crate::checkpoint::layout::{Expected, Inventory, check_expected};
use ember_formats::Pairing;
use std::collections::HashSet;
use std::fmt;

/// The model's name in errors.
const NAME: &str = "Pixtral";

/// Whose tensor names a projector file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectorLayout {
    /// llama.cpp's (`v.patch_embd`), with the rows of Q and K permuted to adjacent pairs.
    LlamaCpp,
    /// Ollama's (`v.patch_conv`), with Hugging Face's order of rows.
    Ollama,
}

impl fmt::Display for ProjectorLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LlamaCpp => "llama.cpp",
            Self::Ollama => "Ollama",
        })
    }
}

/// Ollama's name and llama.cpp's, where they differ.
const PREFIXES: [(&str, &str); 6] = [
    ("v.patch_conv.", "v.patch_embd."),
    ("v.encoder_norm.", "v.pre_ln."),
    ("mm.norm.", "mm.input_norm."),
    ("mm.patch_merger.merging_layer.", "mm.patch_merger."),
    ("mm.linear_1.", "mm.1."),
    ("mm.linear_2.", "mm.2."),
];
/// The same within a block.
const IN_BLOCK: [(&str, &str); 3] =
    [(".attn_norm.", ".ln1."), (".ffn_norm.", ".ln2."), (".attn_output.", ".attn_out.")];

/// llama.cpp keeps the text model's embedding of `[IMG_BREAK]` here. It is taken from the text model instead: some files
/// hold zeros or another token's row.
const IMG_BREAK: &str = "v.token_embd.img_break";

impl ProjectorLayout {
    pub(super) fn of(inventory: &Inventory) -> Option<Self> {
        if inventory.has("v.patch_embd.weight") {
            Some(Self::LlamaCpp)
        } else {
            inventory.has("v.patch_conv.weight").then_some(Self::Ollama)
        }
    }

    /// Which elements of a head form a pair.
    pub(super) fn rope_pairing(self) -> Pairing {
        match self {
            Self::LlamaCpp => Pairing::Adjacent,
            Self::Ollama => Pairing::Half,
        }
    }

    /// The file's own name of the tensor that Ollama calls `name`.
    pub fn name_in_file(self, name: &str) -> String {
        if self == Self::Ollama {
            return name.to_owned();
        }
        if let Some((ollama, llama_cpp)) = PREFIXES.iter().find(|(ollama, _)| name.starts_with(ollama)) {
            return name.replacen(ollama, llama_cpp, 1);
        }
        match IN_BLOCK.iter().find(|(ollama, _)| name.contains(ollama)) {
            Some((ollama, llama_cpp)) => name.replacen(ollama, llama_cpp, 1),
            None => name.to_owned(),
        }
    }
}

/// Checks that the file has exactly the tensors that the encoder applies, each of the right shape.
pub(super) fn check(config: &PixtralConfig, inventory: &Inventory) -> Result<(), CheckpointError> {
    let expected = expected_tensors(config);
    let known: HashSet<&str> = expected.iter().map(|tensor| tensor.name.as_str()).collect();
    // A text model may stand in the same file.
    let of_tower = |name: &&str| name.starts_with("v.") || name.starts_with("mm.");
    let unknown =
        inventory.names().filter(of_tower).filter(|name| !known.contains(name) && *name != IMG_BREAK);
    let mut names: Vec<String> = unknown.map(str::to_owned).collect();
    if !names.is_empty() {
        names.sort_unstable();
        return Err(CheckpointError::UnexpectedTensors { arch: NAME, names, hint: "" });
    }
    check_expected(NAME, &expected, inventory)
}

fn expected_tensors(config: &PixtralConfig) -> Vec<Expected> {
    let tensor = |name: &str, dims: &[usize], optional| Expected {
        name: config.layout.name_in_file(name),
        dims: dims.to_vec(),
        optional,
    };
    let (hidden, ffn, patch) = (config.hidden_size, config.ffn_size, config.patch_size);
    let (middle, out) = (config.projector_size, config.text_hidden_size);
    let mut tensors = vec![
        tensor("v.patch_conv.weight", &[patch, patch, 3, hidden], false),
        tensor("v.patch_conv.bias", &[hidden], true),
        tensor("v.encoder_norm.weight", &[hidden], false),
        tensor("mm.linear_1.weight", &[hidden, middle], false),
        tensor("mm.linear_1.bias", &[middle], true),
        tensor("mm.linear_2.weight", &[middle, out], false),
        tensor("mm.linear_2.bias", &[out], true),
    ];
    if config.has_merger {
        let merged = hidden * config.merge_size * config.merge_size;
        tensors.push(tensor("mm.norm.weight", &[hidden], false));
        tensors.push(tensor("mm.patch_merger.merging_layer.weight", &[merged, hidden], false));
    }
    let heads = config.n_heads * config.head_dim;
    let in_block: [(&str, &[usize]); 9] = [
        ("attn_norm", &[hidden]),
        ("attn_q", &[hidden, heads]),
        ("attn_k", &[hidden, heads]),
        ("attn_v", &[hidden, heads]),
        ("attn_output", &[heads, hidden]),
        ("ffn_norm", &[hidden]),
        ("ffn_gate", &[hidden, ffn]),
        ("ffn_up", &[hidden, ffn]),
        ("ffn_down", &[ffn, hidden]),
    ];
    for layer in 0..config.n_layers {
        let of_layer =
            |(name, dims): &(&str, &[usize])| tensor(&format!("v.blk.{layer}.{name}.weight"), dims, false);
        tensors.extend(in_block.iter().map(of_layer));
    }
    tensors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_both_layouts() {
        for (ollama, llama_cpp) in [
            ("v.patch_conv.weight", "v.patch_embd.weight"),
            ("v.encoder_norm.weight", "v.pre_ln.weight"),
            ("v.blk.11.attn_norm.weight", "v.blk.11.ln1.weight"),
            ("v.blk.11.attn_q.weight", "v.blk.11.attn_q.weight"),
            ("v.blk.11.attn_output.weight", "v.blk.11.attn_out.weight"),
            ("v.blk.11.ffn_norm.weight", "v.blk.11.ln2.weight"),
            ("v.blk.11.ffn_up.weight", "v.blk.11.ffn_up.weight"),
            ("mm.norm.weight", "mm.input_norm.weight"),
            ("mm.patch_merger.merging_layer.weight", "mm.patch_merger.weight"),
            ("mm.linear_1.weight", "mm.1.weight"),
            ("mm.linear_2.bias", "mm.2.bias"),
        ] {
            assert_eq!(ProjectorLayout::LlamaCpp.name_in_file(ollama), llama_cpp);
            assert_eq!(ProjectorLayout::Ollama.name_in_file(ollama), ollama);
        }
    }
}

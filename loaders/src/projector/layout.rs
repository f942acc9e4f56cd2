//! The two layouts of a projector file, and its tensors.

use super::PixtralConfig;
use crate::checkpoint::layout::{Inventory, check_expected};
use crate::checkpoint::tensors::{Condition, Conditions, Description, Part};
use crate::checkpoint::{CheckpointError, TensorSpec};
use ember_formats::Pairing;
use std::collections::HashSet;
use std::fmt;

/// The name of the model in errors.
const NAME: &str = "Pixtral";

/// The writer whose tensor names a projector file has.
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

type VisionPart = Part<PixtralConfig>;

/// The tensors of a Pixtral tower and its projector, under Ollama's names, which are Ember's, and llama.cpp's.
pub(super) static PIXTRAL: Description<PixtralConfig> = Description {
    before: &[
        VisionPart::matrix("v.patch_conv", "v.patch_embd", |c| {
            vec![c.patch_size, c.patch_size, 3, c.hidden_size]
        })
        .biased(Condition::IfStored),
        VisionPart::norm("v.encoder_norm", "v.pre_ln", |c| vec![c.hidden_size]),
    ],
    block_prefix: "v.blk.",
    block: &[
        VisionPart::norm("attn_norm", "ln1", |c| vec![c.hidden_size]),
        VisionPart::matrix("attn_q", "attn_q", |c| vec![c.hidden_size, c.attention_size()]),
        VisionPart::matrix("attn_k", "attn_k", |c| vec![c.hidden_size, c.attention_size()]),
        VisionPart::matrix("attn_v", "attn_v", |c| vec![c.hidden_size, c.attention_size()]),
        VisionPart::matrix("attn_output", "attn_out", |c| vec![c.attention_size(), c.hidden_size]),
        VisionPart::norm("ffn_norm", "ln2", |c| vec![c.hidden_size]),
        VisionPart::matrix("ffn_gate", "ffn_gate", |c| vec![c.hidden_size, c.ffn_size]),
        VisionPart::matrix("ffn_up", "ffn_up", |c| vec![c.hidden_size, c.ffn_size]),
        VisionPart::matrix("ffn_down", "ffn_down", |c| vec![c.ffn_size, c.hidden_size]),
    ],
    after: &[
        VisionPart::norm("mm.norm", "mm.input_norm", |c| vec![c.hidden_size]).when(Condition::Merger),
        VisionPart::matrix("mm.patch_merger.merging_layer", "mm.patch_merger", |c| {
            vec![c.hidden_size * c.merge_size * c.merge_size, c.hidden_size]
        })
        .when(Condition::Merger),
        VisionPart::matrix("mm.linear_1", "mm.1", |c| vec![c.hidden_size, c.projector_size])
            .biased(Condition::IfStored),
        VisionPart::matrix("mm.linear_2", "mm.2", |c| vec![c.projector_size, c.text_hidden_size])
            .biased(Condition::IfStored),
    ],
};

impl Conditions for PixtralConfig {
    fn holds(&self, condition: Condition) -> bool {
        match condition {
            Condition::Always | Condition::IfStored => true,
            Condition::Merger => self.has_merger,
            Condition::Never
            | Condition::Untied
            | Condition::QkNorm
            | Condition::QkvBias
            | Condition::RopeFactors => false,
        }
    }
}

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

    /// The elements of a head that form a pair.
    pub(super) fn rope_pairing(self) -> Pairing {
        match self {
            Self::LlamaCpp => Pairing::Adjacent,
            Self::Ollama => Pairing::Half,
        }
    }

    /// The file's own name of the tensor that Ollama calls `name`.
    pub fn name_in_file(self, name: &str) -> String {
        match self {
            Self::Ollama => name.to_owned(),
            Self::LlamaCpp => PIXTRAL.alias(name).unwrap_or_else(|| name.to_owned()),
        }
    }
}

/// Checks that the file has exactly the tensors that the encoder applies, each of the right shape.
pub(super) fn check(config: &PixtralConfig, inventory: &Inventory) -> Result<(), CheckpointError> {
    let in_file =
        |tensor: TensorSpec| TensorSpec { name: config.layout.name_in_file(&tensor.name), ..tensor };
    let expected: Vec<TensorSpec> = config.tensors().into_iter().map(in_file).collect();
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

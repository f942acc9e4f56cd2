//! Mistral 3 (Mistral Small 3.x, Ministral 3): rotation of adjacent pairs with YaRN, and queries scaled by position
//! when the checkpoint says so.
use crate::family::decoder_family;
use ember_loaders::checkpoint::Arch;

decoder_family!(
    /// A Mistral 3 model: YaRN and the query scale come from the checkpoint's configuration.
    Mistral3,
    Arch::Mistral3,
    "Mistral 3"
);

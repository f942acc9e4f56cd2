//! The part of `ember info` about a projector.
use super::chain_text;
use ember_loaders::gguf::Gguf;
use ember_loaders::projector::{PixtralConfig, Projector};
use serde::Serialize;
use std::fmt;
use std::path::Path;

/// A vision tower in a file, as Ember reads it.
#[derive(Serialize)]
#[serde(untagged)]
pub enum ProjectorInfo {
    /// It can be used.
    Usable(Summary),
    /// It cannot.
    Refused {
        /// The reason.
        problem: String,
    },
}

/// The projector's sizes: of an image, and of the tower that reads it.
#[derive(Serialize)]
pub struct Summary {
    #[serde(rename = "type")]
    kind: &'static str,
    layout: String,
    layers: usize,
    width: usize,
    heads: usize,
    patch_size: usize,
    merge_size: usize,
    image_size: usize,
    max_image_tokens: usize,
    activation: String,
    /// True if the file says so; it is the default otherwise.
    activation_named: bool,
    text_width: usize,
}

impl ProjectorInfo {
    /// Describes the projector in a file; nothing when there is none.
    pub fn of(gguf: &Gguf, path: &Path) -> Option<Self> {
        Projector::is_in(gguf).then(|| match Projector::open(path) {
            Ok(projector) => Self::Usable(Summary::new(&projector)),
            Err(error) => Self::Refused { problem: chain_text(&error.into()) },
        })
    }
}

impl Summary {
    fn new(projector: &Projector) -> Self {
        let &PixtralConfig { image_size, patch_size, merge_size, .. } = projector.config();
        let config = projector.config();
        Self {
            kind: "pixtral",
            layout: config.layout.to_string(),
            layers: config.n_layers,
            width: config.hidden_size,
            heads: config.n_heads,
            patch_size,
            merge_size,
            image_size,
            max_image_tokens: projector.preprocessor(None).rule.grid(image_size, image_size).tokens(),
            activation: config.activation.to_string(),
            activation_named: config.activation_named,
            text_width: config.text_hidden_size,
        }
    }
}

impl fmt::Display for ProjectorInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let summary = match self {
            Self::Usable(summary) => summary,
            Self::Refused { problem } => return write!(f, "projector: cannot be used: {problem}"),
        };
        let Summary { layout, layers, width, heads, activation, text_width, .. } = summary;
        let Summary { patch_size, merge_size, image_size, max_image_tokens, .. } = summary;
        let default = if summary.activation_named { "" } else { " (the default: the file names none)" };
        write!(
            f,
            "projector: {}, {layout} layout, {layers} layers of width {width} with {heads} heads, {activation}{default}\n\
             images: up to {image_size} pixels a side and {max_image_tokens} tokens, patches of {patch_size} pixels, \
             merged {merge_size} x {merge_size}\n\
             for text models of width {text_width}",
            summary.kind,
        )
    }
}

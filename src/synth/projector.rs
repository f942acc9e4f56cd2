//! Pixtral projectors in llama.cpp's layout.
use super::{Contents, SynthType};
use ember_loaders::checkpoint::{TensorRole, TensorSpec};
use ember_loaders::gguf::{GgmlType, GgufWriteError, GgufWriter};
use ember_loaders::projector::{Activation, PixtralConfig, ProjectorLayout};
use std::io::Write;

/// Dimensions of a projector. The tower is the same in all published models: 24 blocks of width 1024.
#[derive(Clone, Debug)]
pub struct ProjectorShape {
    /// The preset's name: that of the text model it belongs to.
    pub name: &'static str,
    /// Width of the text model.
    pub text_hidden: usize,
    /// Blocks of the tower.
    pub layers: usize,
    /// Side of a patch in pixels.
    pub patch: usize,
    /// Longest side of an image in pixels.
    pub image: usize,
    /// Patches per side of a cell.
    pub merge: usize,
}

/// Blocks of every published tower.
const LAYERS: usize = 24;

/// `(name, text width, patch, image, merge)`: Ministral 3, Pixtral-12B, Mistral Small 3.
const PRESETS: [(&str, usize, usize, usize, usize); 5] = [
    ("3b", 3072, 14, 1540, 2),
    ("8b", 4096, 14, 1540, 2),
    ("12b", 5120, 16, 1024, 1),
    ("14b", 5120, 14, 1540, 2),
    ("24b", 5120, 14, 1540, 2),
];

/// The presets, smallest text model first.
pub fn projector_names() -> Vec<&'static str> {
    PRESETS.iter().map(|preset| preset.0).collect()
}

/// The projector of a text model, if there is a preset of that name.
pub fn projector_shape(preset: &str) -> Option<ProjectorShape> {
    let &(name, text_hidden, patch, image, merge) = PRESETS.iter().find(|row| row.0 == preset)?;
    Some(ProjectorShape { name, text_hidden, layers: LAYERS, patch, image, merge })
}

impl Contents for ProjectorShape {
    fn title(&self) -> String {
        format!("Synthetic pixtral {}", self.name)
    }

    fn write_metadata<W: Write>(&self, header: &mut GgufWriter<W>) -> Result<(), GgufWriteError> {
        let config = self.config();
        header.metadata("general.architecture", "clip")?;
        header.metadata("general.type", "mmproj")?;
        header.metadata("clip.projector_type", "pixtral")?;
        header.metadata("clip.has_vision_encoder", true)?;
        let activation = match config.activation {
            Activation::Gelu => "clip.use_gelu",
            Activation::Silu => "clip.use_silu",
        };
        header.metadata(activation, true)?;
        let numbers = [
            ("image_size", config.image_size),
            ("patch_size", config.patch_size),
            ("embedding_length", config.hidden_size),
            ("feed_forward_length", config.ffn_size),
            ("projection_dim", config.text_hidden_size),
            ("block_count", config.n_layers),
            ("attention.head_count", config.n_heads),
            ("spatial_merge_size", config.merge_size),
        ];
        for (key, value) in numbers {
            header.metadata(&format!("clip.vision.{key}"), value as u32)?;
        }
        header.metadata("clip.vision.attention.layer_norm_epsilon", config.norm_eps)?;
        header.metadata("clip.vision.image_mean", config.image_mean.to_vec())?;
        header.metadata("clip.vision.image_std", config.image_std.to_vec())?;
        Ok(())
    }

    fn tensors(&self, ty: SynthType) -> Vec<(TensorSpec, GgmlType)> {
        let config = self.config();
        // Published files have no biases.
        let written = config.tensors().into_iter().filter(|tensor| !tensor.optional);
        let mut tensors: Vec<(TensorSpec, GgmlType)> = written
            .map(|tensor| {
                let ty = match (tensor.role.is_matrix(), tensor.dims.len()) {
                    (false, _) => GgmlType::F32,
                    (true, 2) => ty.base(),
                    // Rows of the kernel are too short for blocks.
                    (true, _) => GgmlType::F16,
                };
                (TensorSpec { name: config.layout.name_in_file(&tensor.name), ..tensor }, ty)
            })
            .collect();
        // Not applied by the encoder: llama.cpp's copy of an embedding of the text model.
        let img_break = TensorSpec {
            name: "v.token_embd.img_break".to_owned(),
            layer: None,
            dims: vec![self.text_hidden],
            role: TensorRole::Bias,
            optional: true,
        };
        tensors.push((img_break, GgmlType::F32));
        tensors
    }

    /// Ones, for norms.
    fn vector(&self, tensor: &TensorSpec) -> Vec<f32> {
        vec![1.0; tensor.elements()]
    }
}

impl ProjectorShape {
    /// The hyperparameters that a reader of the file will find.
    fn config(&self) -> PixtralConfig {
        PixtralConfig {
            n_layers: self.layers,
            // GELU in the towers of Mistral Small 3.1 and later, SiLU in Pixtral-12B's.
            activation: if self.merge > 1 { Activation::Gelu } else { Activation::Silu },
            patch_size: self.patch,
            image_size: self.image,
            merge_size: self.merge,
            has_merger: self.merge > 1,
            projector_size: self.text_hidden,
            text_hidden_size: self.text_hidden,
            ..PixtralConfig::mistral_small(ProjectorLayout::LlamaCpp)
        }
    }
}

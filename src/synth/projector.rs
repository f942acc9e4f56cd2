//! Pixtral projectors in llama.cpp's layout.
use super::{Contents, SynthType};
use ember_loaders::gguf::{GgmlType, GgufWriteError, GgufWriter};
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

const HIDDEN: usize = 1024;
const FFN: usize = 4096;
const HEADS: usize = 16;
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
        header.metadata("general.architecture", "clip")?;
        header.metadata("general.type", "mmproj")?;
        header.metadata("clip.projector_type", "pixtral")?;
        header.metadata("clip.has_vision_encoder", true)?;
        // GELU in the towers of Mistral Small 3.1 and later, SiLU in Pixtral-12B's.
        header.metadata(if self.merge > 1 { "clip.use_gelu" } else { "clip.use_silu" }, true)?;
        let numbers = [
            ("image_size", self.image),
            ("patch_size", self.patch),
            ("embedding_length", HIDDEN),
            ("feed_forward_length", FFN),
            ("projection_dim", self.text_hidden),
            ("block_count", self.layers),
            ("attention.head_count", HEADS),
            ("spatial_merge_size", self.merge),
        ];
        for (key, value) in numbers {
            header.metadata(&format!("clip.vision.{key}"), value as u32)?;
        }
        header.metadata("clip.vision.attention.layer_norm_epsilon", 1e-5f32)?;
        header.metadata("clip.vision.image_mean", vec![0.481_454_66f32, 0.457_827_5, 0.408_210_73])?;
        header.metadata("clip.vision.image_std", vec![0.268_629_54f32, 0.261_302_6, 0.275_777_1])?;
        Ok(())
    }

    fn tensors(&self, ty: SynthType) -> Vec<(String, GgmlType, Vec<usize>)> {
        let base = ty.base();
        let vector = |name: String, len: usize| (name, GgmlType::F32, vec![len]);
        let matrix = |name: &str, cols, rows| (format!("{name}.weight"), base, vec![cols, rows]);
        let kernel = vec![self.patch, self.patch, 3, HIDDEN];
        let mut tensors = vec![
            ("v.patch_embd.weight".to_owned(), GgmlType::F16, kernel),
            vector("v.pre_ln.weight".to_owned(), HIDDEN),
            vector("v.token_embd.img_break".to_owned(), self.text_hidden),
        ];
        for i in 0..self.layers {
            tensors.extend(["ln1", "ln2"].map(|name| vector(format!("v.blk.{i}.{name}.weight"), HIDDEN)));
            let matrices = [
                ("attn_q", HIDDEN, HIDDEN),
                ("attn_k", HIDDEN, HIDDEN),
                ("attn_v", HIDDEN, HIDDEN),
                ("attn_out", HIDDEN, HIDDEN),
                ("ffn_gate", HIDDEN, FFN),
                ("ffn_up", HIDDEN, FFN),
                ("ffn_down", FFN, HIDDEN),
            ];
            let named = |(name, cols, rows)| matrix(&format!("v.blk.{i}.{name}"), cols, rows);
            tensors.extend(matrices.map(named));
        }
        if self.merge > 1 {
            tensors.push(vector("mm.input_norm.weight".to_owned(), HIDDEN));
            tensors.push(matrix("mm.patch_merger", HIDDEN * self.merge * self.merge, HIDDEN));
        }
        tensors.push(matrix("mm.1", HIDDEN, self.text_hidden));
        tensors.push(matrix("mm.2", self.text_hidden, self.text_hidden));
        tensors
    }

    /// Ones, for norms.
    fn vector(&self, _name: &str, len: usize) -> Vec<f32> {
        vec![1.0; len]
    }
}

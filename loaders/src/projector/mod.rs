//! Pixtral projector files (`mmproj`): a vision tower and the layers that map its patches to the text model's width.
//!
//! Two layouts of the same tensors exist, llama.cpp's and Ollama's; afterwards both have Ollama's names, which are those
//! of the text model's blocks.

mod config;
mod layout;

pub use config::{Activation, PixtralConfig};
pub use layout::ProjectorLayout;

use crate::checkpoint::layout::Inventory;
use crate::checkpoint::{CheckpointError, ModelConfig, TensorSource, WeightTensor};
use crate::gguf::Gguf;
use crate::image::{Preprocessor, SizeRule};
use std::path::Path;

/// A projector, its hyperparameters read and every tensor checked.
pub struct Projector {
    gguf: Gguf,
    config: PixtralConfig,
}

impl Projector {
    /// Opens a projector file, or the vision tower in a file that also holds a text model, as Ollama writes it.
    ///
    /// # Errors
    /// If the file is malformed or not a Pixtral projector, a value cannot be used, or a tensor is missing, has the
    /// wrong shape, or is not applied by the encoder.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CheckpointError> {
        Self::from_gguf(Gguf::open(path)?)
    }

    /// Checks a file that is already open.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_gguf(gguf: Gguf) -> Result<Self, CheckpointError> {
        let inventory = Inventory::of_gguf(&gguf);
        let layout = ProjectorLayout::of(&inventory).ok_or_else(|| {
            let problem = "not a Pixtral projector: it has neither v.patch_embd.weight (llama.cpp's layout) nor \
                           v.patch_conv.weight (Ollama's)";
            let path = gguf.paths().first().cloned().unwrap_or_default();
            CheckpointError::NotACheckpoint { path, problem: problem.to_owned() }
        })?;
        let config = PixtralConfig::read(gguf.metadata(), layout, &inventory)?;
        layout::check(&config, &inventory)?;
        Ok(Self { gguf, config })
    }

    /// True if a file holds a vision tower in one of the two layouts.
    pub fn is_in(gguf: &Gguf) -> bool {
        ProjectorLayout::of(&Inventory::of_gguf(gguf)).is_some()
    }

    /// The hyperparameters.
    pub fn config(&self) -> &PixtralConfig {
        &self.config
    }

    /// The file.
    pub fn gguf(&self) -> &Gguf {
        &self.gguf
    }

    /// Refuses a projector whose embeddings are not as wide as the text model's.
    ///
    /// # Errors
    /// Names the last matrix and both widths.
    pub fn check_fits(&self, text: &ModelConfig) -> Result<(), CheckpointError> {
        let width = self.config.text_hidden_size;
        if width == text.hidden_size {
            return Ok(());
        }
        let name = self.config.layout.name_in_file("mm.linear_2.weight");
        Err(CheckpointError::Inconsistent(format!(
            "the projector belongs to another model: {name} gives embeddings of width {width}, the text model's are \
             {} wide",
            text.hidden_size
        )))
    }

    /// The preprocessor of images for this encoder; `max_tokens` caps the tokens of one.
    pub fn preprocessor(&self, max_tokens: Option<usize>) -> Preprocessor {
        let config = &self.config;
        Preprocessor {
            rule: SizeRule { longest_edge: config.image_size, cell: config.cell_size(), max_tokens },
            mean: config.image_mean,
            std: config.image_std,
        }
    }

    /// Bytes of all weight matrices.
    pub fn matrix_bytes(&self) -> usize {
        let matrices = self.config.tensors().into_iter().filter(|tensor| tensor.role.is_matrix());
        matrices.filter_map(|tensor| self.opt_tensor(&tensor.name)).map(|tensor| tensor.bytes.len()).sum()
    }
}

impl TensorSource for Projector {
    /// The tensor of this name of Ollama's layout, whichever the file has. The convolution's kernel comes as a matrix
    /// `[channels * patch * patch, hidden]`.
    fn opt_tensor(&self, name: &str) -> Option<WeightTensor> {
        let info = self.gguf.tensor(&self.config.layout.name_in_file(name))?;
        let dims = match info.dims[..] {
            [x, y, channels, rows] => vec![x * y * channels, rows],
            _ => info.dims.clone(),
        };
        let (name, ty) = (info.name.clone(), info.ty.computable()?);
        Some(WeightTensor { name, ty, dims, bytes: self.gguf.bytes(info) })
    }
}

//! The images of a conversation: attaching them to the next message, and encoding them for each answer.
use crate::cli::args::DeviceArgs;
use crate::cli::model::TextModel;
use crate::cli::projector::ProjectorArgs;
use crate::cli::vision_model::{EncodedImages, ImageFile, VisionModel};
use anyhow::Result;
use ember::chat::{ImageTokens, Prompt};
use ember_loaders::checkpoint::Checkpoint;
use ember_loaders::image::ImageGrid;
use std::path::Path;

/// Images that wait for the next message, and what reads and encodes them.
pub struct Attachments {
    projector: ProjectorArgs,
    device: DeviceArgs,
    /// From the first image on: a chat without images needs no projector.
    model: Option<(VisionModel, ImageTokens)>,
    waiting: Vec<ImageFile>,
}

impl Attachments {
    /// None yet.
    pub fn new(projector: ProjectorArgs, device: DeviceArgs) -> Self {
        Self { projector, device, model: None, waiting: Vec::new() }
    }

    /// Opens the projector unless it is open.
    ///
    /// # Errors
    /// When the model takes no images, or no projector fits it.
    pub fn open(&mut self, checkpoint: &Checkpoint, text_model: &TextModel) -> Result<&VisionModel> {
        if self.model.is_none() {
            let (model, tokens) =
                VisionModel::open_for(checkpoint, &text_model.tokenizer, &self.projector, &self.device)?;
            text_model.check_takes_images(&tokens)?;
            self.model = Some((model, tokens));
        }
        let (model, _) = self.model.as_ref().expect("it was just opened");
        Ok(model)
    }

    /// Reads an image for the next message.
    ///
    /// # Errors
    /// As [`open`](Self::open), and when the image cannot be read.
    pub fn attach(&mut self, path: &Path, checkpoint: &Checkpoint, text_model: &TextModel) -> Result<()> {
        let is_first = self.model.is_none();
        let model = self.open(checkpoint, text_model)?;
        let file = model.read(path)?;
        if is_first {
            eprintln!("{}", model.description());
        }
        self.waiting.push(file);
        self.show();
        Ok(())
    }

    /// Lists what waits for the next message.
    pub fn show(&self) {
        if self.waiting.is_empty() {
            eprintln!("no image is attached");
        }
        for file in &self.waiting {
            let ImageGrid { rows, cols } = file.grid();
            let tokens = file.grid().tokens();
            eprintln!("attached: {}, {rows} x {cols} cells, {tokens} tokens", file.path.display());
        }
    }

    /// Detaches what waits.
    pub fn take(&mut self) -> Vec<ImageFile> {
        std::mem::take(&mut self.waiting)
    }

    /// Attaches images again, whose message was not answered.
    pub fn put_back(&mut self, images: Vec<ImageFile>) {
        self.waiting = images;
    }

    /// Gives the images of a conversation their places in its prompt.
    ///
    /// # Errors
    /// When the template left some out.
    pub fn place(&self, prompt: &mut Prompt, images: &[ImageFile]) -> Result<()> {
        let grids: Vec<ImageGrid> = images.iter().map(ImageFile::grid).collect();
        match &self.model {
            Some((_, tokens)) => Ok(prompt.place_images(tokens, &grids)?),
            None => Ok(()),
        }
    }

    /// Encodes the images of a conversation; `None` when Ctrl-C was pressed.
    ///
    /// # Errors
    /// When the projector cannot be placed, or fails.
    pub fn encode(&mut self, images: &[ImageFile]) -> Result<Option<EncodedImages>> {
        let Some((model, _)) = &mut self.model else { return Ok(Some(EncodedImages::default())) };
        let encoded = model.encode(images)?;
        if let Some(encoded) = &encoded {
            encoded.report();
        }
        Ok(encoded)
    }
}

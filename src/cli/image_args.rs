//! Arguments about images and the projector that reads them.
use super::paths::path_or_file_uri;
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::path::PathBuf;

/// The projector that reads images for a model.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Images")]
pub struct ProjectorArgs {
    /// Projector file that reads images for the model [default: the *mmproj*.gguf beside the model that fits it]
    #[arg(long, value_name = "FILE")]
    pub mmproj: Option<PathBuf>,
    /// Scale images down to at most N tokens each
    #[arg(long, value_name = "N", value_parser = image_tokens)]
    pub image_max_tokens: Option<usize>,
}

/// The images of a command.
#[derive(Args)]
#[command(next_help_heading = "Images")]
pub struct ImageArgs {
    /// Image for the model: PNG, JPEG, WebP, GIF (its first frame) or BMP (repeatable)
    #[arg(long = "image", value_name = "FILE", value_parser = OsStringValueParser::new().map(path_or_file_uri))]
    pub images: Vec<PathBuf>,
    #[command(flatten)]
    pub projector: ProjectorArgs,
}

/// A number of tokens that an image can have.
pub fn image_tokens(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0 | 1) => Err("the smallest image has 2 tokens".into()),
        Ok(number) => Ok(number),
        Err(_) => Err("not a whole number of at least 2".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_has_at_least_two_tokens() {
        assert_eq!(image_tokens("2"), Ok(2));
        assert!(image_tokens("1").is_err() && image_tokens("-2").is_err());
    }
}

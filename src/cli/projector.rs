//! Projector files (mmproj): the one that is named, or the one beside a model that fits it.
use anyhow::{Context, Result, bail};
use clap::Args;
use ember_loaders::checkpoint::{Checkpoint, CheckpointError, ModelConfig};
use ember_loaders::projector::Projector;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// What reads images for a model, and how.
#[derive(Args, Clone)]
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
    #[arg(long = "image", value_name = "FILE")]
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

/// Opens the projector for a model.
///
/// # Errors
/// When the one that is named does not fit; when none beside the model does, or more than one.
pub fn open_for(checkpoint: &Checkpoint, named: Option<&Path>) -> Result<(PathBuf, Projector)> {
    let open = |path: &Path| open_fitting(path, checkpoint.config());
    let model = checkpoint.path();
    match named {
        Some(path) => Ok((path.to_owned(), open(path)?)),
        // As Ollama writes it.
        None if checkpoint.gguf().is_some_and(Projector::is_in) => Ok((model.to_owned(), open(model)?)),
        None => {
            let folder = if model.is_dir() { model } else { model.parent().unwrap_or(Path::new("")) };
            choose(&candidates(folder)?, open).with_context(|| {
                format!("cannot choose the projector that reads images for {}", model.display())
            })
        }
    }
}

/// Opens a projector file.
///
/// # Errors
/// As [`Projector::open`], with the name of the file.
pub fn open(path: &Path) -> Result<Projector> {
    Projector::open(path).map_err(|error| named(error, path))
}

fn open_fitting(path: &Path, config: &ModelConfig) -> Result<Projector> {
    let projector = open(path)?;
    projector.check_fits(config).map_err(|error| named(error, path))?;
    Ok(projector)
}

/// The error with the name of the file, which some begin with.
fn named(error: CheckpointError, path: &Path) -> anyhow::Error {
    let name = path.display().to_string();
    if error.to_string().starts_with(&name) { error.into() } else { anyhow::Error::from(error).context(name) }
}

/// The files `*mmproj*.gguf` of a folder, those of a Mistral (`*mmproj*istral*.gguf`) before the others, each group in
/// order of name.
fn candidates(folder: &Path) -> Result<[Vec<PathBuf>; 2]> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let mut groups = [Vec::new(), Vec::new()];
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry.with_context(|| format!("cannot list {}", folder.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if let Some((_, rest)) = name.strip_suffix(".gguf").and_then(|stem| stem.split_once("mmproj")) {
            groups[usize::from(!rest.contains("istral"))].push(path);
        }
    }
    groups.iter_mut().for_each(|group| group.sort());
    Ok(groups)
}

/// The one file that `open` takes, of the first group that has any.
fn choose<T>(groups: &[Vec<PathBuf>], open: impl Fn(&Path) -> Result<T>) -> Result<(PathBuf, T)> {
    let mut refused = String::new();
    for group in groups {
        let mut fitting = Vec::new();
        for path in group {
            match open(path) {
                Ok(projector) => fitting.push((path, projector)),
                Err(error) => write!(refused, "\n  {}", super::chain_text(&error))?,
            }
        }
        if fitting.len() > 1 {
            let names: String = fitting.iter().map(|(path, _)| format!("\n  {}", path.display())).collect();
            bail!("several fit; name one with --mmproj:{names}");
        }
        if let Some((path, projector)) = fitting.pop() {
            return Ok((path.clone(), projector));
        }
    }
    if refused.is_empty() {
        bail!("there is no *mmproj*.gguf beside it; name one with --mmproj");
    }
    bail!("these do not fit; name one with --mmproj:{refused}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(groups: [&[&str]; 2], fits: impl Fn(&str) -> bool) -> Result<String, String> {
        let groups = groups.map(|group| group.iter().map(PathBuf::from).collect());
        let open = |path: &Path| match fits(path.to_str().unwrap()) {
            true => Ok(()),
            false => bail!("{} is too wide", path.display()),
        };
        match choose(&groups, open) {
            Ok((path, ())) => Ok(path.display().to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn the_one_that_fits_is_taken() {
        assert_eq!(chosen([&["a"], &["b", "c"]], |_| true), Ok("a".into()));
        assert_eq!(chosen([&["a"], &["b", "c"]], |name| name == "c"), Ok("c".into()));
        assert_eq!(chosen([&["a", "b"], &[]], |name| name == "b"), Ok("b".into()));
        let several = chosen([&["a", "b"], &["c"]], |_| true).unwrap_err();
        assert_eq!(several, "several fit; name one with --mmproj:\n  a\n  b");
        let none = chosen([&[], &["a", "b"]], |_| false).unwrap_err();
        assert_eq!(none, "these do not fit; name one with --mmproj:\n  a is too wide\n  b is too wide");
        let empty = chosen([&[], &[]], |_| true).unwrap_err();
        assert_eq!(empty, "there is no *mmproj*.gguf beside it; name one with --mmproj");
    }

    #[test]
    fn an_image_has_at_least_two_tokens() {
        assert_eq!(image_tokens("2"), Ok(2));
        assert!(image_tokens("1").is_err() && image_tokens("-2").is_err());
    }
}

//! The search for the projector file (mmproj) of a model: the one that is named, or the one beside the model that fits.
use crate::error::ProjectorError;
use ember_loaders::checkpoint::{Checkpoint, ModelConfig};
use ember_loaders::projector::Projector;
use std::path::{Path, PathBuf};

/// Opens the projector of a model: the file `named`, else the model's own file when it holds one (as Ollama writes it),
/// else the one `*mmproj*.gguf` beside the model that fits it.
///
/// # Errors
/// A named file that does not fit the model; no file beside the model that does, or more than one.
pub fn open_for(
    checkpoint: &Checkpoint,
    named: Option<&Path>,
) -> Result<(PathBuf, Projector), ProjectorError> {
    let open = |path: &Path| open_fitting(path, checkpoint.config());
    let model = checkpoint.path();
    match named {
        Some(path) => Ok((path.to_owned(), open(path)?)),
        None if checkpoint.gguf().is_some_and(Projector::is_in) => Ok((model.to_owned(), open(model)?)),
        None => {
            let folder = if model.is_dir() { model } else { model.parent().unwrap_or(Path::new("")) };
            choose(model, &candidates(folder)?, open)
        }
    }
}

/// Opens a projector file.
///
/// # Errors
/// As [`Projector::open`], with the name of the file.
pub fn open(path: &Path) -> Result<Projector, ProjectorError> {
    Projector::open(path)
        .map_err(|source| ProjectorError::Unfit { path: path.to_owned(), source: source.into() })
}

fn open_fitting(path: &Path, config: &ModelConfig) -> Result<Projector, ProjectorError> {
    let projector = open(path)?;
    match projector.check_fits(config) {
        Ok(()) => Ok(projector),
        Err(source) => Err(ProjectorError::Unfit { path: path.to_owned(), source: source.into() }),
    }
}

/// The files `*mmproj*.gguf` of a folder, those of a Mistral (`*mmproj*istral*.gguf`) before the others, each group in
/// order of name.
fn candidates(folder: &Path) -> Result<[Vec<PathBuf>; 2], ProjectorError> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let fail = |source| ProjectorError::Folder { folder: folder.to_owned(), source };
    let mut groups = [Vec::new(), Vec::new()];
    for entry in std::fs::read_dir(folder).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if let Some((_, rest)) = name.strip_suffix(".gguf").and_then(|stem| stem.split_once("mmproj")) {
            groups[usize::from(!rest.contains("istral"))].push(path);
        }
    }
    groups.iter_mut().for_each(|group| group.sort());
    Ok(groups)
}

/// The one file that `open` takes, of the first group that has any.
fn choose<T>(
    model: &Path,
    groups: &[Vec<PathBuf>],
    open: impl Fn(&Path) -> Result<T, ProjectorError>,
) -> Result<(PathBuf, T), ProjectorError> {
    let model = model.to_owned();
    let mut refused = Vec::new();
    for group in groups {
        let mut fitting = Vec::new();
        for path in group {
            match open(path) {
                Ok(projector) => fitting.push((path, projector)),
                Err(error) => refused.push(error.to_string()),
            }
        }
        if fitting.len() > 1 {
            let fitting = fitting.into_iter().map(|(path, _)| path.clone()).collect();
            return Err(ProjectorError::SeveralFit { model, fitting });
        }
        if let Some((path, projector)) = fitting.pop() {
            return Ok((path.clone(), projector));
        }
    }
    Err(match refused.is_empty() {
        true => ProjectorError::NotFound { model },
        false => ProjectorError::NoneFits { model, refused },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ember_loaders::checkpoint::CheckpointError;

    fn chosen(groups: [&[&str]; 2], fits: impl Fn(&str) -> bool) -> Result<String, String> {
        let groups = groups.map(|group| group.iter().map(PathBuf::from).collect());
        let open = |path: &Path| match fits(path.to_str().unwrap()) {
            true => Ok(()),
            false => Err(ProjectorError::Unfit {
                path: path.to_owned(),
                source: Box::new(CheckpointError::NotACheckpoint {
                    path: path.to_owned(),
                    problem: "too wide".into(),
                }),
            }),
        };
        match choose(Path::new("m.gguf"), &groups, open) {
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
        assert_eq!(several, "several projectors beside m.gguf fit it:\n  a\n  b");
        let none = chosen([&[], &["a", "b"]], |_| false).unwrap_err();
        assert_eq!(none, "no projector beside m.gguf fits it:\n  a: too wide\n  b: too wide");
        let empty = chosen([&[], &[]], |_| true).unwrap_err();
        assert_eq!(empty, "there is no projector (*mmproj*.gguf) that reads images beside m.gguf");
    }
}

//! Files that commands write: never in place of an input, in place of another file only when that is wanted, and complete
//! or not there at all.
use anyhow::{Context, Result, bail, ensure};
use ember_loaders::gguf::OutputFile;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The switch of commands that write a file.
#[derive(clap::Args, Clone, Copy)]
pub struct ForceArg {
    /// Replace the file to write if it exists; an input is never replaced
    #[arg(long)]
    force: bool,
}

impl From<ForceArg> for Existing {
    fn from(arg: ForceArg) -> Self {
        if arg.force { Self::Replace } else { Self::Keep { advice: "--force replaces it" } }
    }
}

/// The fate of a file that is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and `advice` says how to replace it.
    Keep { advice: &'static str },
    /// It is replaced.
    Replace,
}

/// The path of a file to write, at which nothing is in the way.
pub struct OutFile<'a>(&'a Path);

impl<'a> OutFile<'a> {
    /// Checks that a file can be written at `path` without replacing one of `inputs` or a text that was read, by whatever
    /// path or link, or a file that is to stay.
    ///
    /// # Errors
    /// The file that is in the way.
    pub fn new(path: &'a Path, existing: Existing, inputs: &[PathBuf]) -> Result<Self> {
        let part = OutputFile::part_of(path);
        for (written, origin) in [(path, ""), (&part, ", from a run that was killed or still goes on")] {
            // A link is in the way too, even one to nothing.
            if fs::symlink_metadata(written).is_err() {
                continue;
            }
            let name = written.display();
            let texts = with_paths(&TEXTS, |texts| texts.clone());
            if let Some(input) = same_file_among(written, inputs.iter().chain(&texts)) {
                let input = if input == written { String::new() } else { format!(" ({})", input.display()) };
                bail!("{name} is an input of this command{input}: write to another file");
            }
            ensure!(!written.is_dir(), "{name} is a folder");
            ensure!(written.is_file() || !written.exists(), "{name} is not a regular file");
            if let Existing::Keep { advice } = existing {
                bail!("{name} exists{origin} ({advice})");
            }
        }
        Ok(Self(path))
    }

    /// The path.
    pub fn path(&self) -> &Path {
        self.0
    }

    /// Starts writing.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn create(&self) -> Result<Unfinished> {
        let part = OutputFile::part_of(self.0);
        with_paths(&PARTS, |parts| parts.push(part.clone()));
        let registered = Registered(part);
        let file = OutputFile::create(self.0).with_context(|| self.cannot_write())?;
        Ok(Unfinished { file, registered })
    }

    /// The beginning of an error message.
    pub fn cannot_write(&self) -> String {
        format!("cannot write {}", self.0.display())
    }
}

/// A file that gets its name when it is complete, and leaves nothing behind otherwise.
pub struct Unfinished {
    file: OutputFile,
    registered: Registered,
}

impl Unfinished {
    /// Gives the complete file its name.
    ///
    /// # Errors
    /// If the disk is full or the file cannot be renamed.
    pub fn commit(self) -> io::Result<()> {
        let Self { file, registered } = self;
        file.commit()?;
        drop(registered);
        Ok(())
    }
}

impl Write for Unfinished {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The unfinished files, for an end of the program that runs no destructors.
static PARTS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
/// The files of prompts, messages, tools and templates, wherever they were read.
static TEXTS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn with_paths<T>(paths: &Mutex<Vec<PathBuf>>, act: impl FnOnce(&mut Vec<PathBuf>) -> T) -> T {
    // A list is whole whenever its lock is free.
    act(&mut paths.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
}

/// Makes a file that is read as text one of the inputs.
pub fn protect_text(path: &Path) {
    with_paths(&TEXTS, |texts| texts.push(path.to_owned()));
}

/// Removes the unfinished files, before the program ends on the spot.
pub fn remove_unfinished() {
    with_paths(&PARTS, |parts| {
        for part in parts.drain(..) {
            // Nothing is left to try, and nobody to tell.
            let _removed = fs::remove_file(part);
        }
    });
}

/// The entry of an unfinished file in [`PARTS`], until it is dropped.
struct Registered(PathBuf);

impl Drop for Registered {
    fn drop(&mut self) {
        with_paths(&PARTS, |parts| parts.retain(|part| *part != self.0));
    }
}

fn same_file_among<'p>(path: &Path, mut others: impl Iterator<Item = &'p PathBuf>) -> Option<&'p PathBuf> {
    let identity = identity(path)?;
    others.find(|other| self::identity(other).is_some_and(|other| other == identity))
}

/// Device and inode: the same for every path of a file, symbolic and hard links among them.
#[cfg(unix)]
fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// The path without links, in the file system's own spelling.
#[cfg(not(unix))]
fn identity(path: &Path) -> Option<PathBuf> {
    fs::canonicalize(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::text_input::read_text;

    #[test]
    fn a_text_that_was_read_is_an_input() {
        let folder = std::env::temp_dir().join(format!("ember-texts-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (read, other) = (folder.join("read.jinja"), folder.join("other.jinja"));
        for path in [&read, &other] {
            fs::write(path, "{{ messages }}").unwrap();
        }
        read_text(&read).unwrap();
        let refused = OutFile::new(&folder.join("./read.jinja"), Existing::Replace, &[]).err().unwrap();
        assert!(refused.to_string().contains("is an input of this command"), "{refused}");
        assert!(OutFile::new(&other, Existing::Replace, &[]).is_ok());
        fs::remove_dir_all(folder).unwrap();
    }
}

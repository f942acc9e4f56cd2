//! Writing a file so that it appears under its name only when it is complete.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A file being written as `NAME.part`, renamed to `NAME` by [`OutputFile::commit`] and removed when dropped
/// before that, so that an interrupted run never leaves something that looks like a model.
#[derive(Debug)]
pub struct OutputFile {
    /// `None` once committed.
    writer: Option<BufWriter<File>>,
    part: PathBuf,
    target: PathBuf,
}

impl OutputFile {
    /// The path of the file that becomes `target` when it is complete: `NAME.part` beside it.
    pub fn part_of(target: &Path) -> PathBuf {
        let mut part = target.to_owned().into_os_string();
        part.push(".part");
        part.into()
    }

    /// Creates `NAME.part` beside the target, replacing one that an earlier run left behind.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn create(target: impl Into<PathBuf>) -> io::Result<Self> {
        let target = target.into();
        let part = Self::part_of(&target);
        match fs::remove_file(&part) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // What an old one is linked to is not written into.
        let file = File::options().write(true).create_new(true).open(&part)?;
        let writer = Some(BufWriter::with_capacity(1 << 20, file));
        Ok(Self { writer, part, target })
    }

    /// The name the file will have.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Writes everything out to the disk and gives the file its name.
    ///
    /// # Errors
    /// If writing or renaming fails; the partial file is removed then.
    pub fn commit(mut self) -> io::Result<()> {
        self.file()?.flush()?;
        self.file()?.get_ref().sync_all()?;
        fs::rename(&self.part, &self.target)?;
        // The name is taken: what is left to do cannot leave a partial file, and `drop` must not remove it.
        self.writer = None;
        sync_folder(&self.target)
    }

    fn file(&mut self) -> io::Result<&mut BufWriter<File>> {
        self.writer.as_mut().ok_or_else(|| io::Error::other("the file is already complete"))
    }
}

/// A rename survives a power cut only when the folder is on the disk too.
fn sync_folder(path: &Path) -> io::Result<()> {
    if cfg!(unix) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(())
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file()?.flush()
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take() {
            // Without flushing what is buffered: the file goes away, and the disk may be full.
            drop(writer.into_parts());
            // A destructor can report nothing; a `.part` file left behind is harmless.
            let _removed = fs::remove_file(&self.part);
        }
    }
}

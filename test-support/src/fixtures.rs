//! The committed files of `tests/fixtures`.
use std::path::{Path, PathBuf};

/// The path of a file or folder of the workspace's `tests/fixtures`.
pub fn fixture(path: impl AsRef<Path>) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("tests/fixtures").join(path)
}

/// The text of a file of `tests/fixtures`.
#[track_caller]
pub fn read_fixture(path: impl AsRef<Path>) -> String {
    let path = fixture(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

//! Releasing the pages of a mapped file.
#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::path::PathBuf;

use ember_loaders::gguf::{GgmlType, Gguf, GgufWriter};

/// Resident bytes of the mappings of the file called `name`.
fn resident(name: &str) -> usize {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut inside = false;
    let mut total = 0;
    for line in maps.lines() {
        if line.starts_with(|c: char| c.is_ascii_digit() || ('a'..='f').contains(&c)) {
            inside = line.ends_with(name);
        } else if let Some(rss) = line.strip_prefix("Rss:").filter(|_| inside) {
            total += 1024 * rss.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap();
        }
    }
    total
}

#[test]
fn release_gives_pages_back_and_keeps_the_bytes() {
    const LEN: usize = 8 << 20;
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("gguf_release.gguf");
    let mut header = GgufWriter::new(File::create(&path).unwrap(), 3, 32).unwrap();
    for name in ["first", "second"] {
        header.tensor(name, GgmlType::F32, &[LEN / 4]).unwrap();
    }
    let mut data = header.start_data().unwrap();
    let pieces: [Vec<u8>; 2] = [1, 2].map(|start| (0..LEN).map(|i| (start * i % 251) as u8).collect());
    data.write("first", &pieces[0]).unwrap();
    data.write("second", &pieces[1]).unwrap();
    data.finish().unwrap();

    let gguf = Gguf::open(&path).unwrap();
    let [first, second] = ["first", "second"].map(|name| gguf.bytes(gguf.tensor(name).unwrap()));
    assert!(*first == pieces[0] && *second == pieces[1]);
    let before = resident("gguf_release.gguf");
    assert!(before >= 2 * LEN, "{before} bytes resident after reading all");

    first.release();
    let after = resident("gguf_release.gguf");
    // All of `first` but its two border pages is gone, and nothing of `second`.
    let freed = before - after;
    assert!((LEN - (128 << 10)..=LEN).contains(&freed), "{freed} of {LEN} bytes freed");
    assert!(*first == pieces[0] && *second == pieces[1]);
    fs::remove_file(path).unwrap();
}

//! Shards that were joined into one file, and files that were cut into pieces: each is told apart from the other, and
//! from an interrupted download.

use std::fs;
use std::path::Path;

use ember_loaders::gguf::Gguf;

fn fixture(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gguf").join(name)).unwrap()
}

fn shard(number: usize) -> Vec<u8> {
    fixture(&format!("split-{number:05}-of-00003.gguf"))
}

/// The message about a file of this name and content.
fn refusal(name: &str, content: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, content).unwrap();
    Gguf::open(&path).expect_err(name).to_string()
}

const JOINED: &str = "another GGUF file begins here: several were joined into one, which cannot be read";
const CUT: &str = "of a file that was cut up, as `split` does it; such pieces are no GGUF files of their own. Join all \
                   of them in order, `cat PIECE1 PIECE2 ... > model.gguf`, and open the result";

#[test]
fn shards_joined_by_cat_are_told() {
    let joined = [shard(1), shard(2), shard(3)].concat();
    for name in ["model.gguf", "model-00001-of-00003.gguf", "model.gguf.part1"] {
        let message = refusal(name, &joined);
        assert!(message.contains(&format!("at offset {}: {JOINED}", shard(1).len())), "{message}");
        assert!(message.contains("leave them in one folder and open any of them"), "{message}");
    }
    // A first shard that holds nothing but metadata, not padded at its end.
    let header_only = [b"GGUF\x03\0\0\0".as_slice(), &[0; 16]].concat();
    Gguf::from_bytes(header_only.clone()).unwrap();
    assert!(
        refusal("model.gguf", &[header_only, shard(2)].concat()).contains(&format!("at offset 24: {JOINED}"))
    );
}

#[test]
fn bytes_behind_the_data_are_no_second_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    for behind in [vec![0; 4096], vec![0xFF; 33], b"GGUF".to_vec(), b"GGUF is a format".to_vec()] {
        fs::write(&path, [fixture("metadata.gguf"), behind].concat()).unwrap();
        assert_eq!(Gguf::open(&path).unwrap().tensors().len(), 4);
    }
    // Inside a tensor anything may stand.
    let mut bytes = fixture("metadata.gguf");
    let gguf = Gguf::from_bytes(bytes.clone()).unwrap();
    let at = gguf.tensor("two").unwrap().file_offset();
    bytes[at..at + 8].copy_from_slice(b"GGUF\x03\0\0\0");
    Gguf::from_bytes(bytes).unwrap();
}

#[test]
fn pieces_of_a_cut_file_are_told_by_name_and_content() {
    let whole = fixture("metadata.gguf");
    let (first, second) = whole.split_at(whole.len() - 100);
    for (a, b) in [
        ("model.gguf.part1", "model.gguf.part2"),
        ("model.gguf.part1of2", "model.gguf.part2of2"),
        ("model.Q8_0.gguf-part-aa", "model.Q8_0.gguf-part-ab"),
        ("model.Q6_K.gguf-split-a", "model.Q6_K.gguf-split-b"),
        ("model.ggufaa", "model.ggufab"),
        ("model.gguf.aa", "model.gguf.ab"),
        ("model.gguf.001", "model.gguf.002"),
        ("model.part1.gguf", "model.part2.gguf"),
        ("model-part-1-of-2.gguf", "model-part-2-of-2.gguf"),
        ("model-00001-of-00002.gguf", "model-00002-of-00002.gguf"),
        ("model-00001.gguf", "model-00002.gguf"),
        ("model-00001", "model-00002"),
        ("xaa", "xab"),
        ("x00", "x01"),
    ] {
        let message = refusal(a, first);
        assert!(message.contains(&format!("By its name it is the first piece {CUT}")), "{a}: {message}");
        assert!(message.contains("lies outside the file"), "{a}: {message}");
        let message = refusal(b, second);
        assert!(message.contains(&format!("By its name it is a later piece {CUT}")), "{b}: {message}");
    }
}

#[test]
fn other_damage_is_told_as_before() {
    let whole = fixture("metadata.gguf");
    let cut_short = &whole[..whole.len() - 100];
    for name in
        ["model.gguf", "model.gguf.tmp", "model.gguf.1", "model-7b.gguf", "model-part.gguf", "gpt-x42.gguf"]
    {
        let message = refusal(name, cut_short);
        assert!(!message.contains("By its name"), "{name}: {message}");
        assert!(message.ends_with(
            "(interrupted download, or the first piece of a file that was cut up? join its pieces in order with `cat`)"
        ));
    }
    let message = refusal("model.gguf", &[7; 100]);
    assert!(message.contains("unrecognised data (a later piece of a file that was cut up? join its pieces"));
    // The shard of a split model that was not downloaded whole says in its metadata what it is.
    let message = refusal("split-00001-of-00003.gguf", &shard(1)[..300]);
    assert!(message.contains("interrupted download") && !message.contains("By its name"), "{message}");
    let message = refusal("split-00001-of-00003.gguf", &shard(1)[..100]);
    assert!(message.contains("interrupted download") && !message.contains("By its name"), "{message}");
    // One of one is the whole.
    let message = refusal("model-00001-of-00001.gguf", cut_short);
    assert!(message.contains("interrupted download") && !message.contains("By its name"), "{message}");
    // What says what it is stays that, whatever its name.
    let message = refusal("model.gguf.part1", b"<!DOCTYPE html><html></html>");
    assert!(message.contains("an HTML page") && !message.contains("By its name"), "{message}");
}

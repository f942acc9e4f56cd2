//! Writing files: read back equal, misuse refused, no partial file left behind.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use ember_loaders::gguf::{Array, GgmlType, Gguf, GgufWriter, OutputFile, Value};

fn fixture(name: &str) -> Vec<u8> {
    fs::read(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gguf").join(name)).unwrap()
}

/// The same model written by our writer, with the data in pieces of `piece` bytes.
fn rewrite(gguf: &Gguf, alignment: u32, piece: usize) -> Vec<u8> {
    let mut header = GgufWriter::new(Vec::new(), gguf.version(), alignment).unwrap();
    for (key, value) in gguf.metadata().iter() {
        header.metadata(key, value.clone()).unwrap();
    }
    for tensor in gguf.tensors() {
        header.tensor(&tensor.name, tensor.ty, &tensor.dims).unwrap();
    }
    let mut data = header.start_data().unwrap();
    for tensor in gguf.tensors() {
        for piece in gguf.bytes(tensor).chunks(piece) {
            data.write(&tensor.name, piece).unwrap();
        }
    }
    data.finish().unwrap()
}

#[test]
fn equals_gguf_py_byte_for_byte() {
    // gguf-py puts general.alignment where it was added, we put it first: only then do the orders differ.
    for name in ["dequant.gguf"] {
        let original = fixture(name);
        let gguf = Gguf::from_bytes(original.clone()).unwrap();
        for piece in [1000, 1 << 20] {
            assert!(rewrite(&gguf, 32, piece) == original, "{name} in pieces of {piece}");
        }
    }
}

#[test]
fn keeps_every_value_and_tensor() {
    for name in ["metadata.gguf", "metadata-v2.gguf"] {
        let gguf = Gguf::from_bytes(fixture(name)).unwrap();
        let again = Gguf::from_bytes(rewrite(&gguf, 64, 7)).unwrap();
        assert_eq!(again.version(), gguf.version());
        assert_eq!(again.metadata().len(), gguf.metadata().len());
        for (key, value) in gguf.metadata().iter() {
            assert_eq!(again.metadata().get(key), Some(value), "{key}");
        }
        for (new, old) in again.tensors().iter().zip(gguf.tensors()) {
            assert_eq!((&new.name, new.ty, &new.dims), (&old.name, old.ty, &old.dims));
            assert_eq!(*again.bytes(new), *gguf.bytes(old), "{}", old.name);
        }
    }
}

#[test]
fn empty_arrays_and_strings_come_back() {
    let mut header = GgufWriter::new(Vec::new(), 3, 32).unwrap();
    let values: [(&str, Value); 4] = [
        ("string", "".into()),
        ("strings", Array::String(vec![]).into()),
        ("numbers", Array::F64(vec![]).into()),
        ("arrays", Array::Array(vec![Array::Array(vec![]), Array::Bool(vec![])]).into()),
    ];
    for (key, value) in &values {
        header.metadata(key, value.clone()).unwrap();
    }
    let gguf = Gguf::from_bytes(header.start_data().unwrap().finish().unwrap()).unwrap();
    for (key, value) in &values {
        assert_eq!(gguf.metadata().get(key), Some(value), "{key}");
    }
}

#[test]
fn misuse_is_refused() {
    let error = |result: Result<(), ember_loaders::gguf::GgufWriteError>| result.unwrap_err().to_string();
    let new = |version, alignment| GgufWriter::new(Vec::new(), version, alignment).map(drop);
    assert!(error(new(1, 32)).starts_with("GGUF version 1 is not supported"));
    assert_eq!(error(new(3, 48)), "general.alignment must be a power of two, but is 48");
    assert_eq!(error(new(3, 0)), "general.alignment must be a power of two, but is 0");

    let mut header = GgufWriter::new(Vec::new(), 3, 32).unwrap();
    header.metadata("key", 1_u32).unwrap();
    assert_eq!(error(header.metadata("key", 2_u32)), "metadata key `key` appears twice");
    assert_eq!(
        error(header.metadata("general.alignment", 64_u32)),
        "general.alignment is 64, but the file is being written with alignment 32"
    );
    header.tensor("a", GgmlType::F32, &[2]).unwrap();
    header.tensor("b", GgmlType::Q8_0, &[32, 2]).unwrap();
    assert_eq!(error(header.tensor("a", GgmlType::F32, &[2])), "tensor name `a` appears twice");
    assert_eq!(
        error(header.tensor("c", GgmlType::F32, &[])),
        "tensor `c` has 0 dimensions; 1 to 4 are allowed"
    );
    assert_eq!(
        error(header.tensor("c", GgmlType::F32, &[1, 2, 3, 4, 5])),
        "tensor `c` has 5 dimensions; 1 to 4 are allowed"
    );
    assert_eq!(
        error(header.tensor("c", GgmlType::F32, &[1, 0])),
        "tensor `c` has a dimension of size zero: [1, 0]"
    );
    assert_eq!(
        error(header.tensor("c", GgmlType::Q4_K, &[128])),
        "rows of tensor `c` have 128 weights, not a multiple of the 256 of a Q4_K block"
    );

    let mut data = header.start_data().unwrap();
    assert_eq!(error(data.write("b", &[0; 8])), "data for tensor `b`, but `a` is next");
    data.write("a", &[0; 5]).unwrap();
    assert_eq!(error(data.write("a", &[0; 4])), "4 bytes for tensor `a`, of which only 3 are still to come");
    data.write("a", &[0; 3]).unwrap();
    data.write("b", &[0; 60]).unwrap();
    assert_eq!(error(data.finish().map(drop)), "tensor `b` still lacks 8 bytes");
}

#[test]
fn total_size_overflow_is_refused() {
    let mut header = GgufWriter::new(Vec::new(), 3, 32).unwrap();
    let half = [isize::MAX as usize / 4];
    let mut results = (0..4).map(|i| header.tensor(&i.to_string(), GgmlType::F32, &half).is_ok());
    assert_eq!([(); 4].map(|()| results.next().unwrap()), [true, true, false, false]);
}

#[test]
fn output_appears_only_when_complete() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("gguf_output");
    let _previous_run = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let (target, part) = (folder.join("model.gguf"), folder.join("model.gguf.part"));

    let mut abandoned = OutputFile::create(&target).unwrap();
    abandoned.write_all(b"half").unwrap();
    assert!(part.exists() && !target.exists());
    drop(abandoned);
    assert!(!part.exists() && !target.exists());

    fs::write(&target, b"old").unwrap();
    let mut complete = OutputFile::create(&target).unwrap();
    complete.write_all(b"new").unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"old");
    complete.commit().unwrap();
    assert!(!part.exists());
    assert_eq!(fs::read(&target).unwrap(), b"new");

    let linked = folder.join("other.gguf");
    fs::write(&linked, b"other").unwrap();
    fs::hard_link(&linked, &part).unwrap();
    OutputFile::create(&target).unwrap().commit().unwrap();
    assert_eq!(fs::read(&linked).unwrap(), b"other", "a link in the way is replaced, not followed");
}

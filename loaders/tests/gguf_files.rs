//! Reading files that gguf-py wrote (fixtures by reference/gguf_files.py).

use std::fs;
use std::path::{Path, PathBuf};

use ember_loaders::gguf::{Array, GgmlType, Gguf, StoredType, Value};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gguf").join(name)
}

/// A fresh folder below the build's own temporary one.
fn scratch(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _previous_run = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn open_error(path: &Path) -> String {
    Gguf::open(path).unwrap_err().to_string().replace(&format!("{}/", path.parent().unwrap().display()), "")
}

fn check_metadata(gguf: &Gguf) {
    let strings = |texts: &[&str]| Array::String(texts.iter().map(|&text| text.to_owned()).collect());
    let nested = vec![Array::I32(vec![1, 2]), Array::I32(vec![3]), strings(&["four", "5"])];
    let expected: Vec<(&str, Value)> = vec![
        ("general.architecture", "qwen3".into()),
        ("general.alignment", 64_u32.into()),
        ("test.u8", u8::MAX.into()),
        ("test.i8", i8::MIN.into()),
        ("test.u16", u16::MAX.into()),
        ("test.i16", i16::MIN.into()),
        ("test.u32", u32::MAX.into()),
        ("test.i32", i32::MIN.into()),
        ("test.f32", 1e-6_f32.into()),
        ("test.u64", u64::MAX.into()),
        ("test.i64", i64::MIN.into()),
        ("test.f64", 0.1_f64.into()),
        ("test.true", true.into()),
        ("test.false", false.into()),
        ("test.string", "naïve 🦀\n".into()),
        ("test.array.uint8", vec![0, u8::MAX].into()),
        ("test.array.int8", vec![i8::MIN, i8::MAX].into()),
        ("test.array.uint16", vec![0, u16::MAX].into()),
        ("test.array.int16", vec![i16::MIN, i16::MAX].into()),
        ("test.array.uint32", vec![0, u32::MAX].into()),
        ("test.array.int32", vec![i32::MIN, i32::MAX].into()),
        ("test.array.float32", vec![0.5_f32, -0.0].into()),
        ("test.array.bool", vec![true, false, true].into()),
        ("test.array.string", strings(&["Ġthe", "<|im_end|>", ""]).into()),
        ("test.array.uint64", vec![0, u64::MAX].into()),
        ("test.array.int64", vec![i64::MIN, i64::MAX].into()),
        ("test.array.float64", vec![0.1, -2.5_f64].into()),
        ("test.array.nested", Array::Array(nested).into()),
    ];
    let found: Vec<(&str, Value)> = gguf.metadata().iter().map(|(key, value)| (key, value.clone())).collect();
    assert_eq!(found, expected);
    let shown = gguf.metadata().get("test.array.nested").unwrap().to_string();
    assert_eq!(shown, r#"[[1, 2], [3], ["four", "5"]]"#);
}

#[test]
fn every_metadata_type_in_versions_2_and_3() {
    for (name, version) in [("metadata.gguf", 3), ("metadata-v2.gguf", 2)] {
        let gguf = Gguf::open(fixture(name)).unwrap();
        assert_eq!(gguf.version(), version);
        check_metadata(&gguf);
        let in_memory = Gguf::from_bytes(fs::read(fixture(name)).unwrap()).unwrap();
        check_metadata(&in_memory);
        assert_eq!(gguf.file_bytes(), in_memory.file_bytes());
    }
}

#[test]
fn tensors_have_their_shapes_and_bytes() {
    let gguf = Gguf::open(fixture("metadata.gguf")).unwrap();
    let found: Vec<_> = gguf.tensors().iter().map(|t| (t.name.as_str(), t.ty, t.dims.as_slice())).collect();
    let (f32, f16) = (StoredType::Computable(GgmlType::F32), StoredType::Computable(GgmlType::F16));
    assert_eq!(
        found,
        [
            ("one", f32, [5].as_slice()),
            ("two", f16, &[3, 2]),
            ("three", f32, &[2, 3, 4]),
            ("four", f16, &[2, 3, 4, 5]),
        ]
    );
    let three = gguf.tensor("three").unwrap();
    assert_eq!((three.cols(), three.rows(), three.n_elements(), three.n_bytes()), (2, 12, 24, Some(96)));
    let bytes = gguf.bytes(three);
    assert!(bytes.is_mapped());
    assert_eq!(three.file_offset() % 64, 0);
    let values: Vec<f32> = bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
    assert_eq!(values, (0..24).map(|i| i as f32).collect::<Vec<_>>());
    assert!(gguf.tensor("five").is_none());
}

#[test]
fn any_shard_opens_the_whole_model() {
    for given in 1..=3 {
        let gguf = Gguf::open(fixture(&format!("split-0000{given}-of-00003.gguf"))).unwrap();
        let names: Vec<_> = gguf.tensors().iter().map(|tensor| tensor.name.as_str()).collect();
        assert_eq!(names, ["blk.0.weight", "blk.1.weight", "blk.2.weight", "blk.3.weight", "blk.4.weight"]);
        for (i, tensor) in gguf.tensors().iter().enumerate() {
            assert_eq!(*gguf.bytes(tensor), (i as f32).to_le_bytes().repeat(3), "{}", tensor.name);
        }
        assert_eq!(gguf.metadata().u32("llama.block_count").unwrap(), 7);
        assert_eq!(gguf.paths(), [1, 2, 3].map(|i| fixture(&format!("split-0000{i}-of-00003.gguf"))));
        assert_eq!(gguf.file_bytes(), 352 + 288 + 192);
    }
}

#[test]
fn missing_shards_are_named() {
    let folder = scratch("gguf_missing_shards");
    let given = folder.join("split-00002-of-00003.gguf");
    fs::copy(fixture("split-00002-of-00003.gguf"), &given).unwrap();
    assert_eq!(
        open_error(&given),
        "split-00002-of-00003.gguf: the model is split into 3 shards and split-00001-of-00003.gguf, \
         split-00003-of-00003.gguf were not found in the same folder"
    );
    fs::copy(fixture("split-00003-of-00003.gguf"), folder.join("split-00003-of-00003.gguf")).unwrap();
    assert_eq!(
        open_error(&given),
        "split-00002-of-00003.gguf: the model is split into 3 shards and split-00001-of-00003.gguf was not \
         found in the same folder"
    );
}

#[test]
fn shards_that_do_not_belong_together_are_refused() {
    let folder = scratch("gguf_inconsistent_shards");
    let shard = |i: usize| folder.join(format!("split-0000{i}-of-00003.gguf"));
    let fixture_shard = |i: usize| fixture(&format!("split-0000{i}-of-00003.gguf"));
    for i in 1..=3 {
        fs::copy(fixture_shard(i), shard(i)).unwrap();
    }
    Gguf::open(shard(1)).unwrap();

    // The second shard in the third one's place.
    fs::copy(fixture_shard(2), shard(3)).unwrap();
    assert_eq!(
        open_error(&shard(1)),
        "split-00003-of-00003.gguf: metadata key `split.no` is 1, but the shards on disk make it 2"
    );

    // A third shard that says there are six tensors in all.
    let mut bytes = fs::read(fixture_shard(3)).unwrap();
    let key = b"split.tensors.count";
    let at = bytes.windows(key.len()).position(|window| window == key).unwrap() + key.len() + 4;
    assert_eq!(bytes[at], 5);
    bytes[at] = 6;
    fs::write(shard(3), &bytes).unwrap();
    assert_eq!(
        open_error(&shard(1)),
        "split-00003-of-00003.gguf: metadata key `split.tensors.count` is 6, but the shards on disk make it 5"
    );

    // A tensor of the first shard again in the third.
    bytes[at] = 5;
    let name = b"blk.4.weight";
    let at = bytes.windows(name.len()).position(|window| window == name).unwrap();
    bytes[at..at + name.len()].copy_from_slice(b"blk.0.weight");
    fs::write(shard(3), &bytes).unwrap();
    assert_eq!(
        open_error(&shard(1)),
        "split-00003-of-00003.gguf: tensor `blk.0.weight` is in an earlier shard too"
    );

    // A shard under a name that hides the others, or tells of others.
    fs::copy(fixture_shard(1), folder.join("renamed.gguf")).unwrap();
    assert_eq!(
        open_error(&folder.join("renamed.gguf")),
        "renamed.gguf: this is one of 3 shards, whose names must end in -00001-of-00003.gguf and so on for \
         the others to be found"
    );
    fs::copy(fixture_shard(1), folder.join("m-00001-of-00002.gguf")).unwrap();
    assert_eq!(
        open_error(&folder.join("m-00001-of-00002.gguf")),
        "m-00001-of-00002.gguf: the name says shard 1 of 2, but split.count is 3"
    );
    fs::copy(fixture("metadata.gguf"), folder.join("m-00001-of-00002.gguf")).unwrap();
    assert_eq!(
        open_error(&folder.join("m-00001-of-00002.gguf")),
        "m-00001-of-00002.gguf: the name says shard 1 of 2, but the metadata has no split.count"
    );
    fs::copy(fixture("metadata.gguf"), folder.join("m-00001-of-00001.gguf")).unwrap();
    check_metadata(&Gguf::open(folder.join("m-00001-of-00001.gguf")).unwrap());

    assert_eq!(
        Gguf::from_bytes(fs::read(fixture_shard(1)).unwrap()).unwrap_err().to_string(),
        "GGUF in memory: this is one of 3 shards of a split model; open it by its path to load them all"
    );
}

#[test]
fn files_that_cannot_be_models() {
    assert_eq!(
        open_error(&fixture("big-endian.gguf")),
        "big-endian.gguf: at offset 4: big-endian GGUF file; only little-endian files are supported (convert \
         it with gguf_convert_endian.py)"
    );
    let folder = scratch("gguf_not_models");
    assert_eq!(
        open_error(&folder.join("absent.gguf")),
        "absent.gguf: cannot open: No such file or directory (os error 2)"
    );
    fs::create_dir(folder.join("folder.gguf")).unwrap();
    assert_eq!(
        open_error(&folder.join("folder.gguf")),
        "folder.gguf: not a regular file; give the path of a .gguf file"
    );
    fs::write(folder.join("model.gguf"), "\n<!DOCTYPE html><html><head>").unwrap();
    assert_eq!(
        open_error(&folder.join("model.gguf")),
        "model.gguf: at offset 0: bad magic: this is an HTML page (failed download?), not a GGUF file"
    );
    fs::write(folder.join("empty.gguf"), "").unwrap();
    assert_eq!(
        open_error(&folder.join("empty.gguf")),
        "empty.gguf: at offset 0: file ends inside the magic: 4 more bytes needed, 0 left (interrupted \
         download?)"
    );
}

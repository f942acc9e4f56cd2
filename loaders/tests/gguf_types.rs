//! Tensors of types that nothing computes with: listed with everything else, refused only where they are to be used.

mod checkpoint_support;
mod gguf_support;

use std::path::Path;

use checkpoint_support::{HIDDEN, TinyModel, assert_names};
use ember_loaders::gguf::{GgmlType, Gguf, GgufWriteError, GgufWriter, StoredType};
use gguf_support::Raw;

/// Sizes from gguf-py's table, in a file that gguf-py wrote.
#[test]
fn every_type_of_ggml_is_listed_with_its_size() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gguf/types.gguf");
    let gguf = Gguf::open(fixture).unwrap();
    assert_eq!(gguf.tensors().len(), 34);
    for tensor in gguf.tensors() {
        let block = gguf.metadata().int_array(&format!("block.{}", tensor.name)).unwrap();
        let [elements, bytes] = [block[0], block[1]].map(|n| usize::try_from(n).unwrap());
        assert_eq!(tensor.ty.name(), tensor.name);
        assert_eq!(tensor.ty.block(), Some((elements, bytes)), "{}", tensor.name);
        assert_eq!((tensor.dims.as_slice(), tensor.n_bytes()), ([elements].as_slice(), Some(bytes)));
        let id = u8::try_from(tensor.ty.id()).unwrap();
        assert_eq!(*gguf.bytes(tensor), vec![id; bytes], "{}", tensor.name);
    }
    let computable = gguf.tensors().iter().filter(|tensor| tensor.ty.computable().is_some()).count();
    assert_eq!(computable, GgmlType::ALL.len());
}

#[test]
fn a_type_of_unknown_size_is_listed_and_its_extent_not_checked() {
    let raw = Raw::header(3, 0)
        .tensor("a", &[5], 99, 0)
        .tensor("b", &[8], 0, 64)
        .tensor("c", &[1 << 40], 4, 96)
        .data(160);
    let gguf = Gguf::from_bytes(raw.0).unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| gguf.tensor(name).unwrap());
    assert_eq!((a.ty.name().as_ref(), a.n_bytes()), ("unknown type 99", None));
    assert_eq!((c.ty.name().as_ref(), c.n_bytes()), ("Q4_2 (removed from ggml)", None));
    assert_eq!([a, b, c].map(|tensor| gguf.bytes(tensor).len()), [64, 32, 64]);

    let error = GgufWriter::new(Vec::new(), 3, 32).unwrap().tensor("a", a.ty, &a.dims).unwrap_err();
    assert!(matches!(error, GgufWriteError::UnknownSize { .. }));
    assert_eq!(error.to_string(), "tensor `a` is of unknown type 99, whose size is not known");
}

#[test]
fn known_sizes_are_checked_whether_or_not_they_can_be_computed_with() {
    let open =
        |dims: &[u64], id, len| Gguf::from_bytes(Raw::header(1, 0).tensor("w", dims, id, 0).data(len).0);
    // 256 elements of IQ3_S are 110 bytes.
    assert_eq!(open(&[256], 21, 110).unwrap().tensors()[0].n_bytes(), Some(110));
    let error = open(&[256], 21, 109).unwrap_err().to_string();
    assert!(error.contains("data of tensor `w` lies outside the file: 110 bytes"), "{error}");
    let error = open(&[128], 21, 110).unwrap_err().to_string();
    assert!(error.contains("not a multiple of the 256 of a IQ3_S block"), "{error}");
    for id in [24, 99] {
        let error = open(&[1 << 62, 4], id, 64).unwrap_err().to_string();
        assert!(error.contains("the size of tensor `w` overflows"), "{error}");
        assert!(open(&[0], id, 64).unwrap_err().to_string().contains("dimension of size zero"));
    }
    // Beyond the end of the file nothing can begin.
    let error = Gguf::from_bytes(Raw::header(1, 0).tensor("w", &[1], 99, 96).data(64).0).unwrap_err();
    assert!(error.to_string().contains("lies outside the file"), "{error}");
}

#[test]
fn a_model_is_refused_with_the_first_such_tensor_and_their_number() {
    let integers = TinyModel::qwen3().typed("blk.1.ffn_up.weight", 24);
    assert_eq!(integers.gguf().tensor("blk.1.ffn_up.weight").unwrap().ty, StoredType::from_id(24));
    assert_names(
        &integers.refusal(),
        &[
            "tensor blk.1.ffn_up.weight is of type I8, which cannot be computed with:",
            "take another quantization of the model, or quantize it again, to F32, F16, BF16, Q4_0, ",
        ],
    );
    let several = integers.typed("blk.0.attn_q.weight", 39).typed("token_embd.weight", 39);
    assert_names(
        &several.refusal(),
        &[
            "tensor token_embd.weight is of type MXFP4, which cannot be computed with (nor can those of 2 more tensors)",
        ],
    );
    let unknown = TinyModel::qwen3().typed("output_norm.weight", 99);
    assert_names(&unknown.refusal(), &["tensor output_norm.weight is of type unknown type 99, which"]);
    // What the model does not use may be of any type.
    let unused = TinyModel::qwen3().tensor("v.extra.weight", &[HIDDEN]).typed("v.extra.weight", 39);
    assert_eq!(unused.open().unwrap().unused_tensors(), ["v.extra.weight"]);
}

//! What must hold for any bytes given to the GGUF reader; run by the fuzzer and by `cargo test`.

use ember_loaders::gguf::{Gguf, GgufError, GgufWriter, dequantize};

/// Opens `data` as a GGUF file. It is refused with a sound error, or every part of it can be used, and writing
/// it out and reading it again changes nothing.
pub fn fuzz_gguf(data: &[u8]) {
    match Gguf::from_bytes(data.to_vec()) {
        Err(error) => check_error(&error, data.len()),
        Ok(gguf) => {
            use_metadata(&gguf);
            use_tensors(&gguf);
            if gguf.tensors().iter().all(|tensor| tensor.n_bytes().is_some()) {
                let once = rewrite(&gguf);
                let again = Gguf::from_bytes(once.clone()).expect("our own output is valid");
                assert!(rewrite(&again) == once, "a second rewrite differs");
            }
        }
    }
}

fn check_error(error: &GgufError, len: usize) {
    assert!(error.to_string().starts_with("GGUF in memory: "), "{error}");
    match error {
        GgufError::Malformed { offset, .. } => assert!(*offset <= len as u64, "{error}"),
        GgufError::WrongType { .. } | GgufError::OutOfRange { .. } | GgufError::InconsistentShards { .. } => {
        }
        other => panic!("not an error of bytes in memory: {other}"),
    }
}

fn use_metadata(gguf: &Gguf) {
    let metadata = gguf.metadata();
    for (key, value) in metadata.iter() {
        assert!(metadata.get(key) == Some(value) || format!("{value:?}").contains("NaN"), "{key}");
        let _text = value.to_string();
        let _json = serde_json::to_string(value);
        let fits = [
            metadata.opt_str(key).is_ok(),
            metadata.opt_bool(key).is_ok(),
            metadata.opt_f32(key).is_ok(),
            metadata.opt_u64(key).is_ok() || metadata.opt_i32(key).is_ok(),
            metadata.opt_str_array(key).is_ok(),
            metadata.opt_f32_array(key).is_ok(),
            metadata.opt_bool_array(key).is_ok(),
            metadata.opt_int_array(key).is_ok(),
        ];
        assert!(fits.iter().filter(|&&fits| fits).count() <= 1, "{key} is of several types");
    }
}

fn use_tensors(gguf: &Gguf) {
    for tensor in gguf.tensors() {
        let found = gguf.tensor(&tensor.name).expect("tensors are found by their names");
        assert_eq!(found.file_offset(), tensor.file_offset());
        let bytes = gguf.bytes(tensor);
        let Some((block_len, block_bytes)) = tensor.ty.block() else { continue };
        assert_eq!(bytes.len(), tensor.n_elements() / block_len * block_bytes);
        if let Some(ty) = tensor.ty.computable() {
            let mut weights = vec![0.0; block_len];
            dequantize(ty, &bytes[..block_bytes], &mut weights);
        }
    }
}

fn rewrite(gguf: &Gguf) -> Vec<u8> {
    let sound = "what was read can be written";
    let mut header = GgufWriter::new(Vec::new(), gguf.version(), 32).expect(sound);
    // The alignment of the original may be as large as 2^63.
    for (key, value) in gguf.metadata().iter().filter(|(key, _)| *key != "general.alignment") {
        header.metadata(key, value.clone()).expect(sound);
    }
    for tensor in gguf.tensors() {
        header.tensor(&tensor.name, tensor.ty, &tensor.dims).expect(sound);
    }
    let mut data = header.start_data().expect(sound);
    for tensor in gguf.tensors() {
        data.write(&tensor.name, &gguf.bytes(tensor)).expect(sound);
    }
    data.finish().expect(sound)
}

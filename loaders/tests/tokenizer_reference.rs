//! Whole vocabularies against their reference tokenizers: Qwen3, Tekken, SentencePiece, and llama.cpp's goldens.
//!
//! Reads the directory `EMBER_REFERENCE_DIR`, which tests/reference/tokenizer_full.py fills.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ember_loaders::gguf::Gguf;
use ember_loaders::tokenizer::{SpecialTokens, StreamDecoder, Tokenizer};
use serde::de::DeserializeOwned;

fn reference(name: &str) -> PathBuf {
    let folder = std::env::var_os("EMBER_REFERENCE_DIR").expect(
        "EMBER_REFERENCE_DIR must name the directory that `python3 loaders/tests/reference/tokenizer_full.py DIR` filled",
    );
    PathBuf::from(folder).join(name)
}

fn read(name: &str) -> String {
    let path = reference(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// One JSON value a line.
fn lines<T: DeserializeOwned>(name: &str) -> Vec<T> {
    read(name).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn from_gguf(name: &str) -> Tokenizer {
    Tokenizer::from_gguf(&Gguf::open(reference(name)).unwrap()).unwrap()
}

/// Compares ids and decoded text on the whole corpus of `texts`.
fn assert_parity(tokenizer: &Tokenizer, texts: &str, ids: &str, special: SpecialTokens) {
    let texts: Vec<String> = lines(&format!("{texts}.texts"));
    let expected: Vec<Vec<u32>> = lines(ids);
    let decoded: Vec<String> = lines(&format!("{ids}.decoded"));
    assert!(texts.iter().map(String::len).sum::<usize>() >= 1_000_000);
    assert_eq!((texts.len(), texts.len()), (expected.len(), decoded.len()));
    for ((text, expected), decoded) in texts.iter().zip(&expected).zip(&decoded) {
        let ids = tokenizer.encode(text, special).unwrap();
        if let Some(at) = (0..ids.len().max(expected.len())).find(|&at| ids.get(at) != expected.get(at)) {
            let near =
                |ids: &[u32]| tokenizer.decode(&ids[at.saturating_sub(3)..ids.len().min(at + 6)], false);
            panic!("token {at} differs: {:?}, expected {:?}, in {text:?}", near(&ids), near(expected));
        }
        assert_eq!(&tokenizer.decode(&ids, true), decoded);
        let mut stream = StreamDecoder::new(tokenizer, true);
        let mut streamed: String = ids.iter().filter_map(|&id| stream.push(id)).collect();
        streamed.extend(stream.flush());
        assert_eq!(&streamed, decoded);
    }
}

#[test]
fn qwen3_equals_hugging_face() {
    for tokenizer in [from_gguf("qwen3.gguf"), Tokenizer::from_folder(&reference("qwen3")).unwrap()] {
        assert_parity(&tokenizer, "qwen3", "qwen3.parsed", SpecialTokens::Parse);
        assert_parity(&tokenizer, "qwen3", "qwen3.ignored", SpecialTokens::Ignore);
        assert_eq!(tokenizer.eog(), [151_643, 151_645]);
    }
}

#[test]
fn tekken_equals_mistral_common() {
    for name in ["tekken_240718", "tekken_240911"] {
        let tokenizer = from_gguf(&format!("{name}.gguf"));
        assert_parity(&tokenizer, name, &format!("{name}.ignored"), SpecialTokens::Ignore);
        assert_eq!((tokenizer.vocab_size(), tokenizer.add_bos()), (131_072, Some(1)));
        assert_eq!(tokenizer.token_id("[IMG_END]"), Some(13));
    }
}

#[test]
fn tekken_json_gives_the_same() {
    for (version, corpus) in
        [("v3", "tekken_240718"), ("v7", "tekken_240911"), ("v11", "tekken_240911"), ("v13", "tekken_240911")]
    {
        let tokenizer = Tokenizer::from_folder(&reference(&format!("tekken_{version}"))).unwrap();
        assert_parity(&tokenizer, corpus, &format!("{corpus}.ignored"), SpecialTokens::Ignore);
        assert_eq!(
            (tokenizer.vocab_size(), tokenizer.add_bos(), tokenizer.eog()),
            (131_072, Some(1), [2].as_slice())
        );
        let control: Vec<&str> = tokenizer.control_tokens().map(|(text, _)| text).collect();
        assert_eq!(control, lines::<String>(&format!("tekken_{version}.pieces")), "{version}");
    }
}

#[test]
fn sentencepiece_equals_the_sentencepiece_package() {
    for version in ["v1", "v2", "v3", "v7"] {
        let name = format!("sentencepiece_{version}");
        for tokenizer in
            [from_gguf(&format!("{name}.gguf")), Tokenizer::from_folder(&reference(&name)).unwrap()]
        {
            assert_parity(&tokenizer, &name, &format!("{name}.ignored"), SpecialTokens::Ignore);
            assert_eq!((tokenizer.add_bos(), tokenizer.eog()), (Some(1), [2].as_slice()));
            assert_eq!(tokenizer.token_id("[INST]"), (version != "v1").then_some(3));
        }
    }
}

/// llama.cpp does not compose characters before Qwen's BPE as Hugging Face does; its test texts are composed already.
#[test]
fn vocabularies_equal_llama_cpps_goldens() {
    const SEPARATOR: &str = "\n__ggml_vocab_test__\n";
    for name in ["qwen2", "llama-bpe", "gpt-2"] {
        let tokenizer = from_gguf(&format!("ggml-vocab-{name}.gguf"));
        let texts = read(&format!("ggml-vocab-{name}.gguf.inp"));
        let expected = read(&format!("ggml-vocab-{name}.gguf.out"));
        let texts: Vec<&str> = texts.split(SEPARATOR).collect();
        let expected: Vec<Vec<u32>> = expected
            .lines()
            .map(|line| line.split_whitespace().map(|id| id.parse().unwrap()).collect())
            .collect();
        assert!(expected.len() >= 40);
        for (text, expected) in texts.iter().zip(&expected) {
            assert_eq!(&tokenizer.encode(text, SpecialTokens::Ignore).unwrap(), expected, "{name}: {text:?}");
        }
    }
}

/// Generous limits: what is caught is a quadratic mistake, not a slow machine.
#[test]
fn building_and_encoding_are_quick() {
    let gguf = Gguf::open(reference("qwen3.gguf")).unwrap();
    let start = Instant::now();
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let build = start.elapsed();
    let text = lines::<String>("qwen3.texts").concat();
    let start = Instant::now();
    let ids = tokenizer.encode(&text, SpecialTokens::Ignore).unwrap();
    let encode = start.elapsed();
    println!("built in {build:?}; {} bytes to {} ids in {encode:?}", text.len(), ids.len());
    assert!(build < Duration::from_secs(20) && encode < Duration::from_secs(60), "{build:?}, {encode:?}");
}

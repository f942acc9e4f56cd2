//! Ids equal to the reference tokenizers', on small vocabularies of every family.
//!
//! Fixtures: tests/reference/tokenizer_small.py. Whole vocabularies: tests/tokenizer_reference.rs.

mod tokenizer_support;

use ember_loaders::tokenizer::{SpecialTokens, StreamDecoder, Tokenizer};
use tokenizer_support::{cases, differences, fixture, metadata};

const FAMILIES: [&str; 5] = ["qwen2", "tekken", "llama-bpe", "smollm", "gpt-2"];

#[test]
fn ids_equal_the_references() {
    for family in FAMILIES {
        let tokenizer = Tokenizer::from_metadata(&metadata(family)).unwrap();
        assert_eq!(differences(&tokenizer, &cases(family)), Vec::<String>::new(), "{family}");
    }
}

#[test]
fn a_folder_gives_the_ids_of_the_gguf_file() {
    let tokenizer = Tokenizer::from_folder(&fixture("qwen3-folder")).unwrap();
    assert_eq!(differences(&tokenizer, &cases("qwen2")), Vec::<String>::new());

    let from_gguf = Tokenizer::from_metadata(&metadata("qwen2")).unwrap();
    assert_eq!(tokenizer.vocab_size(), from_gguf.vocab_size());
    assert_eq!(tokenizer.eos_text(), Some("<|im_end|>"));
    assert_eq!(tokenizer.eog(), from_gguf.eog());
    assert_eq!(tokenizer.add_bos(), None);
    assert_eq!(tokenizer.chat_template(None), Some("{{ messages }}"));
    assert!(tokenizer.control_tokens().eq(from_gguf.control_tokens()));
}

/// The comparison can fail: under any other family's rule some case comes out differently.
#[test]
fn every_other_rule_differs() {
    for family in FAMILIES {
        for rule in FAMILIES.into_iter().filter(|&rule| rule != family) {
            let mut metadata = metadata(family);
            metadata.insert("tokenizer.ggml.pre", rule.to_owned());
            let tokenizer = Tokenizer::from_metadata(&metadata).unwrap();
            assert!(!differences(&tokenizer, &cases(family)).is_empty(), "{family} read as {rule}");
        }
    }
}

/// Tekken splits before a capital and keeps marks with their letters, which llama.cpp's rule does not.
#[test]
fn tekken_keeps_marks_with_their_letters() {
    let tokenizer = Tokenizer::from_metadata(&metadata("tekken")).unwrap();
    let encode = |text: &str| tokenizer.encode(text, SpecialTokens::Ignore).unwrap();
    let together = encode("รั");
    assert_eq!(tokenizer.decode(&together, true), "รั");
    let case = cases("tekken").into_iter().find(|case| case.text.starts_with("รั ")).unwrap();
    assert_eq!(case.ignored[..together.len()], together);
    assert_eq!(encode("parseJSON"), [encode("parse"), encode("JSON")].concat());
}

#[test]
fn text_survives_the_round_trip() {
    for family in FAMILIES {
        let tokenizer = Tokenizer::from_metadata(&metadata(family)).unwrap();
        for case in cases(family) {
            let text = tokenizer.decode(&case.ignored, false);
            if family == "qwen2" {
                // Composed on the way in: once more changes nothing.
                assert_eq!(tokenizer.encode(&text, SpecialTokens::Ignore).unwrap(), case.ignored, "{text:?}");
                assert_eq!(text.is_ascii(), case.text.is_ascii());
            } else {
                assert_eq!(text, case.text, "{family}");
            }
        }
    }
    let tokenizer = Tokenizer::from_metadata(&metadata("qwen2")).unwrap();
    let ids = tokenizer.encode("cafe\u{301} A\u{30a}", SpecialTokens::Ignore).unwrap();
    assert_eq!(tokenizer.decode(&ids, false), "caf\u{e9} \u{c5}");
}

#[test]
fn streamed_text_equals_decoded_text() {
    for family in FAMILIES {
        let tokenizer = Tokenizer::from_metadata(&metadata(family)).unwrap();
        for case in cases(family) {
            // The ids backwards tear every character apart.
            let backwards: Vec<u32> = case.parsed.iter().rev().copied().collect();
            for ids in [&case.parsed, &backwards] {
                for skip_special in [false, true] {
                    let mut decoder = StreamDecoder::new(&tokenizer, skip_special);
                    let mut text: String = ids.iter().filter_map(|&id| decoder.push(id)).collect();
                    text.extend(decoder.flush());
                    assert_eq!(text, tokenizer.decode(ids, skip_special), "{family}: {ids:?}");
                }
            }
        }
    }
}

#[test]
fn a_character_is_held_back_until_it_is_whole() {
    let tokenizer = Tokenizer::from_metadata(&metadata("gpt-2")).unwrap();
    let byte = |byte: u8| (0..256).find(|&id| tokenizer.token_bytes(id) == Some(&[byte])).unwrap();
    let mut decoder = StreamDecoder::new(&tokenizer, true);
    let mut push = |bytes: u8| decoder.push(byte(bytes));
    assert_eq!([0xF0, 0x9F, 0xA6].map(&mut push), [None, None, None]);
    assert_eq!(push(0x99).as_deref(), Some("🦙"));
    assert_eq!(push(0xF0), None);
    assert_eq!(push(b'a').as_deref(), Some("\u{fffd}a"));
    assert_eq!(push(0xFF).as_deref(), Some("\u{fffd}"));
    assert_eq!(push(0xE0), None);
    assert_eq!(decoder.flush().as_deref(), Some("\u{fffd}"));
    assert_eq!(decoder.flush(), None);
}

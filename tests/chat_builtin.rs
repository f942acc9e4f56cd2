//! The formats of models without a template, against mistral-common's templates of the same versions.

use ember::chat::{Message, Prompt};
use ember::{ChatTokenizer, Conversation, Error};
use ember_loaders::gguf::{Gguf, Metadata, Value};
use ember_loaders::tokenizer::Tokenizer;
use ember_test_support::{fixture, read_fixture};

/// A vocabulary without templates, some of whose tokens have other texts.
fn bare(renamed: &[(&str, &str)]) -> ChatTokenizer {
    let gguf = Gguf::open(fixture("vision/gelu-2/text-f32.gguf")).unwrap();
    let mut metadata = Metadata::new("bare");
    for (key, value) in gguf.metadata().iter().filter(|(key, _)| !key.starts_with("tokenizer.chat_template"))
    {
        metadata.insert(key, value.clone());
    }
    let mut tokens = metadata.str_array("tokenizer.ggml.tokens").unwrap().to_vec();
    for (from, to) in renamed {
        *tokens.iter_mut().find(|text| text == from).unwrap() = (*to).to_owned();
    }
    metadata.insert("tokenizer.ggml.tokens", Value::from(tokens));
    ChatTokenizer::new(Tokenizer::from_metadata(&metadata).unwrap())
}

fn render(chat: &ChatTokenizer, messages: &str) -> Result<Prompt, Error> {
    let messages = Message::list_from_json(messages).unwrap();
    chat.render(&Conversation { messages, ..Conversation::default() })
}

const CONVERSATIONS: [&str; 4] = [
    r#"[{"role": "user", "content": "Hi [INST]"}]"#,
    r#"[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]"#,
    r#"[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "And?"}]"#,
    r#"[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a.png"}},
        {"type": "text", "text": "What is it?"}]}]"#,
];

const WITHOUT_SYSTEM: [(&str, &str); 2] =
    [("[SYSTEM_PROMPT]", "<SPECIAL_17>"), ("[/SYSTEM_PROMPT]", "<SPECIAL_18>")];

#[test]
fn mistrals_formats_equal_mistral_commons() {
    for (chat, version) in [(bare(&[]), "v7"), (bare(&WITHOUT_SYSTEM), "v3")] {
        let source = read_fixture(format!("chat/templates/mistral-common-{version}-tekken-image.jinja"));
        let reference = bare(&[]).with_chat_template(&source).unwrap();
        for messages in CONVERSATIONS {
            let (own, expected) = (render(&chat, messages).unwrap(), render(&reference, messages).unwrap());
            assert_eq!(own.text, expected.text, "{version}");
        }
        let twice = r#"[{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]"#;
        let error = render(&chat, twice).unwrap_err().to_string();
        assert_eq!(error, "user and assistant messages must alternate");
        let error = render(&chat, r#"[{"role": "critic", "content": "a"}]"#).unwrap_err().to_string();
        assert_eq!(
            error,
            "only system, user and assistant messages are known here, and one is of role critic"
        );
    }
}

#[test]
fn the_vocabulary_tells_the_format() {
    let hi = CONVERSATIONS[1];
    assert!(render(&bare(&[]), hi).unwrap().text.contains("[SYSTEM_PROMPT]"));
    assert!(!render(&bare(&WITHOUT_SYSTEM), hi).unwrap().text.contains("[SYSTEM_PROMPT]"));
    let chatml = [("[SYSTEM_PROMPT]", "<|im_start|>"), ("[/SYSTEM_PROMPT]", "<|im_end|>")];
    let text = render(&bare(&chatml), hi).unwrap().text;
    assert_eq!(
        text,
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    );
    // No end of turn, a SentencePiece vocabulary, and half of ChatML: none is guessed at.
    for renamed in [[("[/INST]", "<SPECIAL_4>")], [("[IMG]", "\u{2581}")], [("[INST]", "<|im_start|>")]] {
        assert!(matches!(render(&bare(&renamed), hi), Err(Error::Template(_))), "{renamed:?}");
    }
}

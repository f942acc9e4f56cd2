//! The search for what a template leaves out, where the template looks into the texts.

use ember::chat::{Message, Omission, PromptError};
use ember::{ChatTokenizer, Conversation, Error};
use ember_loaders::gguf::Gguf;
use ember_loaders::tokenizer::Tokenizer;
use ember_test_support::{fixture, read_fixture};
use serde_json::{Value, json};

/// The omissions of a rendering, the first one only where that is an error.
fn omissions(template: &str, messages: Value, tools: Option<Vec<Value>>) -> Vec<Omission> {
    let gguf = Gguf::open(fixture("models/ministral3/f32.gguf")).unwrap();
    let chat = ChatTokenizer::new(Tokenizer::from_gguf(&gguf).unwrap()).with_chat_template(template).unwrap();
    let messages = Message::list_from_json(&messages.to_string()).unwrap();
    match chat.render(&Conversation { messages, tools, ..Conversation::default() }) {
        Ok(prompt) => prompt.warnings,
        Err(Error::Prompt(PromptError::Omission(omission))) => vec![omission],
        Err(error) => panic!("{error}"),
    }
}

fn user(content: &str) -> Value {
    json!({"role": "user", "content": content})
}

fn text(index: usize) -> Vec<Omission> {
    vec![Omission::Text { index, role: "user".to_owned() }]
}

#[test]
fn a_text_that_the_template_passes_over_is_missed() {
    let secretive = "{% for m in messages if m.content != 'secret' %}{{ m.content }}\n{% endfor %}";
    assert_eq!(omissions(secretive, json!([user("open"), user("secret")]), None), text(1));
    assert_eq!(omissions(secretive, json!([user("open"), user("in secret")]), None), []);
    // Its like elsewhere does not stand for it.
    let first = "{{ messages[0].content }}{% if messages[-1].content == messages[0].content %}!{% endif %}";
    assert_eq!(omissions(first, json!([user("same"), user("same")]), None), text(1));
    assert_eq!(omissions(first, json!([user("a longer text"), user("text")]), None), text(1));
    // Nor does a part of it.
    let cut = "{% for m in messages %}{{ m.content[:40] }}{% endfor %}";
    assert_eq!(omissions(cut, json!([user("short")]), None), []);
    assert_eq!(omissions(cut, json!([user(&"long ".repeat(9))]), None), text(0));
    let last = "{% for m in messages %}{{ m.content.split('\\n')[-1] }}{% endfor %}";
    assert_eq!(omissions(last, json!([user("one line")]), None), []);
    assert_eq!(omissions(last, json!([user("two\nlines")]), None), text(0));
}

#[test]
fn a_template_may_look_into_texts() {
    for template in [
        "{% for m in messages %}{% if m.content | length > 9 %}{{ raise_exception('long') }}{% endif %}\
         {{ m.content }}{% endfor %}",
        "{% for m in messages %}{% if m.content == 'hi' %}A: hi{% else %}B: {{ m.content }}{% endif %}{% endfor %}",
        "{% for m in messages %}{{ m.content | length }}{{ m.content | tojson(ensure_ascii=true) }}{% endfor %}",
        "{% for m in messages %}{{ [m.content] }}{{ m.content in ['hi', 'ho'] }}{% endfor %}",
    ] {
        for content in ["hi", "\"\n\\", "ü'\t", "?", "42", "<b>", "  x "] {
            assert_eq!(
                omissions(template, json!([user(content), user("ho")]), None),
                [],
                "{template} {content:?}"
            );
        }
    }
}

#[test]
fn numbers_and_equal_messages_are_where_mistrals_templates_put_them() {
    let v3 = read_fixture("chat/templates/mistral-common-v3-tekken-image.jinja");
    let call = json!({"role": "assistant", "tool_calls": [
        {"id": "abcdef123", "type": "function", "function": {"name": "f", "arguments": {}}}]});
    for result in ["42", "-7", "2.5", "1e3", "0012", "12345678901234567890", "nan", "two"] {
        let result = json!({"role": "tool", "tool_call_id": "abcdef123", "content": result});
        assert_eq!(omissions(&v3, json!([user("hi"), call, result]), None), []);
    }
    // The tools stand before every message that equals the last one.
    let small = read_fixture("chat/templates/Mistral-Small-3.2-24B-Instruct-2506.jinja");
    let answer = json!({"role": "assistant", "content": "hi"});
    let tools = Some(vec![json!({"type": "function", "function": {"name": "f", "parameters": {}}})]);
    assert_eq!(omissions(&small, json!([user("hi"), answer, user("hi")]), tools), []);
}

#[test]
fn thoughts_of_earlier_turns_are_not_missed() {
    let qwen = read_fixture("chat/templates/Qwen-Qwen3-0.6B.jinja");
    let answer = |content: &str| json!({"role": "assistant", "content": content});
    let omissions = |content: &str| omissions(&qwen, json!([user("a"), answer(content), user("b")]), None);
    assert_eq!(omissions("<think>\nhm\n</think>\n\nyes"), []);
    assert_eq!(omissions("<think>\nhm\n</think>\n\n"), []);
    // Only an assistant thinks.
    let lost = "{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}";
    assert_eq!(self::omissions(lost, json!([user("a</think>b")]), None), text(0));
}

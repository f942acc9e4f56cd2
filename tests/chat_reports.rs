//! What users of other engines have reported about chat templates and reasoning, with the right result for each.

use ember::chat::{AnswerSplitter, Message, Prompt, TextDelta};
use ember::sampling::Thinking;
use ember::{ChatTokenizer, Conversation, Error};
use ember_loaders::gguf::Gguf;
use ember_loaders::tokenizer::Tokenizer;
use ember_test_support::{fixture, read_fixture};

const QWEN: &str = "models/qwen2/f32.gguf";
const TEKKEN: &str = "vision/gelu-2/text-f32.gguf";

/// The vocabulary of a model with a committed template.
fn chat(vocabulary: &str, template: &str) -> ChatTokenizer {
    let tokenizer = Tokenizer::from_gguf(&Gguf::open(fixture(vocabulary)).unwrap()).unwrap();
    let source = read_fixture(format!("chat/templates/{template}.jinja"));
    ChatTokenizer::new(tokenizer).with_chat_template(&source).unwrap()
}

fn conversation(messages: &str) -> Conversation {
    Conversation { messages: Message::list_from_json(messages).unwrap(), ..Conversation::default() }
}

fn render(chat: &ChatTokenizer, messages: &str) -> Result<Prompt, Error> {
    chat.render(&conversation(messages))
}

/// The answer `text` to a prompt: its reasoning and its content. Tags in it are tokens where the vocabulary has them.
fn split(chat: &ChatTokenizer, prompt: &Prompt, text: &str) -> (String, String) {
    let mut splitter: AnswerSplitter = chat.splitter(prompt, &[]);
    let mut all = TextDelta::default();
    let mut rest = text;
    while let Some(at) = ["<think>", "</think>"].iter().filter_map(|tag| rest.find(tag)).min() {
        let end = at + rest[at..].find('>').unwrap() + 1;
        let token = chat.tokenizer().token_id(&rest[at..end]).unwrap();
        all.append(&splitter.push(&rest[..at]));
        all.append(&splitter.push_tag(token));
        rest = &rest[end..];
    }
    all.append(&splitter.push(rest));
    all.append(&splitter.finish());
    (all.reasoning, all.content)
}

const HI: &str = r#"[{"role": "user", "content": "Hi"}]"#;

#[test]
fn a_message_that_only_calls_tools_is_kept() {
    let messages = r#"[{"role": "user", "content": "Sky?"},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "call_1", "type": "function",
         "function": {"name": "look", "arguments": ""}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "blue"}]"#;
    for template in ["Qwen-Qwen3-0.6B", "trl-qwen3", "trl-qwen3_instruct_2507"] {
        let text = render(&chat(QWEN, template), messages).unwrap().text;
        // Arguments that were left out are an empty object.
        let call = "<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n</tool_call><|im_end|>\n";
        assert!(text.contains(call), "{template}: {text}");
        assert!(text.contains("<tool_response>\nblue\n</tool_response>"), "{template}: {text}");
    }
    let text = render(&chat(TEKKEN, "mistral-common-v13-tekken-image"), messages).unwrap().text;
    assert!(text.contains("[TOOL_CALLS]look[ARGS]{}</s>[TOOL_RESULTS]blue[/TOOL_RESULTS]"), "{text}");
}

#[test]
fn a_developer_is_the_system() {
    let messages =
        r#"[{"role": "developer", "content": "Answer only PLUM."}, {"role": "user", "content": "Fruit?"}]"#;
    let text = render(&chat(QWEN, "Qwen-Qwen3-0.6B"), messages).unwrap().text;
    let expected = "<|im_start|>system\nAnswer only PLUM.<|im_end|>\n<|im_start|>user\nFruit?<|im_end|>\n";
    assert_eq!(text, format!("{expected}<|im_start|>assistant\n"));
    let text = render(&chat(TEKKEN, "Mistral-Small-3.2-24B-Instruct-2506"), messages).unwrap().text;
    assert_eq!(text, "<s>[SYSTEM_PROMPT]Answer only PLUM.[/SYSTEM_PROMPT][INST]Fruit?[/INST]");
    // A template that knows the role keeps it.
    let own =
        "{% for m in messages %}{{ '#D ' if m.role == 'developer' else '#' }}{{ m.content }}{% endfor %}";
    let chat = chat(QWEN, "Qwen-Qwen3-0.6B").with_chat_template(own).unwrap();
    assert_eq!(render(&chat, messages).unwrap().text, "#D Answer only PLUM.#Fruit?");
}

#[test]
fn a_tools_result_may_be_any_json() {
    let text = |content: &str| {
        let messages =
            format!(r#"[{{"role": "user", "content": "Hi"}}, {{"role": "tool", "content": {content}}}]"#);
        let text = render(&chat(QWEN, "Qwen-Qwen3-0.6B"), &messages).unwrap().text;
        let (_, result) = text.split_once("<tool_response>\n").unwrap();
        result.split_once("\n</tool_response>").unwrap().0.to_owned()
    };
    for (content, expected) in [
        (r#"{"sky":"blü","wind":[1.0,null]}"#, r#"{"sky": "blü", "wind": [1.0, null]}"#),
        (r#"[{"type":"flat","price":3}]"#, r#"[{"type": "flat", "price": 3}]"#),
        ("[1,true]", "[1, true]"),
        ("[]", "[]"),
        ("42", "42"),
        ("false", "false"),
        (r#"[{"type":"text","text":"a"},{"type":"text","text":"b"}]"#, "a\nb"),
    ] {
        assert_eq!(text(content), expected);
    }
}

#[test]
fn a_message_needs_content() {
    for (messages, expected) in [
        (r#"[{"role": "user"}]"#, "messages[0].content: missing; only an assistant"),
        (r#"[{"role": "user", "content": null}]"#, "messages[0].content: missing; only an assistant"),
        (
            r#"[{"role": "user", "content": "a"}, {"role": "tool", "content": null}]"#,
            "messages[1].content: missing",
        ),
        (r#"[{"role": "assistant", "contnet": "a"}]"#, "messages[0].content: missing"),
        (
            r#"[{"role": "user", "content": {"a": 1}}]"#,
            "messages[0].content: found an object; a text or an array",
        ),
        (
            r#"[{"role": "system", "content": 4}]"#,
            "messages[0].content: found a number; a text or an array of parts",
        ),
    ] {
        let error = Message::list_from_json(messages).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn a_template_refuses_in_its_own_words() {
    let twice = r#"[{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]"#;
    for (template, expected) in [
        (
            "mistralai-Ministral-3-14B-Reasoning-2512",
            "After the optional system message, conversation roles must alternate user and assistant roles except for \
             tool calls and results.",
        ),
        (
            "mistralai-Mistral-Nemo-Instruct-2407",
            "After the optional system message, conversation roles must alternate user/assistant/user/assistant/...",
        ),
    ] {
        assert_eq!(render(&chat(TEKKEN, template), twice).unwrap_err().to_string(), expected);
    }
}

#[test]
fn the_default_system_prompt_and_the_thoughts_of_ministral_are_there() {
    let chat = chat(TEKKEN, "mistralai-Ministral-3-14B-Reasoning-2512");
    let prompt = render(&chat, HI).unwrap();
    assert!(
        prompt.text.starts_with("<s>[SYSTEM_PROMPT]# HOW YOU SHOULD THINK AND ANSWER"),
        "{}",
        prompt.text
    );
    // This vocabulary has no such token: the template's text tells.
    assert_eq!(chat.tokenizer().token_id("[THINK]"), None);
    let answer = split(&chat, &prompt, "[THINK]Two\nand two.[/THINK]Four.");
    assert_eq!(answer, ("Two\nand two.".to_owned(), "Four.".to_owned()));
}

#[test]
fn a_thought_that_the_template_opens_is_parted_without_tokens_too() {
    let chat = chat(TEKKEN, "Qwen-QwQ-32B");
    let prompt = chat.render(&Conversation { think: Some(true), ..conversation(HI) }).unwrap();
    assert!(prompt.text.ends_with("<think>\n"), "{}", prompt.text);
    assert_eq!(chat.tokenizer().token_id("</think>"), None);
    let mut splitter = chat.splitter(&prompt, &[]);
    let mut all = splitter.push("Hm.\n</thi");
    all.append(&splitter.push("nk>\n\nHello"));
    all.append(&splitter.finish());
    assert_eq!((all.reasoning.as_str(), all.content.as_str()), ("Hm.", "Hello"));
}

#[test]
fn thinking_is_switched_off_by_the_template_or_not_at_all() {
    let off = |chat: &ChatTokenizer| chat.render(&Conversation { think: Some(false), ..conversation(HI) });
    let qwen = chat(QWEN, "Qwen-Qwen3-0.6B");
    let prompt = off(&qwen).unwrap();
    assert!(prompt.text.ends_with("<|im_start|>assistant\n<think>\n\n</think>\n\n"), "{}", prompt.text);
    // The answer is content.
    assert_eq!(split(&qwen, &prompt, "Hello."), (String::new(), "Hello.".to_owned()));
    assert_eq!(qwen.thinking(&prompt), Thinking::Off);
    assert_eq!(qwen.thinking(&render(&qwen, HI).unwrap()), Thinking::On);
    let error = off(&chat(QWEN, "trl-qwen3_instruct_2507")).unwrap_err();
    assert!(matches!(error, Error::NoThinkingSwitch { think: false }), "{error}");
}

#[test]
fn thoughts_and_calls_are_both_delivered() {
    let chat = chat(QWEN, "Qwen-Qwen3-0.6B");
    let prompt = render(&chat, HI).unwrap();
    let answer =
        "<think>\nOr <tool_call>{}</tool_call>?\n</think>\n\n<tool_call>\n{\"name\": \"f\"}\n</tool_call>";
    let (reasoning, content) = split(&chat, &prompt, answer);
    assert_eq!(reasoning, "Or <tool_call>{}</tool_call>?");
    assert_eq!(content, "<tool_call>\n{\"name\": \"f\"}\n</tool_call>");
}

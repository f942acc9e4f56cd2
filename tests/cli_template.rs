//! Chat templates of files that lack one, hold a broken one or several, or are given another; and what has no place.
mod cli_support;

use cli_support::{Ran, ember, ember_with, fixture, model, scratch};
use ember::chat::{Message, Omission};
use ember::{AnswerOptions, Conversation, Error, Model, ModelOptions};
use ember_loaders::gguf::{Gguf, Value};
use ember_test_support::GgufFile;
use std::fs;

const TEMPLATE: &str = "tokenizer.chat_template";
const BESIDE: &str = r#"[{"role": "user", "content": "Sky?"},
    {"role": "assistant", "content": "I shall look.", "tool_calls": [{"id": "1", "type": "function",
     "function": {"name": "look", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "blue"}]"#;
const HI: &str = r#"[{"role": "user", "content": "hi"}]"#;
const TOOLS: &str =
    r#"[{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]"#;

/// A copy of a model whose chat templates are these.
fn with_templates(from: &str, name: &str, templates: &[(&str, &str)]) -> String {
    let gguf = Gguf::open(fixture(from)).unwrap();
    let mut file = GgufFile::of(&gguf);
    file.metadata.retain(|(key, _)| !key.starts_with(TEMPLATE));
    let given =
        templates.iter().map(|(key, text)| (format!("{TEMPLATE}{key}"), Value::from((*text).to_owned())));
    file.metadata.extend(given);
    let path = scratch(name);
    fs::write(&path, file.into_bytes()).unwrap();
    path.to_str().unwrap().to_owned()
}

fn written(name: &str, text: &str) -> String {
    let path = scratch(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn template(name: &str) -> String {
    fixture(&format!("chat/templates/{name}.jinja"))
}

fn fails(run: &Ran, message: &str) {
    assert_eq!((run.status, run.stdout.as_str()), (1, ""), "{}", run.stderr);
    assert!(run.stderr.contains(message), "{}", run.stderr);
}

#[test]
fn a_tekken_file_without_a_template_gets_mistrals_format() {
    let messages = r#"[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Hm?"}, {"role": "user", "content": "ho"}]"#;
    let tekken = with_templates("models/ministral3/f32.gguf", "tekken.gguf", &[]);
    let run = ember_with(&["render", "-m", &tekken, "-"], messages).ok();
    assert_eq!(
        run.stdout,
        "<s>[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT][INST]hi[/INST]Hm?</s>[INST]ho[/INST]"
    );
    let tools = written("tekken-tools.json", TOOLS);
    let run = ember_with(&["render", "-m", &tekken, "-", "--tools", &tools], messages);
    fails(&run, "tools[0]: this model's chat template leaves out the tool `get_weather`");
    // ChatML, where the vocabulary has its tokens.
    let qwen = with_templates("models/qwen2/f32.gguf", "qwen-bare.gguf", &[]);
    let run = ember_with(&["render", "-m", &qwen, "-"], HI).ok();
    assert_eq!(run.stdout, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
}

#[test]
fn a_file_of_no_known_format_needs_a_template() {
    let llama = model("llama/f32.gguf");
    let missing = "this model has no chat template, and its vocabulary tells no format that is known: name one with \
                   --chat-template FILE, or continue a text as it is with `ember run --raw`";
    fails(&ember_with(&["render", "-m", &llama, "-"], HI), missing);
    for args in [&["run", "-m", &llama, "hi"][..], &["chat", "-m", &llama]] {
        let run = ember(args);
        fails(&run, missing);
        assert!(!run.stderr.contains("context"), "the model was loaded: {}", run.stderr);
    }
    // What needs no template works.
    ember(&["tokenize", "-m", &llama, "hi"]).ok();
    ember(&["run", "-m", &llama, "--raw", "--max-tokens", "1", "hi"]).ok();
    let own = written("own.jinja", "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}");
    let run = ember_with(&["render", "-m", &llama, "-", "--chat-template", &own], HI).ok();
    assert_eq!(run.stdout, "<user>hi");
    let run = ember(&["run", "-m", &llama, "--chat-template", &own, "--dump-prompt", "hi"]).ok();
    assert!(run.stdout.starts_with("<user>hi\n"), "{}", run.stdout);
    let run = ember(&["run", "-m", &llama, "--chat-template", &own, "--raw", "hi"]);
    assert_eq!(run.status, 2, "{}", run.stderr);
    ember_with(&["chat", "-m", &llama, "--chat-template", &own, "--max-tokens", "1"], "hi\n").ok();
}

#[test]
fn the_library_says_so_before_the_first_message() {
    let mut model = Model::open(model("llama/f32.gguf"), ModelOptions::default()).unwrap();
    assert!(matches!(model.session(AnswerOptions::default()), Err(Error::Template(_))));
    let mut session =
        model.raw_session(AnswerOptions { max_tokens: Some(1), ..AnswerOptions::default() }).unwrap();
    let prompt = session.model().files().chat().unwrap().raw_prompt("hi".to_owned(), &[]).unwrap();
    session.complete(&prompt, &[]).unwrap().finish().unwrap();
    drop(session);
    let chat_template = Some("{{ messages[0].content }}".to_owned());
    let options = ModelOptions { chat_template, ..ModelOptions::default() };
    let mut model = Model::open(cli_support::model("llama/f32.gguf"), options).unwrap();
    assert!(model.session(AnswerOptions::default()).is_ok());
}

#[test]
fn the_library_warns_of_text_beside_calls() {
    let chat_template = Some(fs::read_to_string(template("mistralai-Mistral-Nemo-Instruct-2407")).unwrap());
    let options = ModelOptions { chat_template, ..ModelOptions::default() };
    let mut model = Model::open(model("ministral3/f32.gguf"), options).unwrap();
    let messages = Message::list_from_json(BESIDE).unwrap();
    let conversation = Conversation { messages, ..Conversation::default() };
    let prompt = model.files().chat().unwrap().prompt(&conversation).unwrap();
    let mut session =
        model.session(AnswerOptions { max_tokens: Some(1), ..AnswerOptions::default() }).unwrap();
    let answer = session.complete(&prompt, &[]).unwrap();
    assert_eq!(answer.warnings(), [Omission::TextBesideCalls { index: 1 }]);
}

#[test]
fn a_template_at_fault_fails_at_once_and_only_where_it_is_needed() {
    let broken =
        with_templates("models/qwen2/f32.gguf", "broken.gguf", &[("", "\n{{ messages | shuffle }}")]);
    let fault = "chat template, line 2: unknown filter: filter shuffle is unknown";
    for args in [&["run", "-m", &broken, "hi"][..], &["chat", "-m", &broken]] {
        let run = ember(args);
        fails(&run, fault);
        assert!(!run.stderr.contains("context"), "the model was loaded: {}", run.stderr);
    }
    ember(&["tokenize", "-m", &broken, "hi"]).ok();
    ember(&["run", "-m", &broken, "--raw", "--max-tokens", "1", "hi"]).ok();
    let good = template("Qwen-Qwen3-0.6B");
    ember_with(&["render", "-m", &broken, "-", "--chat-template", &good], HI).ok();
    let faulty = written("faulty.jinja", "{{ messages.shuffle() }}");
    let run = ember_with(&["render", "-m", &model("qwen2/f32.gguf"), "-", "--chat-template", &faulty], HI);
    fails(&run, "chat template, line 1: unknown method: method shuffle is unknown");
}

#[test]
fn the_template_for_tools_is_taken_when_there_are_tools() {
    let plain = "plain: {{ messages[0].content }}";
    let tool_use = "tools: {{ tools[0].function.name }} {{ messages[0].content }}";
    let two = with_templates("models/qwen2/f32.gguf", "two.gguf", &[("", plain), (".tool_use", tool_use)]);
    let tools = written("two-tools.json", TOOLS);
    assert_eq!(ember_with(&["render", "-m", &two, "-"], HI).ok().stdout, "plain: hi");
    let run = ember_with(&["render", "-m", &two, "-", "--tools", &tools], HI).ok();
    assert_eq!(run.stdout, "tools: get_weather hi");
    let one = with_templates("models/qwen2/f32.gguf", "one.gguf", &[(".tool_use", tool_use)]);
    fails(
        &ember_with(&["render", "-m", &one, "-"], HI),
        "has no chat template but for special uses (tool_use)",
    );
    assert_eq!(
        ember_with(&["render", "-m", &one, "-", "--tools", &tools], HI).ok().stdout,
        "tools: get_weather hi"
    );
}

#[test]
fn what_has_no_place_is_named() {
    let qwen = model("qwen2/f32.gguf");
    let render = |template_name: &str, messages: &str| {
        ember_with(&["render", "-m", &qwen, "-", "--chat-template", &template(template_name)], messages)
    };
    let critic = r#"[{"role": "user", "content": "hi"}, {"role": "critic", "content": "Bad."}]"#;
    let run = render("Qwen-Qwen3-0.6B", critic);
    fails(&run, "messages[1]: this model's chat template leaves out the text of this `critic` message");
    // The file's own template has no place for tools.
    let tools = written("named-tools.json", TOOLS);
    let run = ember_with(&["render", "-m", &qwen, "-", "--tools", &tools], HI);
    fails(&run, "tools[0]: this model's chat template leaves out the tool `get_weather`");
    let nameless = written("nameless.json", r#"[{"type": "function", "function": {}}]"#);
    let run = ember_with(&["render", "-m", &qwen, "-", "--tools", &nameless], HI);
    fails(&run, "tools[0]: has no name (function.name)");
    let image = r#"[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a.png"}}]}]"#;
    let run = render("mistral-common-v7-tekken-image", image);
    fails(&run, "this model takes no images: its vocabulary has no [IMG]");
}

#[test]
fn text_beside_tool_calls_is_worth_a_warning() {
    let nemo = template("mistralai-Mistral-Nemo-Instruct-2407");
    let run =
        ember_with(&["render", "-m", &model("ministral3/f32.gguf"), "-", "--chat-template", &nemo], BESIDE)
            .ok();
    assert_eq!(
        run.stderr,
        "warning: messages[1]: this model's chat template leaves out the text beside the tool calls\n"
    );
    assert!(run.stdout.contains("[TOOL_CALLS]") && !run.stdout.contains("I shall look."), "{}", run.stdout);
}

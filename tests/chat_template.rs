//! Chat templates against jinja2 in Hugging Face's environment (fixtures made by tests/reference/chat_jinja.py).

use chrono::NaiveDateTime;
use ember::chat::{ChatTemplate, RenderInput, TemplateError};
use ember_test_support::read_fixture;
use serde_json::{Map, Value};
use std::fs;
use std::path::Path;

fn fixture(name: &str) -> String {
    read_fixture(Path::new("chat").join(name))
}

fn json(name: &str) -> Value {
    serde_json::from_str(&fixture(name)).unwrap()
}

fn fixed_time() -> NaiveDateTime {
    json("snippets.json")["now"].as_str().unwrap().parse().unwrap()
}

fn input_of(case: &Value) -> RenderInput {
    RenderInput {
        messages: case["messages"].as_array().unwrap().clone(),
        tools: case.get("tools").and_then(Value::as_array).cloned(),
        add_generation_prompt: case.get("add_generation_prompt").is_none_or(|v| v == true),
        enable_thinking: case.get("enable_thinking").and_then(Value::as_bool),
        kwargs: case.get("kwargs").and_then(Value::as_object).cloned().unwrap_or_default(),
        now: Some(fixed_time()),
    }
}

/// The difference between our result and the reference's, if there is one.
fn difference(got: Result<String, TemplateError>, expected: &Value) -> Option<String> {
    let text = |kind: &str| expected.get(kind).and_then(Value::as_str);
    match (&got, text("text"), text("refused"), text("error")) {
        (Ok(got), Some(want), _, _) if got == want => None,
        (Err(TemplateError::Refused(got)), _, Some(want), _) if got == want => None,
        (Err(TemplateError::Render { .. } | TemplateError::Syntax { .. }), _, _, Some(_)) => None,
        _ => Some(format!("    got {got:?}\n   want {expected}")),
    }
}

#[test]
fn renderings_equal_jinja2s() {
    let cases = json("cases.json");
    let (mut compared, mut differences) = (0, Vec::new());
    for entry in fs::read_dir(ember_test_support::fixture("chat/rendered")).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        let name = file.strip_suffix(".json").unwrap();
        let rendered = json(&format!("rendered/{file}"));
        let token = |key: &str| rendered[key].as_str().unwrap();
        let source = fixture(&format!("templates/{name}.jinja"));
        let template = ChatTemplate::new(&source, token("bos_token"), token("eos_token")).unwrap();
        for case in cases.as_array().unwrap() {
            let case_name = case["name"].as_str().unwrap();
            let mut expected = rendered["cases"][case_name].clone();
            if let Some(Value::String(text)) = expected.get_mut("text") {
                *text = text.replace('\0', token("prefix"));
            }
            compared += 1;
            if let Some(difference) = difference(template.render(&input_of(case)), &expected) {
                differences.push(format!("{name} {case_name}\n{difference}"));
            }
        }
    }
    assert!(
        differences.is_empty(),
        "{} of {compared} differ:\n{}",
        differences.len(),
        differences.join("\n")
    );
    assert_eq!(compared, 16 * 66);
}

#[test]
fn small_templates_equal_jinja2s() {
    let fixture = json("snippets.json");
    let kwargs: Map<String, Value> = fixture["values"].as_object().unwrap().clone();
    let input = RenderInput { kwargs, now: Some(fixed_time()), ..RenderInput::default() };
    let mut differences = Vec::new();
    let list = |name: &str| fixture[name].as_array().unwrap();
    let (snippets, refused, rendered) = (list("snippets"), list("refused_here"), list("rendered_here"));
    assert_eq!([snippets, refused, rendered].map(Vec::len), [115, 9, 6]);
    for snippet in snippets {
        let source = snippet["template"].as_str().unwrap();
        let got = ChatTemplate::new(source, "", "").and_then(|template| template.render(&input));
        if let Some(difference) = difference(got, snippet) {
            differences.push(difference);
        }
    }
    assert!(
        differences.is_empty(),
        "{} of {} differ:\n{}",
        differences.len(),
        snippets.len(),
        differences.join("\n")
    );
    // What is known to differ is pinned, so that it changes only on purpose.
    let render =
        |source: &Value| ChatTemplate::new(source.as_str().unwrap(), "", "").and_then(|t| t.render(&input));
    for source in refused {
        // The operands of an operator are known when it is applied; all else is found before anything is rendered.
        match render(source) {
            Err(TemplateError::Render { .. }) => assert_eq!(source, "{{ '%s' % 'a' }}"),
            refused => assert!(matches!(refused, Err(TemplateError::Syntax { .. })), "{source}: {refused:?}"),
        }
    }
    for source in rendered {
        assert!(render(source).is_ok(), "{source}");
    }
}

#[test]
fn errors_name_the_line_and_the_construct() {
    let error = ChatTemplate::new("a\n{% if x %}\n{% frobnicate y %}\n{% endif %}", "", "").unwrap_err();
    let expected =
        "chat template, line 3: syntax error: unknown statement frobnicate\n    {% frobnicate y %}";
    assert_eq!(error.to_string(), expected);
    // Also where nothing would come by.
    for (construct, problem) in [
        ("messages | shuffle", "unknown filter: filter shuffle is unknown"),
        ("messages is nonsense", "unknown test: test nonsense is unknown"),
        ("messages | map('shuffle') | list", "unknown filter: filter shuffle is unknown"),
        ("messages | select('nonsense', 1) | list", "unknown test: test nonsense is unknown"),
        ("messages | rejectattr('a', 'nonsense') | list", "unknown test: test nonsense is unknown"),
        ("messages.shuffle()", "unknown method: method shuffle is unknown"),
        ("lipsum(2)", "unknown function: function lipsum is unknown"),
    ] {
        let source = format!(
            "{{% macro m() %}}\n{{% if false %}}\n{{{{ {construct} }}}}{{% endif %}}{{% endmacro %}}"
        );
        let error = ChatTemplate::new(&source, "", "").unwrap_err();
        let excerpt = source.lines().nth(2).unwrap();
        assert_eq!(error.to_string(), format!("chat template, line 3: {problem}\n    {excerpt}"));
    }
    assert!(
        ChatTemplate::new("{% macro mine(x) %}{% endmacro %}{{ mine(1) }}{{ theirs(1) }}", "", "").is_ok()
    );
}

#[test]
fn a_template_that_renders_nothing_is_refused_when_it_is_tried() {
    let error = ChatTemplate::tried("{{ '%s' % messages }}", "", "").unwrap_err();
    assert!(matches!(error, TemplateError::Render { line: 1, .. }), "{error}");
    // It may refuse a conversation, or take one form of content alone.
    for source in
        ["{{ raise_exception('no') }}", "{{ messages[0].content + '' }}", "{{ messages[0].content + [] }}"]
    {
        assert!(ChatTemplate::tried(source, "", "").is_ok(), "{source}");
    }
}

#[test]
fn an_endless_template_is_an_error() {
    let source = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
    let error = ChatTemplate::new(source, "", "").unwrap().render(&RenderInput::default()).unwrap_err();
    assert!(matches!(error, TemplateError::Render { .. }), "{error}");
}

#[test]
fn a_long_chat_renders() {
    let turn = |i: usize| serde_json::json!({"role": if i.is_multiple_of(2) { "user" } else { "assistant" }, "content": "word ".repeat(200)});
    let input = RenderInput { messages: (0..2001).map(turn).collect(), ..RenderInput::default() };
    let source = fixture("templates/mistral-common-v13-tekken-image-think.jinja");
    let text = ChatTemplate::new(&source, "<s>", "</s>").unwrap().render(&input).unwrap();
    assert_eq!(text.matches("[/INST]").count(), 1001);
}

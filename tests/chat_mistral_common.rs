//! Requests rendered with mistral-common's own templates and tokenized by us, against mistral-common's token ids.
//!
//! Reads the vocabularies in the directory `EMBER_REFERENCE_DIR`. The requests and ids are in fixtures made by
//! tests/reference/chat_mistral_common.py, which says what is left out and why.

use ember::chat::{ChatTemplate, Message, Prompt, RenderInput, build_prompt};
use ember::{ChatTokenizer, Conversation};
use ember_loaders::gguf::Gguf;
use ember_loaders::tokenizer::{SpecialTokens, Tokenizer};
use ember_test_support::read_fixture;
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;

const HOW_TO_FILL: &str = "run `python3 loaders/tests/reference/tokenizer_full.py DIR` and then \
    `DIR/venv/bin/python tests/reference/chat_mistral_common.py --vocabularies DIR`";

#[derive(Deserialize)]
struct Fixture {
    vocabulary: String,
    /// The file of the template, or else its source.
    template: Option<String>,
    source: Option<String>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    messages: Value,
    tools: Option<Vec<Value>>,
    ids: Vec<u32>,
}

fn chat_file(name: &str) -> String {
    read_fixture(Path::new("chat").join(name))
}

fn fixture(name: &str) -> Fixture {
    serde_json::from_str(&chat_file(&format!("mistral_common_{name}.json"))).unwrap()
}

fn tokenizer(file: &str) -> Tokenizer {
    let folder = std::env::var("EMBER_REFERENCE_DIR")
        .unwrap_or_else(|_| panic!("EMBER_REFERENCE_DIR must name a folder of vocabularies: {HOW_TO_FILL}"));
    let path = Path::new(&folder).join(file);
    assert!(path.is_file(), "{} is missing: {HOW_TO_FILL}", path.display());
    Tokenizer::from_gguf(&Gguf::open(&path).unwrap()).unwrap()
}

fn template(file: &str, tokenizer: &Tokenizer) -> ChatTemplate {
    compiled(&chat_file(&format!("templates/{file}")), tokenizer)
}

fn compiled(source: &str, tokenizer: &Tokenizer) -> ChatTemplate {
    ChatTemplate::new(source, tokenizer.bos_text().unwrap(), tokenizer.eos_text().unwrap()).unwrap()
}

impl Case {
    fn prompt(&self, tokenizer: &Tokenizer, template: &ChatTemplate) -> Prompt {
        let messages = Message::list_from_json(&self.messages.to_string()).unwrap();
        let input = RenderInput {
            messages: template.prepare(&messages).unwrap(),
            tools: self.tools.clone(),
            add_generation_prompt: true,
            ..RenderInput::default()
        };
        build_prompt(tokenizer, template, &input).unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }
}

impl Fixture {
    fn template(&self, tokenizer: &Tokenizer) -> ChatTemplate {
        match (&self.template, &self.source) {
            (Some(file), None) => template(file, tokenizer),
            (None, Some(source)) => compiled(source, tokenizer),
            _ => panic!("a fixture names its template or holds it"),
        }
    }

    fn case(&self, name: &str) -> &Case {
        self.cases.iter().find(|case| case.name == name).unwrap_or_else(|| panic!("no case {name}"))
    }

    /// The cases whose ids differ from mistral-common's, with the text where they do.
    fn differences(&self, tokenizer: &Tokenizer, template: &ChatTemplate) -> Vec<String> {
        let difference = |case: &Case| {
            let ids = case.prompt(tokenizer, template).ids;
            let at = (0..ids.len().max(case.ids.len())).find(|&at| ids.get(at) != case.ids.get(at))?;
            let near = |ids: &[u32]| {
                tokenizer.decode(&ids[at.saturating_sub(6).min(ids.len())..ids.len().min(at + 8)], false)
            };
            Some(format!("{}: token {at}: {:?}, expected {:?}", case.name, near(&ids), near(&case.ids)))
        };
        self.cases.iter().filter_map(difference).collect()
    }
}

fn assert_equal(name: &str, cases: usize) {
    let fixture = fixture(name);
    let tokenizer = tokenizer(&fixture.vocabulary);
    let differences = fixture.differences(&tokenizer, &fixture.template(&tokenizer));
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert_eq!(fixture.cases.len(), cases);
}

#[test]
fn v3_prompts_have_mistral_commons_ids() {
    assert_equal("v3", 25);
}

#[test]
fn v7_prompts_have_mistral_commons_ids() {
    assert_equal("v7", 30);
}

#[test]
fn v11_prompts_have_mistral_commons_ids() {
    assert_equal("v11", 30);
}

#[test]
fn v13_prompts_have_mistral_commons_ids() {
    assert_equal("v13", 30);
}

#[test]
fn v13_prompts_with_reasoning_have_mistral_commons_ids() {
    assert_equal("v13_think", 40);
}

#[test]
fn sentencepiece_prompts_have_mistral_commons_ids() {
    assert_equal("v3_spm", 25);
    assert_equal("v7_spm", 30);
}

/// The format of a file without a template is that of its vocabulary; of version 3 it is, but for the system message, too.
#[test]
fn prompts_without_a_template_have_mistral_commons_ids() {
    let turns = ["one_turn", "many_turns"];
    let systems = ["system", "many_turns_system", "unicode", "digits_and_spaces", "system_later"];
    for (name, cases) in [("v3", &[][..]), ("v7", &systems), ("v11", &systems), ("v13", &systems)] {
        let fixture = fixture(name);
        let chat = ChatTokenizer::new(tokenizer(&fixture.vocabulary));
        for case in turns.iter().chain(cases) {
            let case = fixture.case(case);
            let messages = Message::list_from_json(&case.messages.to_string()).unwrap();
            let prompt = chat.prompt(&Conversation { messages, ..Conversation::default() }).unwrap();
            assert_eq!(prompt.ids, case.ids, "{name} {}", case.name);
        }
    }
}

/// Conversations full of control texts have the control tokens of harmless ones, and no others.
#[test]
fn no_control_token_comes_from_a_client() {
    for name in ["v3", "v7", "v11", "v13", "v13_think", "v3_spm", "v7_spm"] {
        let fixture = fixture(name);
        let tokenizer = tokenizer(&fixture.vocabulary);
        let template = fixture.template(&tokenizer);
        let controls = |case: &str| -> Vec<u32> {
            let ids = fixture.case(case).prompt(&tokenizer, &template).ids;
            ids.into_iter().filter(|&id| tokenizer.is_control(id)).collect()
        };
        assert_eq!(controls("injected"), controls("harmless"), "{name}");
        assert_eq!(controls("injected_in_halves"), [1, 3, 4], "{name}");
        if name == "v13_think" {
            assert_eq!(controls("thinking_injected"), [1, 3, 4, 34, 35, 2, 3, 4]);
        }
    }
}

/// The comparison sees what it is meant to see: control texts that become tokens, and another version's format.
#[test]
fn other_readings_of_the_same_requests_differ() {
    let fixture = fixture("v13_think");
    let tokenizer = tokenizer(&fixture.vocabulary);
    let own = fixture.template(&tokenizer);
    let parsed = |case: &str| {
        let case = fixture.case(case);
        let text = case.prompt(&tokenizer, &own).text;
        tokenizer.encode(&text, SpecialTokens::Parse).unwrap() == case.ids
    };
    assert!(parsed("harmless"));
    assert!(!parsed("injected") && !parsed("thinking_injected"));

    let fixture = self::fixture("v13");
    let differs = |file: &str, case: &str| {
        let case = fixture.case(case);
        case.prompt(&tokenizer, &template(file, &tokenizer)).ids != case.ids
    };
    let v11 = "mistral-common-v11-tekken-image.jinja";
    assert!(!differs(v11, "one_turn"));
    assert!(differs(v11, "tool_call") && differs(v11, "tools_many_turns"));
    assert!(differs("mistral-common-v3-tekken-image.jinja", "system"));
}

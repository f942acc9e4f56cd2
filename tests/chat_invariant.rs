//! What is handed in is in the prompt, or the call fails and names it: every committed template, every kind of message.
//!
//! The truth is told by words of which no two are alike: a text is in the prompt if its words are.

use ember::chat::{
    ChatTemplate, Content, FunctionCall, Message, Omission, PromptError, RenderInput, ToolCall,
};
use ember::{ChatTokenizer, Conversation, Error};
use ember_loaders::gguf::Gguf;
use ember_loaders::tokenizer::Tokenizer;
use ember_test_support::fixture;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde_json::json;
use std::fs;

/// Kinds of message: role, content, and what else it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    System,
    SystemParts,
    Developer,
    User,
    UserParts,
    UserImage,
    Answer,
    AnswerParts,
    ThoughtInText,
    Thought,
    Calls,
    CallsOnly,
    TextAndCalls,
    Result,
    ResultParts,
    ResultObject,
    ResultArray,
    ResultNumber,
    Critic,
}

use Kind::*;

const KINDS: [Kind; 19] = [
    System,
    SystemParts,
    Developer,
    User,
    UserParts,
    UserImage,
    Answer,
    AnswerParts,
    ThoughtInText,
    Thought,
    Calls,
    CallsOnly,
    TextAndCalls,
    Result,
    ResultParts,
    ResultObject,
    ResultArray,
    ResultNumber,
    Critic,
];

/// The source of texts.
struct Words {
    next: usize,
    /// The text that is given every time; `None` for one that occurs nowhere else.
    always: Option<&'static str>,
}

impl Words {
    fn word(&mut self) -> String {
        self.next += 1;
        let letter = |shift: u32| char::from(b'a' + (self.next / 26_usize.pow(shift) % 26) as u8);
        self.always.map_or_else(|| format!("q{}{}{}z", letter(2), letter(1), letter(0)), str::to_owned)
    }
}

/// A thing that has to be in the prompt, and the words that show it.
struct Wanted {
    what: Omission,
    words: Vec<String>,
}

/// A conversation, and all that has to be in its prompt.
struct Case {
    conversation: Conversation,
    wanted: Vec<Wanted>,
    images: usize,
}

impl Case {
    fn new(kinds: &[Kind], tools: usize, words: &mut Words) -> Self {
        let (messages, tools_given) = (Vec::new(), None);
        let conversation = Conversation { messages, tools: tools_given, ..Conversation::default() };
        let mut case = Self { conversation, wanted: Vec::new(), images: 0 };
        for &kind in kinds {
            case.add(kind, words);
        }
        for index in 0..tools {
            let name = words.word();
            case.wanted.push(Wanted {
                what: Omission::Tool { index, name: name.clone() },
                words: vec![name.clone()],
            });
            let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
            let function = json!({"name": name, "description": "Of a place", "parameters": parameters});
            let tool = json!({"type": "function", "function": function});
            case.conversation.tools.get_or_insert_default().push(tool);
        }
        case
    }

    fn add(&mut self, kind: Kind, words: &mut Words) {
        let index = self.conversation.messages.len();
        let (first, last) = (words.word(), words.word());
        let text = format!("  {first} and\n{last}.\n");
        let part = |text: &str| json!({"type": "text", "text": text});
        let parts = || Content::Parts(vec![part(&first), part(&last)]);
        let mut message = Message::text(kind.role(), text.as_str());
        let mut texts = vec![first.clone(), last.clone()];
        match kind {
            System | Developer | User | Answer | Result | Critic => {}
            SystemParts | UserParts | AnswerParts | ResultParts => message.content = Some(parts()),
            UserImage => {
                message = Message::with_images("user", ["a.png".to_owned()], text);
                self.images += 1;
            }
            ThoughtInText => {
                message.content = Some(Content::Text(format!("<think>\n{first}\n</think>\n\n{last}")));
                texts = vec![last];
            }
            Thought => message.reasoning_content = Some("Hm.".to_owned()),
            Calls | CallsOnly => {
                message.content = (kind == Calls).then(|| Content::Text(String::new()));
                texts.clear();
            }
            TextAndCalls => {}
            ResultObject => message.content = Some(Content::Json(json!({"sky": first, "wind": [1.5, last]}))),
            ResultArray => {
                message.content = Some(Content::Parts(vec![json!({"type": first}), json!([last])]))
            }
            ResultNumber => {
                let number = 1_000_000 + index;
                message.content = Some(Content::Json(number.into()));
                texts = vec![number.to_string()];
            }
        }
        if matches!(kind, Calls | CallsOnly | TextAndCalls) {
            for call in 0..2 {
                let name = words.word();
                self.want(Omission::Call { index, call, name: name.clone() }, vec![name.clone()]);
                let function = FunctionCall { name, arguments: json!({"city": "Paris"}) };
                let id = Some(format!("call_{index}_{call}"));
                message.tool_calls.push(ToolCall { id, kind: "function".to_owned(), function });
            }
        }
        if message.role == "tool" {
            message.tool_call_id = Some("call_1_0".to_owned());
        }
        let what = match kind {
            TextAndCalls => Omission::TextBesideCalls { index },
            _ => Omission::Text { index, role: kind.role().to_owned() },
        };
        self.want(what, texts);
        self.conversation.messages.push(message);
    }

    fn want(&mut self, what: Omission, words: Vec<String>) {
        self.wanted.push(Wanted { what, words });
    }

    /// What the text does not hold.
    fn missing(&self, text: &str) -> Vec<&Omission> {
        let is_missing = |wanted: &&Wanted| wanted.words.iter().any(|word| !text.contains(word.as_str()));
        self.wanted.iter().filter(is_missing).map(|wanted| &wanted.what).collect()
    }
}

impl Kind {
    fn role(self) -> &'static str {
        match self {
            System | SystemParts => "system",
            Developer => "developer",
            User | UserParts | UserImage => "user",
            Answer | AnswerParts | ThoughtInText | Thought | Calls | CallsOnly | TextAndCalls => "assistant",
            Result | ResultParts | ResultObject | ResultArray | ResultNumber => "tool",
            Critic => "critic",
        }
    }
}

/// A template with a vocabulary that has Mistral's control tokens, images among them.
struct Model {
    name: String,
    template: ChatTemplate,
    chat: ChatTokenizer,
}

fn models() -> Vec<Model> {
    let gguf = Gguf::open(fixture("vision/gelu-2/text-f32.gguf")).unwrap();
    let model = |name: &str, source: &str| {
        let chat = ChatTokenizer::new(Tokenizer::from_gguf(&gguf).unwrap());
        let template = ChatTemplate::new(source, "<s>", "</s>").unwrap();
        Model { name: name.to_owned(), template, chat: chat.with_chat_template(source).unwrap() }
    };
    let mut models: Vec<Model> = Vec::new();
    for entry in fs::read_dir(fixture("chat/templates")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "jinja") {
            models.push(model(
                path.file_stem().unwrap().to_str().unwrap(),
                &fs::read_to_string(&path).unwrap(),
            ));
        }
    }
    models.sort_by(|a, b| a.name.cmp(&b.name));
    let chatml = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";
    models.push(model("chatml", chatml));
    // One that knows the texts of users alone.
    let users = "{% for m in messages if m.role == 'user' %}[INST]{% if m.content is string %}{{ m.content | trim }}\
        {% else %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %}[/INST]{% endfor %}";
    models.push(model("users", users));
    assert_eq!(models.len(), 18);
    models
}

/// The ways a conversation can go.
#[derive(Debug, Default)]
struct Counts {
    complete: usize,
    warned: usize,
    omissions: usize,
    images: usize,
    refused: usize,
}

impl Model {
    /// Renders the case and holds the result against the truth.
    fn check(&self, case: &Case, counts: &mut Counts) {
        let conversation = &case.conversation;
        let context = || format!("{}: {:?}", self.name, conversation);
        let plain = self.template.prepare(&conversation.messages).ok().and_then(|messages| {
            let (tools, add_generation_prompt) = (conversation.tools.clone(), true);
            self.template
                .render(&RenderInput { messages, tools, add_generation_prompt, ..RenderInput::default() })
                .ok()
        });
        match (self.chat.render(conversation), plain) {
            (Ok(prompt), Some(_)) => {
                let missing = case.missing(&prompt.text);
                assert_eq!(missing, prompt.warnings.iter().collect::<Vec<_>>(), "{}", context());
                assert!(missing.iter().all(|what| what.is_tolerable()), "{}", context());
                assert_eq!(prompt.text.matches("[IMG]").count(), case.images, "{}", context());
                counts.complete += usize::from(missing.is_empty());
                counts.warned += usize::from(!missing.is_empty());
            }
            (Err(Error::Prompt(PromptError::Omission(named))), Some(plain)) => {
                let missing: Vec<Omission> = case.missing(&plain).into_iter().map(as_system).collect();
                assert!(missing.contains(&named) && !named.is_tolerable(), "{named}: {}", context());
                counts.omissions += 1;
            }
            (Err(Error::ImagePrompt(_)), Some(plain)) => {
                assert_ne!(plain.matches("[IMG]").count(), case.images, "{}", context());
                counts.images += 1;
            }
            (Err(Error::Prompt(PromptError::Template(_)) | Error::Message(_)), None) => counts.refused += 1,
            (result, plain) => panic!("{result:?} where the template gives {plain:?}: {}", context()),
        }
    }

    /// The outcome in short, for comparison with another conversation of the same kinds.
    fn verdict(&self, case: &Case) -> String {
        match self.chat.render(&case.conversation) {
            Ok(prompt) => format!("complete but for {:?}", prompt.warnings),
            // Names of tools are other words.
            Err(Error::Prompt(PromptError::Omission(Omission::Tool { index, .. }))) => {
                format!("tool {index}")
            }
            Err(Error::Prompt(PromptError::Omission(Omission::Call { index, call, .. }))) => {
                format!("call {index} {call}")
            }
            Err(error) => error.to_string(),
        }
    }
}

/// A developer is the system where the template does not know the role; no committed one does.
fn as_system(what: &Omission) -> Omission {
    match what {
        Omission::Text { index, role } if role == "developer" => {
            Omission::Text { index: *index, role: "system".to_owned() }
        }
        what => what.clone(),
    }
}

/// Every pair of kinds.
fn pairs() -> impl Iterator<Item = Vec<Kind>> {
    let with = |first| KINDS.map(|second| vec![first, second]);
    KINDS.map(|kind| vec![kind]).into_iter().chain(KINDS.into_iter().flat_map(with))
}

/// Conversations as they go: instructions, and turns in which tools may be called.
fn conversations(seed: u64, count: usize) -> Vec<Vec<Kind>> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut one_of = |kinds: &[Kind]| kinds[rng.next_u32() as usize % kinds.len()];
    let conversation = |_| {
        let mut kinds = Vec::new();
        let start = one_of(&[System, SystemParts, Developer, User, User]);
        kinds.extend((start != User).then_some(start));
        for _ in 0..=one_of(&KINDS[..3]) as usize {
            kinds.push(one_of(&[User, User, UserParts, UserImage]));
            while one_of(&KINDS[..2]) == System {
                kinds.push(one_of(&[Calls, CallsOnly, TextAndCalls]));
                kinds.push(one_of(&[Result, ResultParts, ResultObject, ResultArray, ResultNumber]));
            }
            kinds.push(one_of(&[Answer, AnswerParts, ThoughtInText, Thought]));
        }
        // Most end with what is to be answered.
        if one_of(&KINDS[..4]) != System {
            kinds.push(one_of(&[User, UserImage]));
        }
        kinds
    };
    (0..count).map(conversation).collect()
}

#[test]
fn nothing_is_left_out_in_silence() {
    let models = models();
    let mut counts = Counts::default();
    let mut words = Words { next: 0, always: None };
    let all = pairs().chain(conversations(1, 40));
    for (at, kinds) in all.enumerate() {
        for model in &models {
            words.next = 0;
            model.check(&Case::new(&kinds, 2 * (at % 2), &mut words), &mut counts);
        }
    }
    assert!(counts.complete > 1000 && counts.omissions > 1000 && counts.refused > 1000, "{counts:?}");
    assert!(counts.warned > 20 && counts.images > 0, "{counts:?}");
}

/// Texts that are found everywhere: in other messages, in the template's own words, in the marks of the check.
#[test]
fn luck_does_not_hide_what_is_left_out() {
    let models = models();
    let all = KINDS.map(|kind| vec![kind, User]).into_iter().chain(conversations(2, 10));
    for (at, kinds) in all.enumerate() {
        for model in &models {
            let tools = at % 2;
            let unique = model.verdict(&Case::new(&kinds, tools, &mut Words { next: 0, always: None }));
            for always in ["a", "user", "7009 70009"] {
                let lucky = Case::new(&kinds, tools, &mut Words { next: 0, always: Some(always) });
                assert_eq!(model.verdict(&lucky), unique, "{} {kinds:?} {always}", model.name);
            }
        }
    }
}

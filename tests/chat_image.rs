//! Images in conversations: where Mistral's templates put them, and what their tokens become.
use chrono::NaiveDateTime;
use ember::chat::{
    ChatTemplate, ImagePromptError, ImageTokens, Message, Prompt, RenderInput, TemplateError, build_prompt,
};
use ember_loaders::gguf::Gguf;
use ember_loaders::image::ImageGrid;
use ember_loaders::tokenizer::Tokenizer;
use ember_test_support::fixture;
use std::fs;

/// Every committed template that takes images.
const TEMPLATES: [&str; 8] = [
    "Mistral-Small-3.2-24B-Instruct-2506",
    "mistral-common-v11-tekken-image",
    "mistral-common-v13-tekken-image",
    "mistral-common-v13-tekken-image-think",
    "mistral-common-v3-tekken-image",
    "mistral-common-v7-tekken-image",
    "mistralai-Ministral-3-14B-Reasoning-2512",
    "unsloth-mistral-Devstral-Small-2507",
];

fn template(name: &str) -> ChatTemplate {
    let source = fs::read_to_string(fixture(format!("chat/templates/{name}.jinja"))).unwrap();
    ChatTemplate::new(&source, "<s>", "</s>").unwrap()
}

fn tokenizer() -> Tokenizer {
    Tokenizer::from_gguf(&Gguf::open(fixture("vision/gelu-2/text-f32.gguf")).unwrap()).unwrap()
}

fn image_tokens(tokenizer: &Tokenizer) -> ImageTokens {
    ImageTokens::of_vocabulary(|text| tokenizer.token_id(text)).unwrap()
}

fn prompt(template: &ChatTemplate, messages: &[Message]) -> Prompt {
    let input = RenderInput {
        messages: template.prepare(messages).unwrap(),
        add_generation_prompt: true,
        now: Some(NaiveDateTime::MIN),
        ..RenderInput::default()
    };
    build_prompt(&tokenizer(), template, &input).unwrap()
}

fn user(images: &[&str], text: &str) -> Message {
    Message::with_images("user", images.iter().map(ToString::to_string), text)
}

/// Two images and one more in a later turn, with the marker as text in both messages.
fn conversation() -> [Message; 3] {
    [
        user(&["a.png", "/b c.png"], "Is [IMG] in them?"),
        Message::text("assistant", "No."),
        user(&["[IMG].png"], "And [IMG_END]?"),
    ]
}

#[test]
fn every_mistral_template_puts_images_before_their_text() {
    for name in TEMPLATES {
        let text = prompt(&template(name), &conversation()).text;
        let (_, turns) = text.split_once("[INST]").unwrap_or_else(|| panic!("{name}: {text}"));
        assert!(turns.starts_with("[IMG][IMG]"), "{name}: {turns}");
        assert!(turns.contains("Is [IMG] in them?[/INST]"), "{name}: {turns}");
        assert!(turns.contains("[INST][IMG]"), "{name}: {turns}");
        assert!(turns.ends_with("And [IMG_END]?[/INST]"), "{name}: {turns}");
    }
}

#[test]
fn images_become_their_rows_and_text_stays_text() {
    let tokenizer = tokenizer();
    let tokens = image_tokens(&tokenizer);
    let grids = [(1, 2), (2, 1), (1, 1)].map(|(rows, cols)| ImageGrid { rows, cols });
    for name in TEMPLATES {
        let unplaced = prompt(&template(name), &conversation());
        let mut placed = unplaced.clone();
        placed.expand_images(&tokens, &grids).unwrap_or_else(|error| panic!("{name}: {error}"));
        let added: usize = grids.iter().map(|grid| grid.tokens() - 1).sum();
        assert_eq!(placed.ids.len(), unplaced.ids.len() + added, "{name}");
        for (&start, &grid) in placed.image_starts.iter().zip(&grids) {
            assert_eq!(placed.ids[start..start + grid.tokens()], tokens.of_grid(grid), "{name}");
        }
        assert_eq!(tokens.find(&placed.ids, &grids), Ok(placed.image_starts), "{name}");
        let ends = placed.ids.iter().filter(|&&id| id == tokens.end).count();
        assert_eq!(ends, 3, "{name}: a user's [IMG_END] became a token");
        let wrong = unplaced.clone().expand_images(&tokens, &grids[..2]).unwrap_err();
        assert_eq!(wrong, ImagePromptError::Count { places: 3, images: 2 }, "{name}");
    }
}

#[test]
fn a_template_without_image_parts_refuses_images() {
    for name in ["Qwen-Qwen3-0.6B", "mistralai-Mistral-Nemo-Instruct-2407"] {
        let error =
            template(name).prepare(&[user(&["a.png"], "hi")]).map_err(TemplateError::from).unwrap_err();
        let expected =
            "messages[0].content[0]: this model's chat template takes no content of type `image_url`";
        assert_eq!(error.to_string(), expected, "{name}");
    }
}

#[test]
fn a_message_with_images_survives_json() {
    let messages = conversation();
    let json = serde_json::to_string(&messages).unwrap();
    assert_eq!(Message::list_from_json(&json).unwrap(), messages);
}

//! Streamed text assembly: the result never depends on how the text is cut.

use ember::chat::{AnswerSplitter, ReasoningTag, ReasoningTags, TextDelta};

fn tags() -> ReasoningTags {
    ReasoningTags { open: "<think>".into(), close: "</think>".into() }
}

/// Feeds the pieces and returns the reasoning, the content and the stop string.
fn decode(mut decoder: AnswerSplitter, pieces: &[&str]) -> (String, String, Option<String>) {
    let mut all = TextDelta::default();
    for piece in pieces {
        let delta = decoder.push(piece);
        all.reasoning += &delta.reasoning;
        all.content += &delta.content;
    }
    let rest = decoder.finish();
    (all.reasoning + &rest.reasoning, all.content + &rest.content, decoder.stopped_by().map(str::to_owned))
}

/// `(text, stops, prompt opened the reasoning, reasoning, content, stop string)`
type Case = (&'static str, &'static [&'static str], bool, &'static str, &'static str, Option<&'static str>);

const CASES: &[Case] = &[
    ("<think>\nA b.\n</think>\n\nHi", &[], false, "A b.", "Hi", None),
    ("\nA </th b\n</think>\n\n4 é", &[], true, "A </th b", "4 é", None),
    ("<thin", &[], false, "", "<thin", None),
    (" x <think>", &[], false, "", " x <think>", None),
    ("<think>\n\n</think>\n\nok\n", &[], false, "", "ok\n", None),
    ("<think>cut", &[], false, "cut", "", None),
    ("A", &[], true, "A", "", None),
    ("my own fox", &["own fox"], false, "", "my ", Some("own fox")),
    ("my own fax", &["own fox"], false, "", "my own fax", None),
    ("ababac!", &["abac", "zzz"], false, "", "ab", Some("abac")),
    ("abcd", &["bc", "abcd"], false, "", "", Some("abcd")),
    ("abcx", &["bc", "abcd"], false, "", "a", Some("bc")),
    ("<think>A\n\nB</think>C", &["\n\n"], false, "A", "", Some("\n\n")),
    ("<think>A</think>\n\nC", &["</think>\n\nC"], false, "A", "", Some("</think>\n\nC")),
    ("日本日本語", &["日本語"], false, "", "日本", Some("日本語")),
    ("", &["x"], false, "", "", None),
];

#[test]
fn every_way_to_cut_gives_the_same_result() {
    for &(text, stops, open, reasoning, content, stop) in CASES {
        let decoder = AnswerSplitter::new(Some(tags()), open, stops.iter().map(|s| (*s).into()).collect());
        let expected = (reasoning.to_owned(), content.to_owned(), stop.map(str::to_owned));
        let chars: Vec<(usize, char)> = text.char_indices().collect();
        assert_eq!(decode(decoder.clone(), &[text]), expected, "{text:?} whole");
        let singles: Vec<&str> = chars.iter().map(|(at, c)| &text[*at..at + c.len_utf8()]).collect();
        assert_eq!(decode(decoder.clone(), &singles), expected, "{text:?} by characters");
        for (i, (first, _)) in chars.iter().enumerate() {
            for (second, _) in &chars[i..] {
                let pieces = [&text[..*first], &text[*first..*second], &text[*second..]];
                assert_eq!(decode(decoder.clone(), &pieces), expected, "{pieces:?}");
            }
        }
    }
}

#[test]
fn only_what_may_be_a_marker_is_held_back() {
    let mut decoder = AnswerSplitter::new(None, false, vec!["own fox".into()]);
    assert_eq!(decoder.push("my own").content, "my ");
    assert_eq!(decoder.push(" f").content, "");
    assert_eq!(decoder.push("un").content, "own fun");
    let mut decoder = AnswerSplitter::new(Some(tags()), true, vec![]);
    assert_eq!(decoder.push("Add </").reasoning, "Add");
    assert_eq!(decoder.push("b>").reasoning, " </b>");
    assert!(decoder.in_reasoning());
}

#[test]
fn tags_come_from_the_vocabulary_and_the_prompt() {
    let token = |tokens: &'static [&'static str]| {
        move |text: &str| tokens.iter().position(|token| *token == text).map(|at| at as u32)
    };
    let texts =
        |tags: Option<ReasoningTags>| tags.map(|tags| (tags.open.text, tags.open.token, tags.close.token));
    let both = token(&["<think>", "</think>", "[THINK]", "[/THINK]"]);
    let of_model = |template| texts(ReasoningTags::of_model(both, template));
    assert_eq!(of_model("no tags"), Some(("<think>".to_owned(), Some(0), Some(1))));
    assert_eq!(of_model("'[THINK]' ~ t ~ '[/THINK]'"), Some(("[THINK]".to_owned(), Some(2), Some(3))));
    // Without tokens, the template's text alone says so.
    let none = token(&[]);
    assert_eq!(texts(ReasoningTags::of_model(none, "no tags")), None);
    assert_eq!(
        texts(ReasoningTags::of_model(none, "<think></think>")),
        Some(("<think>".to_owned(), None, None))
    );
    assert!(tags().open_in("<|im_start|>assistant\n<think>\n"));
    assert!(!tags().open_in("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
}

const OPEN: u32 = 7;
const CLOSE: u32 = 8;

fn token_tags() -> ReasoningTags {
    let ReasoningTags { open, close } = tags();
    ReasoningTags {
        open: ReasoningTag { token: Some(OPEN), ..open },
        close: ReasoningTag { token: Some(CLOSE), ..close },
    }
}

/// Feeds text in which `{` and `}` stand for the tags as tokens, whole or by characters.
fn decode_tokens(
    open: bool,
    stops: &[&str],
    text: &str,
    by_characters: bool,
) -> (String, String, Option<String>) {
    let stops = stops.iter().map(|stop| (*stop).to_owned()).collect();
    let mut splitter = AnswerSplitter::new(Some(token_tags()), open, stops);
    assert!(splitter.is_tag(OPEN) && splitter.is_tag(CLOSE) && !splitter.is_tag(9));
    let mut all = TextDelta::default();
    for piece in text.split_inclusive(|c| by_characters || c == '{' || c == '}') {
        let (before, tag) = match piece.strip_suffix('{') {
            Some(before) => (before, Some(OPEN)),
            None => piece.strip_suffix('}').map_or((piece, None), |before| (before, Some(CLOSE))),
        };
        all.append(&splitter.push(before));
        if let Some(tag) = tag {
            all.append(&splitter.push_tag(tag));
        }
    }
    all.append(&splitter.finish());
    (all.reasoning, all.content, splitter.stopped_by().map(str::to_owned))
}

/// `(text, stops, prompt opened the reasoning, reasoning, content, stop string)`
const TOKEN_CASES: &[Case] = &[
    ("{\nA b.\n}\n\nHi", &[], false, "A b.", "Hi", None),
    // The letters of the tag close nothing, and open nothing.
    ("Write </think>, then\n}\n4", &[], true, "Write </think>, then", "4", None),
    ("Write </think> or", &[], true, "Write </think> or", "", None),
    ("<think>\nA</think>B", &[], false, "", "<think>\nA</think>B", None),
    // Where a tag can do nothing, it is text.
    ("A } B {", &[], false, "", "A </think> B <think>", None),
    ("}A", &[], false, "", "</think>A", None),
    ("{A {B }C }D", &[], false, "A <think>B", "C </think>D", None),
    // Stop strings run over tags.
    ("{A}\n\nC", &["</think>\n\nC"], false, "A", "", Some("</think>\n\nC")),
    ("{A}\n\nD", &["</think>\n\nC"], false, "A", "D", None),
    ("{A}B", &["k>B"], false, "A</thin", "", Some("k>B")),
    ("{A}", &["k>B"], false, "A", "", None),
    ("{A}{B}", &["<think>B</think>C"], false, "A", "<think>B</think>", None),
];

#[test]
fn a_tag_that_is_a_token_is_only_that_token() {
    for &(text, stops, open, reasoning, content, stop) in TOKEN_CASES {
        let expected = (reasoning.to_owned(), content.to_owned(), stop.map(str::to_owned));
        for by_characters in [false, true] {
            assert_eq!(decode_tokens(open, stops, text, by_characters), expected, "{text:?} {by_characters}");
        }
    }
}

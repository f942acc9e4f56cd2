//! Streamed text assembly: the result never depends on how the text is cut.

use ember::chat::{AnswerSplitter, ReasoningTags, TextDelta};

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
    let ministral = ReasoningTags::of_vocabulary(|t| t.contains("THINK]")).unwrap();
    assert_eq!(ministral.close, "[/THINK]");
    assert_eq!(ReasoningTags::of_vocabulary(|_| false), None);
    assert!(tags().open_in("<|im_start|>assistant\n<think>\n"));
    assert!(!tags().open_in("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
}

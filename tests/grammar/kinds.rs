//! The texts that each kind of grammar lets through.

use super::{check, choices, grammar, lark, regex, schema};
use ember::grammar::GrammarSpec;
use serde_json::json;

#[test]
fn a_regex_holds_for_the_whole_answer() {
    let date = grammar(regex(r"[0-9]{4}-(0[1-9]|1[0-2])"));
    check(
        &date,
        &["2024-01", "1999-12"],
        &["", "2024", "2024-", "2024-1"],
        &[("2024-13", "3"), ("24-01", "-01")],
    );
    check(&date, &[], &[], &[("2024-010", "0"), (" 2024-01", " 2024-01")]);
    let name = grammar(regex(r"/\w+(\\n)?"));
    check(&name, &["/Zoë", "/a\\n"], &["/", "/a\\"], &[("Zoë", "Zoë"), ("/a\n", "\n")]);
}

#[test]
fn choices_are_met_by_their_texts_only() {
    let answers = grammar(choices(&["no", "nope", "yes", "a \"b\"\\\n\u{7f}é", "<think>"]));
    let met = ["no", "nope", "yes", "a \"b\"\\\n\u{7f}é", "<think>"];
    check(&answers, &met, &["", "n", "nop", "ye"], &[("nopes", "s"), ("No", "No"), ("yes ", " ")]);
}

#[test]
fn lark_grammars_recurse() {
    let sums = grammar(lark("start: term (\"+\" term)*\nterm: /[0-9]+/ | \"(\" start \")\"\n%ignore \" \""));
    check(
        &sums,
        &["1", "1+2", "(1+(2))+3", "1 + 2"],
        &["(1", "1+", "("],
        &[("1++", "+"), ("1)", ")"), ("a", "a")],
    );
}

#[test]
fn lark_grammars_hold_schemas() {
    let call = grammar(lark(
        "start: \"call \" args\nargs: %json {\n  \"properties\": {\"n\": {\"type\": \"integer\"}},\n  \"additionalProperties\": false,\n  \"type\": \"object\"\n}",
    ));
    check(
        &call,
        &["call {\"n\": 5}", "call {}"],
        &["call ", "call {\n  \"n\""],
        &[("call {\"m\"", "m\""), ("call {\n\n", "\n")],
    );
}

#[test]
fn a_json_object_is_any_object() {
    let object = grammar(GrammarSpec::JsonObject);
    check(
        &object,
        &["{}", "{\"a\": [1, -2.5e3, true, null, \"é\\n\", {}]}", "{\n  \"a\": 1\n}", "{\"a\":1,\"a\":1}"],
        &["", "{", "{\"a\": [", "{\"a\": \"\\"],
        &[
            ("[]", "[]"),
            ("{\"a\": 01", "1"),
            ("{\"a\": tru}", "}"),
            ("{a", "a"),
            ("{}{", "{"),
            ("{\"a\": 1,}", "}"),
        ],
    );
}

#[test]
fn a_schema_fixes_names_order_and_types() {
    let person = grammar(schema(json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 4},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "kind": {"enum": ["a", 1, null]},
            "next": {"$ref": "#"},
        },
        "required": ["name"],
        "additionalProperties": false,
    })));
    check(
        &person,
        &[
            "{\"name\": \"Zoë\"}",
            "{\"name\":\"A\",\"age\":120}",
            "{\"name\":\"A\",\"kind\":null,\"next\":{\"name\":\"B\"}}",
        ],
        &["{", "{\"name\"", "{\"name\": \"A\"", "{\"name\":\"A\",\"next\":{"],
        &[
            ("{}", "}"),
            ("{\"age\"", "age\""),
            ("{\"name\":\"\"", "\""),
            ("{\"name\":\"abcde", "e"),
            ("{\"name\":\"A\",\"age\":121", "1"),
            ("{\"name\":\"A\",\"kind\":2", "2"),
            ("{\"name\":\"A\",\"name\"", "ame\""),
        ],
    );
}

#[test]
fn an_additional_property_cannot_spell_a_declared_one() {
    let object = grammar(schema(json!({
        "properties": {"ab": {"type": "null"}}, "additionalProperties": {"type": "integer"}, "type": "object"
    })));
    check(
        &object,
        &["{\"ab\": null}", "{\"abc\": 1}", "{\"a\\n\": 1}", "{\"ab\": null, \"b\": 2}"],
        &[],
        &[("{\"ab\": 1", "1"), ("{\"\\u0061b\": 1", "u0061b\": 1"), ("{\"b\": 2, \"ab\"", "\"")],
    );
}

/// One space, or a line break with an indentation: nothing that a model could go on with for ever.
#[test]
fn white_space_in_json_is_bounded() {
    let list = grammar(schema(json!({"type": "array", "items": {"type": "integer"}})));
    let indented = |blanks: usize| format!("[\n{}1", " ".repeat(blanks));
    check(
        &list,
        &["[1,2]", "[1, 2]", "[\n  1,\n  2\n]", "[\r\n\t\t1 ]", "[]"],
        &[&indented(0), &indented(32)],
        &[("[  1", " 1"), ("[\n\n", "\n"), ("[\n \n", "\n"), ("[1\n ,  ", " "), (" [", " ["), ("\n[", "\n[")],
    );
    let beyond = indented(33);
    check(&list, &[], &[], &[(&beyond, " 1")]);
}

#[test]
fn alternatives_and_intersections() {
    let either = grammar(schema(json!({"anyOf": [{"type": "integer"}, {"const": {"a": [1]}}]})));
    check(&either, &["12", "{\"a\":[1]}"], &["{"], &[("{\"b\"", "b\""), ("1.", "."), ("\"", "\"")]);
    let both = grammar(schema(json!({
        "allOf": [{"minimum": 10}, {"maximum": 19}], "type": "integer", "multipleOf": 5
    })));
    check(&both, &["10", "15"], &["1"], &[("12", "2"), ("20", "20"), ("5", "5")]);
    let one = grammar(schema(json!({"oneOf": [{"type": "null"}, {"type": "boolean"}]})));
    check(&one, &["null", "true", "false"], &["t"], &[("1", "1")]);
}

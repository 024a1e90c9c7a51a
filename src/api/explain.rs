//! Explanation of an invalid JSON body in the words of the API: the field, the found value and the expected one. The
//! text has no words of the JSON library, and no internal names that the client does not know.

use serde::de::DeserializeOwned;
use serde_path_to_error::{Path, Segment};

use angarium_core::error::{Error, InvalidPart};

/// Parses an invalid text a second time, slowly, to find the position of the error.
pub fn explain<T: DeserializeOwned>(bytes: &[u8]) -> Error {
    if bytes.trim_ascii().is_empty() {
        return Error::invalid(InvalidPart::Body, "", "the request body could not be parsed: it is empty");
    }
    if let Err(error) = std::str::from_utf8(bytes) {
        let at = error.valid_up_to();
        let why = format!("the request body could not be parsed: byte {at} is not UTF-8");
        return Error::invalid(InvalidPart::Body, "", why);
    }
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let failure = match serde_path_to_error::deserialize::<_, T>(&mut reader) {
        Ok(_) => return Error::invalid(InvalidPart::Body, "", "there is text after the JSON value"),
        Err(failure) => failure,
    };
    let field = field(failure.path());
    let inner = failure.into_inner();
    let (line, column) = (inner.line(), inner.column());
    let text = inner.to_string();
    let text = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text);
    if inner.is_data() {
        return Error::invalid(InvalidPart::Body, field, in_our_words(text));
    }
    let why = format!("the request body could not be parsed: {text} at line {line}, column {column}");
    Error::invalid(InvalidPart::Body, field, why)
}

/// Returns the path of a field, as in `messages[0].ttl`, as far as it is known; empty for the whole body.
fn field(path: &Path) -> String {
    let mut text = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => text.push_str(&format!("[{index}]")),
            Segment::Map { key } | Segment::Enum { variant: key } => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(key);
            }
            Segment::Unknown => break,
        }
    }
    text
}

/// Rewords serde's error about valid JSON with a wrong value.
fn in_our_words(text: &str) -> String {
    if let Some(name) = quoted(text, "missing field ") {
        return format!("the field '{name}' is missing");
    }
    if let Some(name) = quoted(text, "duplicate field ") {
        return format!("the field '{name}' is given more than once");
    }
    if let Some((name, known)) = text.strip_prefix("unknown field `").and_then(|rest| rest.split_once("`, "))
    {
        let known =
            known.strip_prefix("expected one of ").or(known.strip_prefix("expected ")).unwrap_or_default();
        return format!("the field '{name}' is not known; known fields: {}", known.replace('`', ""));
    }
    let Some((found, wanted)) = text
        .strip_prefix("invalid type: ")
        .or_else(|| text.strip_prefix("invalid value: "))
        .and_then(|rest| rest.rsplit_once(", expected "))
    else {
        return text.to_owned();
    };
    match (wanted_of(wanted), found_of(found)) {
        (wanted, _) if text.starts_with("invalid value") => {
            format!("the value is out of range: it must be {wanted}")
        }
        (wanted, found) => format!("it must be {wanted}, not {found}"),
    }
}

fn quoted<'t>(text: &'t str, before: &str) -> Option<&'t str> {
    text.strip_prefix(before)?.strip_prefix('`')?.strip_suffix('`')
}

/// Returns the expected kind of value.
fn wanted_of(text: &str) -> &str {
    match text {
        "i64" | "u64" | "i32" | "u32" | "usize" => "a whole number",
        "f64" | "f32" => "a number",
        "a sequence" => "a list",
        "a boolean" => "true or false",
        "any valid JSON value" => "a JSON value",
        _ if text.starts_with("struct ") || text.ends_with("map") || text == "a JSON object" => {
            "a JSON object"
        }
        other => other,
    }
}

/// Returns the kind of value that was found. Values are not repeated: they may be long or private.
fn found_of(text: &str) -> &'static str {
    match text.split([' ', '`']).next().unwrap_or_default() {
        "null" | "unit" | "Option" => "null",
        "boolean" => "true or false",
        "integer" => "a whole number",
        "floating" | "number" => "a number with a fraction",
        "string" | "character" => "a string",
        "sequence" => "a list",
        "map" => "an object",
        _ => "what it is",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only how reading it fails matters")]
    struct Form {
        list: Vec<i64>,
        map: Option<HashMap<String, bool>>,
        text: Option<String>,
    }

    #[test]
    fn parse_error_uses_words_of_the_api() {
        for (body, said) in [
            ("", "the request body could not be parsed: it is empty"),
            ("null", "it must be a JSON object, not null"),
            ("{}", "the field 'list' is missing"),
            (r#"{"list":[],"list":[]}"#, "the field 'list' is given more than once"),
            (r#"{"list":{}}"#, "list: it must be a list, not an object"),
            (r#"{"list":[1,"2"]}"#, "list[1]: it must be a whole number, not a string"),
            (r#"{"list":[1.5]}"#, "list[0]: it must be a whole number, not a number with a fraction"),
            (r#"{"list":[true]}"#, "list[0]: it must be a whole number, not true or false"),
            (
                r#"{"list":[18446744073709551615]}"#,
                "list[0]: the value is out of range: it must be a whole number",
            ),
            (
                r#"{"list":[99999999999999999999]}"#,
                "list[0]: it must be a whole number, not a number with a fraction",
            ),
            (r#"{"list":[],"map":{"a":1}}"#, "map.a: it must be true or false, not a whole number"),
            (r#"{"list":[],"text":[]}"#, "text: it must be a string, not a list"),
            (r#"{"list":[]} x"#, "there is text after the JSON value"),
        ] {
            assert_eq!(explain::<Form>(body.as_bytes()).to_string(), said, "{body}");
        }
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only how reading it fails matters")]
    struct Strict {
        uri: Option<String>,
        weight: Option<i64>,
    }

    #[test]
    fn unknown_field_error_lists_known_fields() {
        for (body, said) in [
            (r#"{"url":""}"#, "url: the field 'url' is not known; known fields: uri or weight"),
            (r#"{"":1}"#, "the field '' is not known; known fields: uri or weight"),
        ] {
            assert_eq!(explain::<Strict>(body.as_bytes()).to_string(), said);
        }
    }

    #[test]
    fn broken_json_error_has_position_and_no_guess() {
        let said = explain::<Form>(b"{\"list\":[1,}").to_string();
        assert!(said.contains("could not be parsed") && said.contains("line 1, column"), "{said}");
        assert!(!said.contains('?'), "{said}");
        let said = explain::<Form>(b"{\"list\":\"\xff\"}").to_string();
        assert!(said.ends_with("byte 9 is not UTF-8"), "{said}");
    }
}

//! Message attributes in the form of SQS: their rules, their checksum, and the selection of a receive.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::decode::shown;
use super::fault::{Fault, Kind};
use super::lists::BoundedMap;
use angarium_core::limits;
use angarium_core::message_attribute::{MessageAttribute, MessageAttributes, Value};

/// An attribute as it is written. Binary values are base64.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct AttributeEntry {
    data_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    string_value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    binary_value: Option<String>,
    /// Lists, which the model of AWS reserves for later.
    #[serde(default, alias = "StringListValue", skip_serializing)]
    string_list_values: Option<IgnoredAny>,
    #[serde(default, alias = "BinaryListValue", skip_serializing)]
    binary_list_values: Option<IgnoredAny>,
}

/// Attributes by name.
pub type AttributeEntries = BTreeMap<String, AttributeEntry>;

/// The parsed attributes of a message, up to the allowed number.
pub type AttributeInput = BoundedMap<AttributeEntry, { limits::SQS_ATTRIBUTES }>;

impl From<&MessageAttribute> for AttributeEntry {
    fn from(attribute: &MessageAttribute) -> Self {
        let (string_value, binary_value) = match &attribute.value {
            Value::Text(text) => (Some(text.clone()), None),
            Value::Binary(bytes) => (None, Some(STANDARD.encode(bytes))),
        };
        Self { data_type: Some(attribute.data_type.clone()), string_value, binary_value, ..Self::default() }
    }
}

/// Returns the attributes of a message in a request; fails if there are too many.
pub fn written(asked: Option<AttributeInput>) -> Result<AttributeEntries, Fault> {
    asked.unwrap_or_default().whole().map_err(|count| {
        let most = limits::SQS_ATTRIBUTES;
        Fault::value(format!("Number of message attributes [{count}] exceeds the allowed maximum [{most}]."))
    })
}

/// Checks the attributes of a message. Errors name `owner` as AWS does.
pub fn checked(owner: &str, written: AttributeEntries) -> Result<MessageAttributes, Fault> {
    let checked = written.into_iter().map(|(name, written)| {
        check_name(owner, &name).map_err(Fault::value)?;
        let attribute = one(owner, &name, written)?;
        Ok((name, attribute))
    });
    checked.collect()
}

fn check_name(owner: &str, name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    let lower = name.to_ascii_lowercase();
    let wrong = |why: &str| Err(format!("Message {owner} attribute name {why}. It is '{}'.", shown(name)));
    if name.is_empty() {
        return Err(format!("The request must contain non-empty message {owner} attribute names."));
    }
    if name.chars().count() > limits::SQS_ATTRIBUTE_CHARS {
        let most = limits::SQS_ATTRIBUTE_CHARS;
        return wrong(&format!("must be shorter than {most} bytes"));
    }
    if lower.starts_with("aws.") || lower.starts_with("amazon.") {
        return Err(format!(
            "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These strings are reserved for \
             internal use. One is '{}'.",
            shown(name)
        ));
    }
    if name.starts_with('.') {
        return wrong("must not begin with character '.'");
    }
    if name.ends_with('.') {
        return wrong("must not end with character '.'");
    }
    if name.contains("..") {
        return wrong("must not have successive '.' characters");
    }
    if !name.chars().all(plain) {
        return wrong("can only contain letters, digits, periods, hyphens and underscores");
    }
    Ok(())
}

fn one(owner: &str, name: &str, written: AttributeEntry) -> Result<MessageAttribute, Fault> {
    let wrong = |why: &str| Fault::value(format!("Message {owner} attribute '{name}' {why}."));
    let no_type = || {
        let why = "must contain a non-empty message attribute type.";
        Fault::value(format!("The message {owner} attribute '{name}' {why}"))
    };
    if written.string_list_values.is_some() || written.binary_list_values.is_some() {
        let why = "Message attribute list values in SendMessage operation are not supported.";
        return Err(Fault::new(Kind::UnsupportedOperation, why));
    }
    let data_type = written.data_type.filter(|data_type| !data_type.is_empty()).ok_or_else(no_type)?;
    if data_type.chars().count() > limits::SQS_ATTRIBUTE_CHARS {
        let most = limits::SQS_ATTRIBUTE_CHARS;
        let why = format!(
            "Message {owner} attribute type must be shorter than {most} bytes, that of '{name}' too."
        );
        return Err(Fault::value(why));
    }
    let kind = data_type.split('.').next().unwrap_or_default();
    let is_text = kind != "Binary";
    if !["String", "Number", "Binary"].contains(&kind) {
        let why = "You must use only the following supported type prefixes: Binary, Number, String.";
        return Err(Fault::value(format!(
            "The type of message {owner} attribute '{name}' is invalid. {why}"
        )));
    }
    let text = written.string_value.filter(|text| !text.is_empty());
    let binary = written.binary_value.filter(|text| !text.is_empty());
    let value = match (text, binary) {
        (Some(_), Some(_)) => return Err(wrong("must have a single value")),
        (Some(text), None) if is_text => Value::Text(checked_text(owner, name, kind, text)?),
        (None, Some(text)) if !is_text => {
            let bytes = STANDARD.decode(text).map_err(|_| wrong("is not base64"))?;
            Value::Binary(bytes.into())
        }
        (None, None) => {
            return Err(wrong(&format!("must contain a non-empty value of type '{}'", shown(&data_type))));
        }
        (Some(_), None) | (None, Some(_)) => {
            let field = if is_text { "String" } else { "Binary" };
            let of_type = shown(&data_type);
            return Err(wrong(&format!("with type '{of_type}' must use field '{field}'")));
        }
    };
    Ok(MessageAttribute { data_type, value })
}

/// Checks the text or the number of an attribute.
fn checked_text(owner: &str, name: &str, kind: &str, text: String) -> Result<String, Fault> {
    if kind == "Number" && !is_number(&text) {
        let cast = format!("Can't cast the value of message {owner} attribute '{name}' to a number.");
        return Err(Fault::value(cast));
    }
    if !is_allowed(&text) {
        let why = "has a character that is not allowed";
        return Err(Fault::value(format!("Message {owner} attribute '{name}' {why}.")));
    }
    Ok(text)
}

/// Whether a message may have this text: all characters must be allowed in XML 1.0, which excludes most control
/// characters and two others.
pub fn is_allowed(text: &str) -> bool {
    let is_control = |byte: u8| byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r');
    // The loop has no early exit, so that the compiler can check many bytes at once.
    let has_control = text.bytes().fold(false, |found, byte| found | is_control(byte));
    !has_control && (text.is_ascii() || !text.contains(['\u{fffe}', '\u{ffff}']))
}

/// Whether a text is a decimal number of at most 38 digits, from -10^128 to 10^126.
fn is_number(text: &str) -> bool {
    let text = text.trim();
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let digits = mantissa.trim_start_matches(['+', '-', '0']).bytes().filter(u8::is_ascii_digit).count();
    let plain = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E');
    digits <= 38
        && text.bytes().all(plain)
        && text.parse::<f64>().is_ok_and(|number| (-1e128..=1e126).contains(&number))
}

/// Returns the checksum of the attributes of a message, as clients compute it; none without attributes.
pub fn md5(attributes: &MessageAttributes) -> Option<String> {
    (!attributes.is_empty()).then(|| md5_of(&attributes.canonical()))
}

/// Returns an MD5 in hexadecimal digits.
pub fn md5_of(bytes: &[u8]) -> String {
    format!("{:032x}", u128::from_be_bytes(Md5::digest(bytes).into()))
}

/// Whether a name in the selection of a receive matches an attribute.
pub fn is_wanted(wanted: &[String], name: &str) -> bool {
    wanted.iter().any(|wanted| match wanted.as_str() {
        "All" | "*" | ".*" => true,
        wanted => wanted == name || wanted.strip_suffix(".*").is_some_and(|prefix| name.starts_with(prefix)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_the_characters_of_xml() {
        let is_of_xml =
            |character| matches!(character, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..);
        for character in '\0'..='\u{10ffff}' {
            assert_eq!(is_allowed(&format!("a{character}")), is_of_xml(character), "{character:?}");
        }
        assert!(is_allowed(""));
    }

    fn text(data_type: &str, value: &str) -> AttributeEntry {
        AttributeEntry {
            data_type: Some(data_type.into()),
            string_value: Some(value.into()),
            ..AttributeEntry::default()
        }
    }

    fn check(name: &str, written: AttributeEntry) -> bool {
        checked("(user)", AttributeEntries::from([(name.to_owned(), written)])).is_ok()
    }

    #[test]
    fn names_types_and_values_have_their_rules() {
        for name in ["a", "A-b_c.1", "ä", &"x".repeat(256)] {
            assert!(check(name, text("String", "v")), "{name}");
        }
        for name in ["", ".a", "a.", "a..b", "aws.x", "AMAZON.x", "a b", &"x".repeat(257)] {
            assert!(!check(name, text("String", "v")), "{name}");
        }
        for (data_type, value) in [("String.label", "v"), ("Number", "-1.5e3"), ("Number.int", "007")] {
            assert!(check("a", text(data_type, value)), "{data_type}");
        }
        for (data_type, value) in [
            ("", "v"),
            ("string", "v"),
            ("String", ""),
            ("String", "\u{1}"),
            ("Number", "x"),
            ("Binary", "v"),
        ] {
            assert!(!check("a", text(data_type, value)), "{data_type} {value}");
        }
        assert!(!check("a", text("Number", &"1".repeat(39))) && check("a", text("Number", &"1".repeat(38))));
        assert!(!check("a", text("Number", "1e127")) && check("a", text("Number", "-1e127")));
    }

    #[test]
    fn checksums_match_those_of_clients() {
        assert_eq!(md5_of(b""), "d41d8cd98f00b204e9800998ecf8427e");
        let timestamp = AttributeEntries::from([("timestamp".into(), text("Number", "1493147359900"))]);
        let one = checked("(user)", timestamp).unwrap();
        assert_eq!(md5(&one).as_deref(), Some("235c5c510d26fb653d073faed50ae77c"));
        assert_eq!(md5(&MessageAttributes::default()), None);
    }

    #[test]
    fn names_are_wanted_one_by_one_by_prefix_or_all() {
        let wanted = |wanted: &str, name| is_wanted(&[wanted.to_owned()], name);
        for all in ["All", "*", ".*"] {
            assert!(wanted(all, "any"));
        }
        assert!(wanted("a", "a") && wanted("a.*", "a.b") && wanted("a.*", "ab"));
        assert!(!wanted("a", "ab") && !wanted("b.*", "a") && !is_wanted(&[], "a"));
    }
}

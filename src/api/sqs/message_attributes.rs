//! The attributes of messages as SQS writes them: their rules, their checksum, and which of them a receive wants.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};
use serde::{Deserialize, Serialize};

use super::decode::shown;
use super::fault::Fault;
use super::lists::Mapped;
use crate::domain::limits;
use crate::domain::message_attribute::{MessageAttribute, MessageAttributes, Value};

/// An attribute as it is written. Binary values are base64.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Written {
    data_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    string_value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    binary_value: Option<String>,
}

/// Attributes by their names.
pub type WrittenMap = BTreeMap<String, Written>;

/// The attributes of a message as they are read: as many as it may have.
pub type WrittenAttributes = Mapped<Written, { limits::SQS_ATTRIBUTES }>;

impl From<&MessageAttribute> for Written {
    fn from(attribute: &MessageAttribute) -> Self {
        let (string_value, binary_value) = match &attribute.value {
            Value::Text(text) => (Some(text.clone()), None),
            Value::Binary(bytes) => (None, Some(STANDARD.encode(bytes))),
        };
        Self { data_type: Some(attribute.data_type.clone()), string_value, binary_value }
    }
}

/// The attributes that a request has for a message, if those are not too many.
pub fn written(asked: Option<WrittenAttributes>) -> Result<WrittenMap, Fault> {
    asked.unwrap_or_default().whole().map_err(|count| {
        let most = limits::SQS_ATTRIBUTES;
        Fault::value(format!("Number of message attributes [{count}] exceeds the allowed maximum [{most}]."))
    })
}

/// Checks the attributes of a message.
pub fn checked(written: WrittenMap) -> Result<MessageAttributes, Fault> {
    let checked = written.into_iter().map(|(name, written)| {
        check_name(&name)?;
        let attribute = one(&name, written)?;
        Ok((name, attribute))
    });
    checked.collect()
}

fn check_name(name: &str) -> Result<(), Fault> {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    let lower = name.to_ascii_lowercase();
    let is_reserved = lower.starts_with("aws.") || lower.starts_with("amazon.");
    let has_lone_dot = name.starts_with('.') || name.ends_with('.') || name.contains("..");
    let fits = (1..=limits::SQS_ATTRIBUTE_CHARS).contains(&name.chars().count());
    if !fits || !name.chars().all(plain) || is_reserved || has_lone_dot {
        return Err(Fault::value(format!("Invalid message attribute name: {:?}.", shown(name))));
    }
    Ok(())
}

fn one(name: &str, written: Written) -> Result<MessageAttribute, Fault> {
    let wrong = |why: &str| Fault::value(format!("Message (user) attribute '{name}' {why}."));
    let data_type = written.data_type.filter(|data_type| !data_type.is_empty());
    let data_type = data_type.ok_or_else(|| wrong("must contain a non-empty message attribute type"))?;
    if data_type.chars().count() > limits::SQS_ATTRIBUTE_CHARS {
        return Err(wrong("has a type that is too long"));
    }
    let text = written.string_value.filter(|text| !text.is_empty());
    let binary = written.binary_value.filter(|text| !text.is_empty());
    let value = match (data_type.split('.').next().unwrap_or_default(), text, binary) {
        ("String", Some(text), None) if is_allowed(&text) => Value::Text(text),
        ("String", Some(_), None) => return Err(wrong("has a character that is not allowed")),
        ("Number", Some(text), None) if is_number(&text) => Value::Text(text),
        ("Number", Some(_), None) => return Err(wrong("is not a number of at most 38 digits")),
        ("Binary", None, Some(text)) => {
            let bytes = STANDARD.decode(text).map_err(|_| wrong("is not base64"))?;
            Value::Binary(bytes.into())
        }
        ("String" | "Number" | "Binary", _, _) => {
            return Err(wrong(&format!("must contain a non-empty value of type '{data_type}'")));
        }
        _ => return Err(wrong("has a type that is none of String, Number and Binary")),
    };
    Ok(MessageAttribute { data_type, value })
}

/// Whether a message may have this text: its characters are those of XML 1.0, which are all but most controls and two more.
pub fn is_allowed(text: &str) -> bool {
    let is_control = |byte: u8| byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r');
    // Without an end in between, so that many bytes are looked at together.
    let has_control = text.bytes().fold(false, |found, byte| found | is_control(byte));
    !has_control && (text.is_ascii() || !text.contains(['\u{fffe}', '\u{ffff}']))
}

/// A decimal number of at most 38 digits, from -10^128 to 10^126.
fn is_number(text: &str) -> bool {
    let text = text.trim();
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let digits = mantissa.trim_start_matches(['+', '-', '0']).bytes().filter(u8::is_ascii_digit).count();
    let plain = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E');
    digits <= 38
        && text.bytes().all(plain)
        && text.parse::<f64>().is_ok_and(|number| (-1e128..=1e126).contains(&number))
}

/// The checksum of the attributes of a message as clients compute it; none when it has none.
pub fn md5(attributes: &MessageAttributes) -> Option<String> {
    (!attributes.is_empty()).then(|| md5_of(&attributes.canonical()))
}

/// An MD5 in hexadecimal digits.
pub fn md5_of(bytes: &[u8]) -> String {
    format!("{:032x}", u128::from_be_bytes(Md5::digest(bytes).into()))
}

/// Whether one of the names that a receive wants lets an attribute through.
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

    fn text(data_type: &str, value: &str) -> Written {
        Written { data_type: Some(data_type.into()), string_value: Some(value.into()), binary_value: None }
    }

    fn check(name: &str, written: Written) -> bool {
        checked(WrittenMap::from([(name.to_owned(), written)])).is_ok()
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
    fn checksums_are_those_that_clients_compute() {
        assert_eq!(md5_of(b""), "d41d8cd98f00b204e9800998ecf8427e");
        let one = checked(WrittenMap::from([("timestamp".into(), text("Number", "1493147359900"))])).unwrap();
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

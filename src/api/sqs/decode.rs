//! Decoding of requests in both protocols into the same values: JSON is parsed directly, and the parameters of the
//! query protocol are first converted to the structure of the JSON.

use std::borrow::Cow;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::map::Entry;
use serde_json::{Map, Value};

use super::fault::{Fault, Kind};
use angarium_core::limits;

/// The form of a request, and so of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// AWS JSON 1.0.
    Json,
    /// The query protocol, answered in XML.
    Query,
    /// The query protocol, for a client that accepts JSON.
    QueryJson,
}

/// The arguments of an operation.
#[derive(Clone, Debug)]
pub enum Arguments {
    /// A JSON object as it was received.
    Json(Bytes),
    /// Parameters, converted to the structure of the JSON.
    Query(Value),
}

impl Arguments {
    /// Takes the arguments and leaves none.
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, Self::Json(Bytes::new()))
    }

    /// Parses the arguments as the request of an operation, or as a part of it. Members that `T` does not have are
    /// skipped; a repeated member is an error.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        let read = match self {
            Self::Json(bytes) if bytes.trim_ascii().is_empty() => serde_json::from_slice(b"{}"),
            // serde would also read a struct from an array, field by field.
            Self::Json(bytes) if !bytes.trim_ascii_start().starts_with(b"{") => {
                return Err(Fault::new(Kind::Serialization, "The body is not a JSON object."));
            }
            Self::Json(bytes) => serde_json::from_slice(bytes),
            Self::Query(value) => T::deserialize(value),
        };
        // The error repeats the value that is in a wrong place, so it is truncated.
        let told = |error: serde_json::Error| shown(&error.to_string());
        read.map_err(|error| {
            Fault::new(Kind::Serialization, format!("The request cannot be read: {}.", told(error)))
        })
    }
}

/// The structure of a member that the query protocol writes as several parameters.
#[derive(Clone, Copy)]
enum ListForm {
    List,
    /// A map, with the names for the key and the value of an entry.
    Map(&'static str, &'static str),
}

/// Members that are written as several parameters: prefix of the parameters, name in JSON, and structure.
const MANY: [(&str, &str, ListForm); 13] = [
    ("AWSAccountId", "AWSAccountIds", ListForm::List),
    ("ActionName", "Actions", ListForm::List),
    ("Attribute", "Attributes", ListForm::Map("Name", "Value")),
    ("AttributeName", "AttributeNames", ListForm::List),
    ("ChangeMessageVisibilityBatchRequestEntry", "Entries", ListForm::List),
    ("DeleteMessageBatchRequestEntry", "Entries", ListForm::List),
    ("MessageAttribute", "MessageAttributes", ListForm::Map("Name", "Value")),
    ("MessageAttributeName", "MessageAttributeNames", ListForm::List),
    ("MessageSystemAttribute", "MessageSystemAttributes", ListForm::Map("Name", "Value")),
    ("MessageSystemAttributeName", "MessageSystemAttributeNames", ListForm::List),
    ("SendMessageBatchRequestEntry", "Entries", ListForm::List),
    ("Tag", "Tags", ListForm::Map("Key", "Value")),
    ("TagKey", "TagKeys", ListForm::List),
];

/// Splits a query or a form into its parameters and decodes them.
pub fn pairs(text: &[u8]) -> impl Iterator<Item = Result<(Cow<'_, str>, Cow<'_, str>), Fault>> {
    let raw = text.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty());
    raw.filter_map(|raw| {
        let (name, value) = form_urlencoded::parse(raw).next()?;
        // Invalid UTF-8 was decoded to this character, but the client may also have sent the character itself.
        let is_doubtful = name.contains('\u{fffd}') || value.contains('\u{fffd}');
        if is_doubtful && !is_utf8(raw) {
            return Some(Err(Fault::parameter(&shown(&name), value, "It is not UTF-8")));
        }
        Some(Ok((name, value)))
    })
}

/// Whether an escaped text decodes to valid UTF-8.
fn is_utf8(escaped: &[u8]) -> bool {
    let (mut bytes, mut rest) = (Vec::with_capacity(escaped.len()), escaped);
    while let [byte, behind @ ..] = rest {
        let digits = behind.get(..2).filter(|_| *byte == b'%').and_then(|digits| str::from_utf8(digits).ok());
        let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(escaped) => {
                bytes.push(escaped);
                rest = &behind[2..];
            }
            None => {
                bytes.push(*byte);
                rest = behind;
            }
        }
    }
    str::from_utf8(&bytes).is_ok()
}

/// Converts at most `most` parameters of a query to the structure of the JSON. A name has at most
/// [`limits::SQS_NAME_PARTS`] parts, which bounds the depth of the result. A parameter may be repeated only with the
/// same value.
pub fn parameters<'a>(
    pairs: impl Iterator<Item = Result<(Cow<'a, str>, Cow<'a, str>), Fault>>,
    most: usize,
) -> Result<Map<String, Value>, Fault> {
    let mut tree = Map::new();
    for (count, pair) in pairs.enumerate() {
        if count == most {
            let why = format!(
                "The request has more than {most} parameters, which is the bound of this service: send smaller batches."
            );
            return Err(Fault::value(why));
        }
        let (name, value) = pair?;
        put(&mut tree, &name, value)?;
    }
    in_json_form(tree)
}

/// Inserts a parameter at the position that the parts of its name give.
fn put(tree: &mut Map<String, Value>, name: &str, value: Cow<'_, str>) -> Result<(), Fault> {
    if name.split('.').nth(limits::SQS_NAME_PARTS).is_some() {
        let why = format!(
            "The name of the parameter {} has more than {} parts.",
            shown(name),
            limits::SQS_NAME_PARTS
        );
        return Err(Fault::new(Kind::Serialization, why));
    }
    let twice =
        || Fault::new(Kind::Serialization, format!("The parameter {} is there more than once.", shown(name)));
    let (above, last) = name.rsplit_once('.').map_or((None, name), |(above, last)| (Some(above), last));
    let mut at = tree;
    for part in above.into_iter().flat_map(|above| above.split('.')) {
        let below = at.entry(part).or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(below) = below else { return Err(twice()) };
        at = below;
    }
    match at.entry(last) {
        Entry::Vacant(entry) => drop(entry.insert(Value::String(value.into_owned()))),
        Entry::Occupied(entry) if *entry.get() == *value => {}
        Entry::Occupied(_) => return Err(twice()),
    }
    Ok(())
}

/// Truncates a text for an error message.
pub fn shown(text: &str) -> String {
    text.chars().take(limits::SQS_SHOWN_CHARS).collect()
}

fn in_json_form(tree: Map<String, Value>) -> Result<Map<String, Value>, Fault> {
    let mut members = Map::new();
    for (name, value) in tree {
        // An empty list is one parameter without a value, under its name in JSON.
        if value == "" && MANY.iter().any(|(_, json, _)| *json == name) {
            continue;
        }
        let many = MANY.iter().find(|(query, _, _)| *query == name);
        let (name, value) = match (many, value) {
            (Some((_, json, many)), Value::Object(entries)) => ((*json).to_owned(), several(entries, *many)?),
            (_, Value::Object(below)) => (name, Value::Object(in_json_form(below)?)),
            (_, value) => (name, value),
        };
        match members.entry(name) {
            Entry::Vacant(entry) => drop(entry.insert(value)),
            // The same list was given under the name of another operation, or under its name in JSON.
            Entry::Occupied(entry) => {
                let why = format!("{} is there in two forms.", shown(entry.key()));
                return Err(Fault::new(Kind::Serialization, why));
            }
        }
    }
    Ok(members)
}

/// Builds a list or a map from its entries, in the order of their numbers.
fn several(entries: Map<String, Value>, many: ListForm) -> Result<Value, Fault> {
    let mut numbered: Vec<(u64, Value)> =
        entries.into_iter().filter_map(|(number, value)| Some((number.parse().ok()?, value))).collect();
    numbered.sort_by_key(|(number, _)| *number);
    let values = numbered.into_iter().map(|(_, value)| match value {
        Value::Object(below) => in_json_form(below).map(Value::Object),
        value => Ok(value),
    });
    let values = values.collect::<Result<Vec<_>, _>>()?;
    let (key, part) = match many {
        ListForm::List => return Ok(Value::Array(values)),
        ListForm::Map(key, value) => (key, value),
    };
    let mut map = Map::new();
    for entry in values {
        let Value::Object(mut entry) = entry else { continue };
        let Some(name) = entry.get(key).and_then(Value::as_str).map(str::to_owned) else { continue };
        if map.contains_key(&name) {
            let why = format!("{} is there more than once.", shown(&name));
            return Err(Fault::new(Kind::Serialization, why));
        }
        map.insert(name, entry.remove(part).unwrap_or(Value::Null));
    }
    Ok(Value::Object(map))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(query: &str) -> Value {
        Value::Object(parsed(query, 64).unwrap())
    }

    fn parsed(query: &str, most: usize) -> Result<Map<String, Value>, Fault> {
        parameters(pairs(query.as_bytes()), most)
    }

    #[test]
    fn query_parameters_decode_like_json() {
        let query = "Action=SendMessageBatch&QueueUrl=http%3A%2F%2Fh%2F000000000000%2Fq\
            &SendMessageBatchRequestEntry.2.Id=b&SendMessageBatchRequestEntry.1.Id=a\
            &SendMessageBatchRequestEntry.1.MessageBody=x%20y\
            &SendMessageBatchRequestEntry.1.MessageAttribute.1.Name=n\
            &SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.DataType=String\
            &SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.StringValue=v&Tag.1.Key=k&Tag.1.Value=w";
        let expected = json!({
            "Action": "SendMessageBatch", "QueueUrl": "http://h/000000000000/q", "Tags": {"k": "w"},
            "Entries": [
                {"Id": "a", "MessageBody": "x y",
                    "MessageAttributes": {"n": {"DataType": "String", "StringValue": "v"}}},
                {"Id": "b"},
            ]
        });
        assert_eq!(read(query), expected);
    }

    #[test]
    fn entries_stand_in_the_order_of_their_numbers() {
        assert_eq!(
            read("AttributeName.10=c&AttributeName.9=b&AttributeName.1=a"),
            json!({"AttributeNames": ["a", "b", "c"]})
        );
    }

    #[test]
    fn ambiguous_parameter_is_refused() {
        for query in [
            "A=1&A.1=2",
            "A.1=2&A=1",
            "A=1&A=2",
            "Attribute.1.Name=n&Attribute.1.Value=1&Attribute.2.Name=n&Attribute.2.Value=2",
            "AttributeName.1=a&AttributeNames=b",
            "SendMessageBatchRequestEntry.1.Id=a&DeleteMessageBatchRequestEntry.1.Id=b",
        ] {
            assert_eq!(parsed(query, 64).unwrap_err().kind, Kind::Serialization, "{query}");
        }
        assert_eq!(read("Action=ListQueues&Action=ListQueues"), json!({"Action": "ListQueues"}));
    }

    #[test]
    fn non_utf8_form_text_is_refused() {
        for query in ["MessageBody=%FF", "MessageBody=a%C3", "MessageBody=%ED%A0%80", "A=1&Message%FFBody=x"]
        {
            let refused = parsed(query, 64).unwrap_err();
            assert_eq!(refused.kind, Kind::InvalidParameterValue, "{query}");
            assert!(refused.message.ends_with("is invalid. Reason: It is not UTF-8."), "{}", refused.message);
        }
        assert_eq!(
            read("A=%EF%BF%BD&B=%e2%82%ac+%&&C=\u{fffd}"),
            json!({"A": "\u{fffd}", "B": "€ %", "C": "\u{fffd}"})
        );
    }

    #[test]
    fn parameter_name_parts_are_bounded() {
        assert!(parsed("a.b.c.d.e.f.g.h=1", 64).is_ok());
        let refused = parsed("a.b.c.d.e.f.g.h.i=1", 64).unwrap_err();
        assert!(refused.message.contains("more than 8 parts"), "{}", refused.message);
        let long = format!("{}a=1", "a.".repeat(1_000_000));
        assert!(parsed(&long, 64).unwrap_err().message.len() < 2 * limits::SQS_SHOWN_CHARS);
    }

    #[test]
    fn parameter_count_is_bounded() {
        let query = |count: usize| (0..count).map(|at| format!("a.{at}=1&")).collect::<String>();
        assert!(parsed(&query(64), 64).is_ok());
        let refused = parsed(&query(65), 64).unwrap_err();
        assert!(refused.message.contains("more than 64 parameters"), "{}", refused.message);
    }
}

//! Requests of both protocols as the same values: the JSON of the one is read as it is, the parameters of the other are put
//! into the form that the JSON would have had.

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::fault::{Fault, Kind};

/// Which of the two protocols of SQS a request speaks, and so its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// AWS JSON 1.0.
    Json,
    /// The query protocol, answered in XML.
    Query,
    /// The query protocol, for a client that accepts JSON.
    QueryJson,
}

/// What an operation is to be done with.
#[derive(Clone, Debug)]
pub enum Arguments {
    /// A JSON object as it came.
    Json(Bytes),
    /// Parameters, in the form of the JSON.
    Query(Value),
}

impl Arguments {
    /// Reads them as the request of an operation.
    pub fn read<T: DeserializeOwned>(self) -> Result<T, Fault> {
        let read = match self {
            Self::Json(bytes) if bytes.trim_ascii().is_empty() => serde_json::from_slice(b"{}"),
            // serde reads structs from arrays too, field by field.
            Self::Json(bytes) if !bytes.trim_ascii_start().starts_with(b"{") => {
                return Err(Fault::new(Kind::Serialization, "The body is not a JSON object."));
            }
            Self::Json(bytes) => serde_json::from_slice(&bytes),
            Self::Query(value) => serde_json::from_value(value),
        };
        read.map_err(|error| Fault::new(Kind::Serialization, format!("The request cannot be read: {error}.")))
    }
}

/// The form of a member that the query protocol writes as several parameters.
#[derive(Clone, Copy)]
enum Many {
    List,
    /// A map, with the names of the parts of an entry.
    Map(&'static str, &'static str),
}

/// Members that are several parameters each: as the parameters begin, as the JSON calls them, and their form.
const MANY: [(&str, &str, Many); 13] = [
    ("AWSAccountId", "AWSAccountIds", Many::List),
    ("ActionName", "Actions", Many::List),
    ("Attribute", "Attributes", Many::Map("Name", "Value")),
    ("AttributeName", "AttributeNames", Many::List),
    ("ChangeMessageVisibilityBatchRequestEntry", "Entries", Many::List),
    ("DeleteMessageBatchRequestEntry", "Entries", Many::List),
    ("MessageAttribute", "MessageAttributes", Many::Map("Name", "Value")),
    ("MessageAttributeName", "MessageAttributeNames", Many::List),
    ("MessageSystemAttribute", "MessageSystemAttributes", Many::Map("Name", "Value")),
    ("MessageSystemAttributeName", "MessageSystemAttributeNames", Many::List),
    ("SendMessageBatchRequestEntry", "Entries", Many::List),
    ("Tag", "Tags", Many::Map("Key", "Value")),
    ("TagKey", "TagKeys", Many::List),
];

/// The parameters of a query, by their names.
pub fn parameters(pairs: impl Iterator<Item = (String, String)>) -> Result<Map<String, Value>, Fault> {
    let mut tree = Map::new();
    for (name, value) in pairs {
        let mut names = name.split('.').peekable();
        let mut at = &mut tree;
        while let Some(name) = names.next() {
            if names.peek().is_none() {
                at.entry(name).or_insert(Value::String(value));
                break;
            }
            let below = at.entry(name).or_insert_with(|| Value::Object(Map::new()));
            let Value::Object(below) = below else {
                return Err(Fault::new(Kind::Serialization, format!("{name} is one parameter and several.")));
            };
            at = below;
        }
    }
    Ok(in_json_form(tree))
}

fn in_json_form(tree: Map<String, Value>) -> Map<String, Value> {
    let mut members = Map::new();
    for (name, value) in tree {
        // An empty list is one parameter without a value, under the name of the JSON.
        if value == "" && MANY.iter().any(|(_, json, _)| *json == name) {
            continue;
        }
        let many = MANY.iter().find(|(query, _, _)| *query == name);
        match (many, value) {
            (Some((_, json, many)), Value::Object(entries)) => {
                members.insert((*json).to_owned(), several(entries, *many));
            }
            (_, Value::Object(below)) => {
                members.insert(name, Value::Object(in_json_form(below)));
            }
            (_, value) => {
                members.insert(name, value);
            }
        }
    }
    members
}

/// The entries of a list or a map, in the order of their numbers.
fn several(entries: Map<String, Value>, many: Many) -> Value {
    let mut numbered: Vec<(u64, Value)> =
        entries.into_iter().filter_map(|(number, value)| Some((number.parse().ok()?, value))).collect();
    numbered.sort_by_key(|(number, _)| *number);
    let values = numbered.into_iter().map(|(_, value)| match value {
        Value::Object(below) => Value::Object(in_json_form(below)),
        value => value,
    });
    match many {
        Many::List => Value::Array(values.collect()),
        Many::Map(key, value) => {
            let entry = |entry: Value| {
                let Value::Object(mut entry) = entry else { return None };
                let name = entry.get(key)?.as_str()?.to_owned();
                Some((name, entry.remove(value).unwrap_or(Value::Null)))
            };
            Value::Object(values.filter_map(entry).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(query: &str) -> Value {
        let pairs = form_urlencoded::parse(query.as_bytes()).into_owned();
        Value::Object(parameters(pairs).unwrap())
    }

    #[test]
    fn parameters_become_what_the_json_would_have_been() {
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
    fn what_is_one_parameter_and_several_is_refused() {
        let pairs = [("A", "1"), ("A.1", "2")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert!(parameters(pairs.into_iter()).is_err());
    }
}

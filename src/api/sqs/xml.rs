//! XML answers of the query protocol: the values of the JSON as elements, with flattened lists and maps as its clients
//! expect.

use serde_json::Value;

use super::message_attributes::is_allowed;
use super::operation::Operation;

const NAMESPACE: &str = "http://queue.amazonaws.com/doc/2012-11-05/";

/// Returns the element names of the members of a list or a map. Other members are elements with their own names.
fn element(
    operation: Operation,
    member: &str,
) -> Option<(&'static str, Option<(&'static str, &'static str)>)> {
    Some(match member {
        "QueueUrls" | "queueUrls" => ("QueueUrl", None),
        "Attributes" => ("Attribute", entry(member)),
        "MessageAttributes" => ("MessageAttribute", entry(member)),
        "Tags" => ("Tag", entry(member)),
        "Messages" => ("Message", None),
        "Failed" => ("BatchResultErrorEntry", None),
        "Results" => ("ListMessageMoveTasksResultEntry", None),
        "Successful" => (
            match operation {
                Operation::SendMessageBatch => "SendMessageBatchResultEntry",
                Operation::DeleteMessageBatch => "DeleteMessageBatchResultEntry",
                _ => "ChangeMessageVisibilityBatchResultEntry",
            },
            None,
        ),
        _ => return None,
    })
}

/// Returns the element names for key and value of a map entry.
pub fn entry(member: &str) -> Option<(&'static str, &'static str)> {
    match member {
        "Attributes" | "MessageAttributes" => Some(("Name", "Value")),
        "Tags" => Some(("Key", "Value")),
        _ => None,
    }
}

/// Whether an answer has a result element: operations without output have none.
pub fn has_result(operation: Operation) -> bool {
    !matches!(
        operation,
        Operation::AddPermission
            | Operation::ChangeMessageVisibility
            | Operation::DeleteMessage
            | Operation::DeleteQueue
            | Operation::PurgeQueue
            | Operation::RemovePermission
            | Operation::SetQueueAttributes
            | Operation::TagQueue
            | Operation::UntagQueue
    )
}

/// Returns the answer of an operation to the request with this id.
pub fn answer(operation: Operation, result: &Value, id: &str) -> String {
    let name = operation.name();
    let mut text = format!("<?xml version=\"1.0\"?>\n<{name}Response xmlns=\"{NAMESPACE}\">");
    if has_result(operation) {
        let mut members = String::new();
        put_members(&mut members, operation, result);
        match members.as_str() {
            "" => text.push_str(&format!("<{name}Result/>")),
            members => text.push_str(&format!("<{name}Result>{members}</{name}Result>")),
        }
    }
    text.push_str("<ResponseMetadata>");
    put_text(&mut text, "RequestId", id);
    text.push_str(&format!("</ResponseMetadata></{name}Response>"));
    text
}

/// Returns the error answer.
pub fn error(error: &Value, id: &str) -> String {
    let mut text = format!("<?xml version=\"1.0\"?>\n<ErrorResponse xmlns=\"{NAMESPACE}\"><Error>");
    for member in ["Type", "Code", "Message"] {
        put_text(&mut text, member, error[member].as_str().unwrap_or_default());
    }
    text.push_str("<Detail/></Error>");
    put_text(&mut text, "RequestId", id);
    text.push_str("</ErrorResponse>");
    text
}

/// Replaces each character that XML does not allow by U+FFFD. Only bodies that were posted through REST contain such
/// characters.
pub fn representable(text: String) -> String {
    if is_allowed(&text) { text } else { text.chars().map(character_of_xml).collect() }
}

fn character_of_xml(character: char) -> char {
    match character {
        '\t' | '\n' | '\r' => character,
        '\0'..='\x1f' | '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
        plain => plain,
    }
}

fn put_members(text: &mut String, operation: Operation, members: &Value) {
    for (member, value) in members.as_object().into_iter().flatten() {
        match (element(operation, member), value) {
            (Some((name, None)), Value::Array(elements)) => {
                for element in elements {
                    put(text, operation, name, element);
                }
            }
            (Some((name, Some((key, content)))), Value::Object(entries)) => {
                for (entry, value) in entries {
                    text.push_str(&format!("<{name}>"));
                    put_text(text, key, entry);
                    put(text, operation, content, value);
                    text.push_str(&format!("</{name}>"));
                }
            }
            _ => put(text, operation, member, value),
        }
    }
}

fn put(text: &mut String, operation: Operation, name: &str, value: &Value) {
    match value {
        Value::Object(_) => {
            text.push_str(&format!("<{name}>"));
            put_members(text, operation, value);
            text.push_str(&format!("</{name}>"));
        }
        Value::String(string) => put_text(text, name, string),
        other => put_text(text, name, &other.to_string()),
    }
}

fn put_text(text: &mut String, name: &str, content: &str) {
    text.push_str(&format!("<{name}>"));
    for character in content.chars() {
        match character {
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '&' => text.push_str("&amp;"),
            '"' => text.push_str("&quot;"),
            // An XML parser would turn it into a newline.
            '\r' => text.push_str("&#13;"),
            other => text.push(character_of_xml(other)),
        }
    }
    text.push_str(&format!("</{name}>"));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_and_maps_are_flattened() {
        let result = json!({"Messages": [{
            "MessageId": "1", "Body": "a<b\r&\u{1}", "Attributes": {"SentTimestamp": "5"},
            "MessageAttributes": {"n": {"DataType": "String", "StringValue": "v"}},
        }]});
        let text = answer(Operation::ReceiveMessage, &result, "id");
        let inside = text.split("<ReceiveMessageResult>").nth(1).unwrap();
        assert_eq!(
            inside,
            "<Message><Attribute><Name>SentTimestamp</Name><Value>5</Value></Attribute>\
             <Body>a&lt;b&#13;&amp;\u{fffd}</Body>\
             <MessageAttribute><Name>n</Name><Value><DataType>String</DataType><StringValue>v</StringValue></Value>\
             </MessageAttribute><MessageId>1</MessageId></Message></ReceiveMessageResult><ResponseMetadata>\
             <RequestId>id</RequestId></ResponseMetadata></ReceiveMessageResponse>"
        );
    }

    #[test]
    fn result_without_members_is_one_empty_element() {
        let text = answer(Operation::ReceiveMessage, &json!({}), "id");
        assert!(text.contains("<ReceiveMessageResult/><ResponseMetadata>"), "{text}");
    }

    #[test]
    fn operations_without_output_have_no_result() {
        let text = answer(Operation::DeleteMessage, &json!({}), "id");
        assert!(text.ends_with(
            "<ResponseMetadata><RequestId>id</RequestId></ResponseMetadata></DeleteMessageResponse>"
        ));
        assert!(!text.contains("Result>"));
    }
}

//! Requests of SQS that are right: one of each operation in each of its two protocols, in the form of HTTP/1.1.

use serde_json::{Map, Value, json};

const URL: &str = "http://127.0.0.1/000000000000/orders";
const ARN: &str = "arn:aws:sqs:us-east-1:000000000000:orders";

/// A request of each operation, in JSON and as a query.
pub fn requests() -> Vec<Vec<u8>> {
    let asked = operations();
    let json = asked.iter().map(|(operation, arguments)| {
        format!("POST /\nX-Amz-Target: AmazonSQS.{operation}\nContent-Type: application/x-amz-json-1.0\n\n{arguments}")
    });
    let query = asked.iter().map(|(operation, arguments)| {
        let mut pairs = vec![("Action".to_owned(), (*operation).to_owned())];
        members(&mut pairs, "", operation, arguments);
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
        format!("POST /\nContent-Type: application/x-www-form-urlencoded\n\n{body}")
    });
    json.chain(query).map(String::into_bytes).collect()
}

/// In an order in which each finds what it needs.
fn operations() -> Vec<(&'static str, Value)> {
    let fifo = format!("{URL}.fifo");
    let attributes = json!({"n": {"DataType": "Number.int", "StringValue": "7"},
        "b": {"DataType": "Binary", "BinaryValue": "AP8="}});
    let limits = json!({"VisibilityTimeout": "30", "MessageRetentionPeriod": "3600", "Policy": ""});
    vec![
        ("CreateQueue", json!({"QueueName": "orders", "Attributes": limits, "tags": {"team": "billing"}})),
        ("CreateQueue", json!({"QueueName": "orders.fifo", "Attributes": {"FifoQueue": "true"}})),
        ("GetQueueUrl", json!({"QueueName": "orders", "QueueOwnerAWSAccountId": "000000000000"})),
        ("ListQueues", json!({"QueueNamePrefix": "o", "MaxResults": 2})),
        ("SetQueueAttributes", json!({"QueueUrl": URL, "Attributes": limits})),
        ("GetQueueAttributes", json!({"QueueUrl": URL, "AttributeNames": ["All", "QueueArn"]})),
        ("TagQueue", json!({"QueueUrl": URL, "Tags": {"team": "orders", "stage": ""}})),
        ("ListQueueTags", json!({"QueueUrl": URL})),
        ("UntagQueue", json!({"QueueUrl": URL, "TagKeys": ["stage", "nothing"]})),
        (
            "AddPermission",
            json!({"QueueUrl": URL, "Label": "all", "AWSAccountIds": ["111111111111"], "Actions": ["*"]}),
        ),
        ("RemovePermission", json!({"QueueUrl": URL, "Label": "all"})),
        (
            "SendMessage",
            json!({"QueueUrl": URL, "MessageBody": "a \"b\" \u{e4}", "DelaySeconds": 0, "MessageAttributes": attributes,
                "MessageGroupId": "tenant"}),
        ),
        (
            "SendMessage",
            json!({"QueueUrl": fifo, "MessageBody": "1", "MessageGroupId": "g", "MessageDeduplicationId": "d"}),
        ),
        (
            "SendMessageBatch",
            json!({"QueueUrl": URL, "Entries": [{"Id": "a", "MessageBody": "1", "MessageAttributes": attributes},
                {"Id": "b", "MessageBody": "2", "DelaySeconds": 1}]}),
        ),
        (
            "ReceiveMessage",
            json!({"QueueUrl": URL, "MaxNumberOfMessages": 10, "VisibilityTimeout": 0, "WaitTimeSeconds": 1,
                "AttributeNames": ["All"], "MessageAttributeNames": ["n", "b.*"]}),
        ),
        ("ReceiveMessage", json!({"QueueUrl": fifo, "MessageSystemAttributeNames": ["SequenceNumber"]})),
        (
            "ChangeMessageVisibility",
            json!({"QueueUrl": URL, "ReceiptHandle": "AAAA", "VisibilityTimeout": 7}),
        ),
        (
            "ChangeMessageVisibilityBatch",
            json!({"QueueUrl": URL, "Entries": [{"Id": "a", "ReceiptHandle": "AAAA", "VisibilityTimeout": 7}]}),
        ),
        ("DeleteMessage", json!({"QueueUrl": URL, "ReceiptHandle": "AAAA"})),
        ("DeleteMessageBatch", json!({"QueueUrl": URL, "Entries": [{"Id": "a", "ReceiptHandle": "AAAA"}]})),
        ("ListDeadLetterSourceQueues", json!({"QueueUrl": URL, "MaxResults": 5})),
        ("StartMessageMoveTask", json!({"SourceArn": ARN, "MaxNumberOfMessagesPerSecond": 10})),
        ("ListMessageMoveTasks", json!({"SourceArn": ARN, "MaxResults": 2})),
        ("CancelMessageMoveTask", json!({"TaskHandle": "AAAA"})),
        ("PurgeQueue", json!({"QueueUrl": fifo})),
        ("DeleteQueue", json!({"QueueUrl": fifo})),
    ]
}

/// The parameters that the members of a JSON object are in the query protocol.
fn members(pairs: &mut Vec<(String, String)>, before: &str, operation: &str, object: &Value) {
    for (name, value) in object.as_object().into_iter().flat_map(Map::iter) {
        match value {
            Value::Array(items) => {
                let single = single(name, operation);
                for (number, item) in (1..).zip(items) {
                    one(pairs, &format!("{before}{single}.{number}"), operation, item);
                }
            }
            Value::Object(entries) if name != "Value" => {
                let (single, key) =
                    (single(name, operation), if name.eq_ignore_ascii_case("tags") { "Key" } else { "Name" });
                for (number, (entry, value)) in (1..).zip(entries) {
                    let at = format!("{before}{single}.{number}");
                    pairs.push((format!("{at}.{key}"), entry.clone()));
                    one(pairs, &format!("{at}.Value"), operation, value);
                }
            }
            value => one(pairs, &format!("{before}{name}"), operation, value),
        }
    }
}

fn one(pairs: &mut Vec<(String, String)>, name: &str, operation: &str, value: &Value) {
    match value {
        Value::Object(_) => members(pairs, &format!("{name}."), operation, value),
        Value::String(text) => pairs.push((name.to_owned(), text.clone())),
        value => pairs.push((name.to_owned(), value.to_string())),
    }
}

/// What the query protocol calls one of several.
fn single(name: &str, operation: &str) -> String {
    match name {
        "Entries" => format!("{operation}RequestEntry"),
        "Actions" => "ActionName".to_owned(),
        "tags" => "Tag".to_owned(),
        name => name.trim_end_matches('s').to_owned(),
    }
}

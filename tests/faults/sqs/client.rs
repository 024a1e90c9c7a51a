//! Owns the operations of SQS that the load asks for, in its JSON protocol. Like the client below it, it never repeats a
//! request and never turns a status into an error.

use http::Method;
use serde_json::{Value, json};

use crate::support::client::{Answer, Client, Reply};

/// A client of one server, or of a load balancer.
pub struct Sqs(Client);

/// A message as a receive shows it.
#[derive(Clone, Debug)]
pub struct ReceivedMessage {
    pub id: String,
    pub handle: String,
    pub body: Value,
}

impl Sqs {
    pub fn new(base: &str) -> Self {
        Self(Client::new(base))
    }

    fn ask(&self, operation: &str, arguments: &Value) -> Reply {
        let target = format!("AmazonSQS.{operation}");
        self.0.send(Method::POST, "/", &[("x-amz-target", &target)], Some(arguments))
    }

    pub fn create(&self, queue: &str) -> Reply {
        let fifo = if queue.ends_with(".fifo") { json!({"FifoQueue": "true"}) } else { json!({}) };
        self.ask("CreateQueue", &json!({"QueueName": queue, "Attributes": fifo}))
    }

    /// Sends entries without their ids: their places become them.
    pub fn send(&self, queue: &str, mut entries: Vec<Value>) -> Reply {
        for (place, entry) in entries.iter_mut().enumerate() {
            entry["Id"] = json!(place.to_string());
        }
        self.ask("SendMessageBatch", &json!({"QueueUrl": queue, "Entries": entries}))
    }

    pub fn receive(&self, queue: &str, most: usize, visibility: u64, wait: u64) -> Reply {
        let arguments = json!({"QueueUrl": queue, "MaxNumberOfMessages": most,
            "VisibilityTimeout": visibility, "WaitTimeSeconds": wait});
        self.ask("ReceiveMessage", &arguments)
    }

    pub fn delete(&self, queue: &str, handle: &str) -> Reply {
        self.ask("DeleteMessage", &json!({"QueueUrl": queue, "ReceiptHandle": handle}))
    }

    /// Makes a message visible at once.
    pub fn show(&self, queue: &str, handle: &str) -> Reply {
        let arguments = json!({"QueueUrl": queue, "ReceiptHandle": handle, "VisibilityTimeout": 0});
        self.ask("ChangeMessageVisibility", &arguments)
    }

    /// How many messages there are, visible or not; none while the service refuses to count them.
    pub fn count(&self, queue: &str) -> Option<u64> {
        const COUNTERS: [&str; 2] = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"];
        let asked = json!({"QueueUrl": queue, "AttributeNames": COUNTERS});
        let answer = self.ask("GetQueueAttributes", &asked).expect("the server is there");
        if answer.status.is_server_error() {
            return None;
        }
        let answer = answer.json();
        let counter = |name| answer["Attributes"][name].as_str().and_then(|text| text.parse::<u64>().ok());
        Some(COUNTERS.into_iter().map(|name| counter(name).expect("it counts")).sum())
    }
}

/// The ids that a send was answered with, in the order of its entries.
pub fn sent_ids(answer: &Answer) -> Vec<String> {
    let answer = answer.json();
    assert_eq!(answer["Failed"], Value::Null, "an entry is refused");
    answer["Successful"].as_array().into_iter().flatten().map(|sent| text(sent, "MessageId")).collect()
}

/// The messages that a receive was answered with.
pub fn received(answer: &Answer) -> Vec<ReceivedMessage> {
    let answer = answer.json();
    let message = |message: &Value| ReceivedMessage {
        id: text(message, "MessageId"),
        handle: text(message, "ReceiptHandle"),
        body: serde_json::from_str(&text(message, "Body")).unwrap_or_default(),
    };
    answer["Messages"].as_array().into_iter().flatten().map(message).collect()
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}

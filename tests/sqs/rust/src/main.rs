//! Sends, receives and deletes with the SDK of AWS for Rust. The server is the first argument.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::collections::HashMap;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::operation::receive_message::ReceiveMessageError;
use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::{
    ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry, Message, MessageAttributeValue,
    MessageSystemAttributeName, QueueAttributeName, SendMessageBatchRequestEntry,
};
use aws_smithy_http_client::Builder;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let base = std::env::args().nth(1).expect("the server is the first argument");
    let config = aws_sdk_sqs::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(base)
        .region(Region::new(std::env::var("AWS_DEFAULT_REGION").expect("the test names a region")))
        .credentials_provider(Credentials::new("AKIDEXAMPLE", "secret", None, None, "test"))
        // What the server does wrong must be seen.
        .retry_config(RetryConfig::disabled())
        .http_client(Builder::new().build_http())
        .build();
    let client = Client::from_conf(config);
    println!("messages_keep_what_they_are_sent_with");
    messages_keep_what_they_are_sent_with(&client).await;
    println!("batches_tell_of_each_entry");
    batches_tell_of_each_entry(&client).await;
    println!("groups_stay_in_order");
    groups_stay_in_order(&client).await;
    println!("a_missing_queue_is_known_by_its_type");
    a_missing_queue_is_known_by_its_type(&client).await;
}

async fn create(client: &Client, name: &str, attributes: &[(QueueAttributeName, &str)]) -> String {
    let attributes: HashMap<_, _> =
        attributes.iter().map(|(name, value)| (name.clone(), (*value).to_owned())).collect();
    let created = client.create_queue().queue_name(name).set_attributes(Some(attributes)).send().await;
    created.unwrap().queue_url.unwrap()
}

async fn receive(client: &Client, url: &str, wait: i32) -> Vec<Message> {
    let received = client
        .receive_message()
        .queue_url(url)
        .max_number_of_messages(10)
        .wait_time_seconds(wait)
        .message_attribute_names("All")
        .message_system_attribute_names(MessageSystemAttributeName::All)
        .send();
    received.await.unwrap().messages.unwrap_or_default()
}

fn bodies(messages: &[Message]) -> Vec<&str> {
    messages.iter().map(|message| message.body().unwrap()).collect()
}

async fn messages_keep_what_they_are_sent_with(client: &Client) {
    let url = create(client, "rust", &[(QueueAttributeName::VisibilityTimeout, "60")]).await;
    assert_eq!(client.get_queue_url().queue_name("rust").send().await.unwrap().queue_url.as_ref(), Some(&url));
    let bytes = MessageAttributeValue::builder().data_type("Binary").binary_value(Blob::new([0, 255]));
    let body = "a \"b\" <&> \r\n\t ä \u{1f600}";
    let sent = client.send_message().queue_url(&url).message_body(body);
    let sent = sent.message_attributes("bytes", bytes.build().unwrap()).send().await.unwrap();
    let got = receive(client, &url, 0).await;
    assert_eq!(bodies(&got), [body]);
    assert_eq!(got[0].message_id, sent.message_id);
    assert_eq!(got[0].md5_of_message_attributes, sent.md5_of_message_attributes);
    let attributes = got[0].message_attributes().unwrap();
    assert_eq!(attributes["bytes"].binary_value().unwrap().as_ref(), [0, 255]);
    assert_eq!(got[0].attributes().unwrap()[&MessageSystemAttributeName::ApproximateReceiveCount], "1");
    let counted = QueueAttributeName::ApproximateNumberOfMessagesNotVisible;
    let asked = client.get_queue_attributes().queue_url(&url).attribute_names(counted.clone());
    assert_eq!(asked.send().await.unwrap().attributes.unwrap()[&counted], "1");
    let handle = got[0].receipt_handle().unwrap();
    let shown = client.change_message_visibility().queue_url(&url).receipt_handle(handle);
    shown.visibility_timeout(0).send().await.unwrap();
    let again = receive(client, &url, 5).await;
    assert_eq!(bodies(&again), [body]);
    let handle = again[0].receipt_handle().unwrap();
    client.delete_message().queue_url(&url).receipt_handle(handle).send().await.unwrap();
    assert_eq!(receive(client, &url, 0).await, []);
    client.tag_queue().queue_url(&url).tags("team", "billing").send().await.unwrap();
    let tags = client.list_queue_tags().queue_url(&url).send().await.unwrap().tags.unwrap();
    assert_eq!(tags["team"], "billing");
    client.delete_queue().queue_url(&url).send().await.unwrap();
}

async fn batches_tell_of_each_entry(client: &Client) {
    let url = create(client, "rust-batches", &[]).await;
    let entry = |number: usize| {
        // SQS has no such character.
        let body = if number == 3 { "\u{1}".to_owned() } else { number.to_string() };
        SendMessageBatchRequestEntry::builder().id(number.to_string()).message_body(body).build().unwrap()
    };
    let entries = (0..10).map(entry).collect();
    let sent = client.send_message_batch().queue_url(&url).set_entries(Some(entries)).send().await.unwrap();
    assert_eq!((sent.successful().len(), sent.failed().len()), (9, 1));
    assert_eq!((sent.failed()[0].id(), sent.failed()[0].code()), ("3", "InvalidMessageContents"));
    let got = receive(client, &url, 0).await;
    assert_eq!(bodies(&got), ["0", "1", "2", "4", "5", "6", "7", "8", "9"]);
    let (first, rest) = got.split_first().unwrap();
    let shown = ChangeMessageVisibilityBatchRequestEntry::builder().id("a").visibility_timeout(0);
    let shown = shown.receipt_handle(first.receipt_handle().unwrap()).build().unwrap();
    client.change_message_visibility_batch().queue_url(&url).entries(shown).send().await.unwrap();
    let gone = rest.iter().enumerate().map(|(number, message)| {
        let entry = DeleteMessageBatchRequestEntry::builder().id(number.to_string());
        entry.receipt_handle(message.receipt_handle().unwrap()).build().unwrap()
    });
    let deleted = client.delete_message_batch().queue_url(&url).set_entries(Some(gone.collect()));
    assert_eq!(deleted.send().await.unwrap().successful().len(), 8);
    assert_eq!(bodies(&receive(client, &url, 5).await), ["0"]);
}

async fn groups_stay_in_order(client: &Client) {
    let fifo = [(QueueAttributeName::FifoQueue, "true"), (QueueAttributeName::ContentBasedDeduplication, "true")];
    let url = create(client, "rust.fifo", &fifo).await;
    let send = async |body: &str| {
        let sent = client.send_message().queue_url(&url).message_group_id("g").message_body(body);
        sent.send().await.unwrap().sequence_number.unwrap()
    };
    let (one, twin, two) = (send("one").await, send("one").await, send("two").await);
    assert!(one == twin && one < two);
    let got = receive(client, &url, 0).await;
    assert_eq!(bodies(&got), ["one", "two"]);
    assert_eq!(receive(client, &url, 0).await, []);
    for message in &got {
        let handle = message.receipt_handle().unwrap();
        client.delete_message().queue_url(&url).receipt_handle(handle).send().await.unwrap();
    }
}

async fn a_missing_queue_is_known_by_its_type(client: &Client) {
    let error = client.receive_message().queue_url("nothing").send().await.unwrap_err().into_service_error();
    assert!(matches!(error, ReceiveMessageError::QueueDoesNotExist(_)), "{error:?}");
}

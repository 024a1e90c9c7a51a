//! Posts, claims and deletes with the Rust client that progenitor makes of the document. The server is the first argument.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use client::types::{ClaimTerms, ErrorCode, Message, MessagePostRequest, PostedMessage, QueueAttributes};
use client::{Client, Error};
use serde_json::{Value, json};
use uuid::Uuid;

/// What progenitor makes of the document.
#[allow(warnings, reason = "nobody wrote it")]
mod client {
    include!(concat!(env!("OUT_DIR"), "/client.rs"));
}

const QUEUE: &str = "rust";

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let base = std::env::args().nth(1).expect("the server is the first argument");
    let client = Client::new(&base);
    println!("post_claim_delete");
    post_claim_delete(&client).await;
    println!("errors_are_read");
    errors_are_read(&client).await;
}

fn ids(messages: &[Message]) -> Vec<Uuid> {
    messages.iter().map(|message| message.id).collect()
}

async fn post_claim_delete(client: &Client) {
    // progenitor leaves out keys that the document does not name.
    let attributes: QueueAttributes = QueueAttributes::builder().default_message_ttl(600).try_into().unwrap();
    client.queue_create().queue_name(QUEUE).body(attributes).send().await.unwrap();
    assert_eq!(client.queue_get().queue_name(QUEUE).send().await.unwrap().default_message_ttl, Some(600));

    let bodies = [json!({"invoice": 4711}), json!("text"), Value::Null, json!([1, 2.5, true])];
    let message = |body: &Value| PostedMessage::builder().body(body.clone()).ttl(600).try_into().unwrap();
    let messages = MessagePostRequest { messages: bodies.iter().map(message).collect() };
    let posted = client.messages_post().queue_name(QUEUE).body(messages).send().await.unwrap();
    assert_eq!(posted.ids.len(), bodies.len());

    let terms = ClaimTerms { ttl: Some(60), grace: Some(60), by: None };
    let claim = client.claim_create().queue_name(QUEUE).limit(10).body(terms).send().await.unwrap();
    assert_eq!(ids(&claim.messages), posted.ids);
    // A body that is null is read as none.
    let claimed = claim.messages.iter().map(|message| message.body.clone().unwrap_or(Value::Null));
    assert!(claimed.eq(bodies));
    let renewed = ClaimTerms { ttl: Some(120), grace: None, by: None };
    client.claim_renew().queue_name(QUEUE).claim_id(claim.id).body(renewed).send().await.unwrap();
    assert_eq!(client.claim_get().queue_name(QUEUE).claim_id(claim.id).send().await.unwrap().ttl, 120);

    let (last, done) = posted.ids.split_last().unwrap();
    for id in done {
        let delete = client.message_delete().queue_name(QUEUE).message_id(*id).claim_id(claim.id);
        delete.send().await.unwrap();
    }
    client.claim_release().queue_name(QUEUE).claim_id(claim.id).send().await.unwrap();
    let left = client.messages_list().queue_name(QUEUE).send().await.unwrap();
    assert_eq!(ids(&left.messages), [*last]);

    let popped = client.messages_delete().queue_name(QUEUE).pop(1).send().await.unwrap();
    assert_eq!(ids(&popped.messages), [*last]);
    let nothing = client.claim_create().queue_name(QUEUE).body(ClaimTerms::default()).send().await;
    assert!(matches!(nothing, Err(Error::UnexpectedResponse(answer)) if answer.status() == 204));
    assert_eq!(client.queue_stats_get().queue_name(QUEUE).send().await.unwrap().messages.total, 0);
}

async fn errors_are_read(client: &Client) {
    let missing = client.message_get().queue_name(QUEUE).message_id(Uuid::from_u128(1)).send().await;
    let Err(Error::ErrorResponse(error)) = missing else { panic!("there is no such message: {missing:?}") };
    assert_eq!((error.status().as_u16(), error.code, error.may_retry), (404, ErrorCode::NotFound, false));
}

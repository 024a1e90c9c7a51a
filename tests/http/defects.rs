//! What Zaqar does wrong, seen live or read in its source, and what is done here instead. What needs time to pass is in
//! `crates/broker/tests/whole`; what other files show already is not shown again.

use http::StatusCode;
use serde_json::{Value, json};

use super::{Service, service};
use crate::support::client::{Answer, Client};

fn post(service: &Service, messages: &Value) -> Vec<String> {
    let posted = service.client.post("/v2/queues/q/messages", &json!({"messages": messages})).unwrap();
    assert_eq!(posted.status, StatusCode::CREATED, "{}", posted.text());
    posted.posted_ids()
}

fn claimed(answer: &Answer) -> Vec<String> {
    answer
        .granted()
        .map(|claim| claim.messages.into_iter().map(|message| message.id).collect())
        .unwrap_or_default()
}

/// Zaqar's Redis driver hands them out again: after the first free message it takes whatever follows.
#[test]
fn a_released_claim_never_takes_messages_of_another_with_it() {
    let service = service();
    let client = &service.client;
    let ids = post(&service, &json!([{"body": 1}, {"body": 2}, {"body": 3}, {"body": 4}]));
    let first = client.claim("q", 2, 60).unwrap().granted().unwrap();
    let second = client.claim("q", 2, 60).unwrap().granted().unwrap();
    assert_eq!(client.release_claim("q", &first.id).unwrap().status, StatusCode::NO_CONTENT);
    assert_eq!(claimed(&client.claim("q", 4, 60).unwrap()), ids[..2]);
    for id in &ids[2..] {
        assert_eq!(client.delete_message("q", id, Some(&second.id)).unwrap().status, StatusCode::NO_CONTENT);
    }
    let counts = &client.stats("q").unwrap().json()["messages"];
    assert_eq!((&counts["claimed"], &counts["free"]), (&json!(2), &json!(0)));
}

/// There they are claimed and popped when a message that is free is before them.
#[test]
fn delays_apply_beside_any_other_key() {
    let service = service();
    let delayed = json!({"body": "later", "delay": 900});
    let messages = json!([delayed, delayed, {"body": "now"}, delayed, delayed]);
    let ids = post(&service, &messages);
    assert_eq!(claimed(&service.client.claim("q", 20, 60).unwrap()), [ids[2].clone()]);
    post(&service, &messages);
    let popped = service.client.delete("/v2/queues/q/messages?pop=20").unwrap().json();
    assert_eq!(popped["messages"].as_array().unwrap().len(), 1, "{popped}");
}

/// There they answer 503 for as long as the claim exists.
#[test]
fn claim_with_deleted_message_is_renewed_and_released() {
    let service = service();
    let client = &service.client;
    let ids = post(&service, &json!([{"body": 1}, {"body": 2}]));
    let claim = client.claim("q", 2, 60).unwrap().granted().unwrap();
    assert_eq!(client.delete_message("q", &ids[0], Some(&claim.id)).unwrap().status, StatusCode::NO_CONTENT);
    let path = format!("/v2/queues/q/claims/{}", claim.id);
    assert_eq!(client.patch(&path, &json!({"ttl": 100})).unwrap().status, StatusCode::NO_CONTENT);
    assert_eq!(client.release_claim("q", &claim.id).unwrap().status, StatusCode::NO_CONTENT);
    assert_eq!(claimed(&client.claim("q", 2, 60).unwrap()), ids[1..]);
}

/// There a message's id is enough to read and delete it from any queue of any project, and a claim's to delete the claim.
#[test]
fn an_id_is_worth_nothing_in_another_queue_or_project() {
    let service = service();
    let free = post(&service, &json!([{"body": "secret"}, {"body": "free"}])).swap_remove(1);
    let claim = service.client.claim("q", 1, 60).unwrap().granted().unwrap();
    let held = &claim.messages[0].id;
    // Both have a queue, so that it is not the queue that is missing.
    let other_project = service.server.client().with_header("X-Project-Id", "other");
    for (client, queue) in [(&service.client, "other"), (&other_project, "q")] {
        client.create_queue(queue).unwrap();
        assert_nothing_is_reached(client, &format!("/v2/queues/{queue}"), [held, &free], &claim.id);
    }
    assert_eq!(service.client.get_message("q", &free).unwrap().status, StatusCode::OK);
    let held_on = service.client.get(&format!("/v2/queues/q/claims/{}", claim.id)).unwrap().json();
    assert_eq!((&held_on["messages"][0]["id"], &held_on["ttl"]), (&json!(held), &json!(60)));
}

/// Reads, deletes, renews and releases by ids of something else.
fn assert_nothing_is_reached(client: &Client, queue: &str, messages: [&String; 2], claim: &str) {
    for id in messages {
        let message = format!("{queue}/messages/{id}");
        assert_eq!(client.get(&message).unwrap().status, StatusCode::NOT_FOUND);
        for path in [message.clone(), format!("{message}?claim_id={claim}")] {
            assert_eq!(client.delete(&path).unwrap().status, StatusCode::NO_CONTENT, "{path}");
        }
        let many = format!("{queue}/messages?ids={id}");
        assert_eq!(client.get(&many).unwrap().status, StatusCode::NOT_FOUND);
        let deleted = client.delete(&format!("{many}&claim_ids={claim}")).unwrap();
        assert_eq!(deleted.status, StatusCode::NO_CONTENT);
    }
    let claim = format!("{queue}/claims/{claim}");
    assert_eq!(client.get(&claim).unwrap().status, StatusCode::NOT_FOUND);
    assert_eq!(client.patch(&claim, &json!({"ttl": 90})).unwrap().status, StatusCode::NOT_FOUND);
    assert_eq!(client.delete(&claim).unwrap().status, StatusCode::NO_CONTENT);
}

/// There each of these is a 500 or a 503.
#[test]
fn client_mistakes_are_never_server_errors() {
    let service = service();
    let client = &service.client;
    let patch = |body: &[u8]| {
        let media_type = "application/openstack-messaging-v2.0-json-patch";
        client.send_as(http::Method::PATCH, "/v2/queues/q", media_type, body).unwrap()
    };
    let spare = json!({"uri": "embedded:spare", "weight": 0});
    assert_eq!(client.put("/v2/pools/spare", Some(&spare)).unwrap().status, StatusCode::CREATED);
    for (answer, status) in [
        (patch(b"{}"), StatusCode::BAD_REQUEST),
        (
            client.post("/v2/queues/q/messages", &json!({"messages": ["text"]})).unwrap(),
            StatusCode::BAD_REQUEST,
        ),
        (client.put("/v2/pools/twin", Some(&spare)).unwrap(), StatusCode::CONFLICT),
    ] {
        assert_eq!(answer.status, status, "{}", answer.text());
    }
}

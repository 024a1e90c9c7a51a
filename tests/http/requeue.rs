//! Requeues with a new body over HTTP.

use serde_json::{Value, json};

use super::service;

#[test]
fn requeue_with_body_answers_the_id_of_the_new_message() {
    let service = service();
    let post = json!({"messages": [{"body": "old", "tags": ["eu"], "keep": 600}]});
    let old = service.client.post("/v2/queues/edited/messages", &post).unwrap().posted_ids().remove(0);
    let requeue = |id: &str, body: &Value| {
        service.client.post(&format!("/v2/queues/edited/messages/{id}/requeue"), body).unwrap()
    };
    let answer = requeue(&old, &json!({"body": {"n": 1}}));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let new = answer.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(requeue(&old, &json!({"body": 2})).status, 404, "it is gone");
    let page = service.client.get("/v2/queues/edited/peek").unwrap().json();
    let messages = page["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 1, "{page}");
    assert_eq!((&messages[0]["id"], &messages[0]["body"]), (&json!(new), &json!({"n": 1})));
    assert_eq!(messages[0]["details"]["tags"], json!(["eu"]));
    let newer = requeue(&new, &json!({"body": null, "delay": 60}));
    assert_eq!(newer.status, 200, "null is a body: {}", newer.text());
    let page = service.client.get("/v2/queues/edited/peek?state=delayed").unwrap().json();
    assert_eq!(
        (&page["messages"][0]["id"], &page["messages"][0]["body"]),
        (&newer.json()["id"], &Value::Null)
    );
    let long = json!({"body": "x".repeat(300_000)});
    let id = newer.json()["id"].as_str().unwrap().to_owned();
    let refused = requeue(&id, &long);
    assert_eq!((refused.status.as_u16(), &refused.json()["code"]), (400, &json!("invalid")));
    assert_eq!(requeue(&id, &json!({})).status, 204, "without a body it keeps its id");
}

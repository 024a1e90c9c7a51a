//! Emptying a queue over HTTP.

use serde_json::{Value, json};

use super::service;

const PURGE: &str = "/v2/queues/q/purge";

#[test]
fn purge_removes_all_messages_and_keeps_queue() {
    let service = service();
    service.client.put("/v2/queues/q", Some(&json!({"team": "a"}))).unwrap();
    for _ in 0..12 {
        let bodies: Vec<Value> = (0..500).map(|number| json!(number)).collect();
        service.client.post_messages("q", &bodies).unwrap();
    }
    let claim = service.client.claim("q", 5, 60).unwrap().granted().unwrap();
    assert_eq!(service.client.post(PURGE, &json!({"resource_types": ["messages"]})).unwrap().status, 204);
    let stats = service.client.stats("q").unwrap().json();
    assert_eq!(
        stats,
        json!({"messages": {"claimed": 0, "free": 0, "ready": 0, "delayed": 0, "in_transfer": 0, "total": 0}})
    );
    assert_eq!(service.client.get(&format!("/v2/queues/q/claims/{}", claim.id)).unwrap().status, 404);
    assert_eq!(service.client.claim("q", 1, 60).unwrap().status, 204);
    assert_eq!(service.client.get("/v2/queues/q").unwrap().json()["team"], json!("a"));
    service.client.post_messages("q", &[json!("new")]).unwrap();
    assert_eq!(service.client.claim("q", 1, 60).unwrap().granted().unwrap().messages.len(), 1);
}

#[test]
fn empty_purge_is_all_and_subscriptions_remove_no_message() {
    let service = service();
    let total = || service.client.stats("q").unwrap().json()["messages"]["total"].clone();
    service.client.post_messages("q", &[json!(1)]).unwrap();
    for spared in [json!({"resource_types": ["subscriptions"]}), json!({"resource_types": []})] {
        assert_eq!(service.client.post(PURGE, &spared).unwrap().status, 204);
        assert_eq!(total(), json!(1));
    }
    assert_eq!(service.client.send(http::Method::POST, PURGE, &[], None).unwrap().status, 204);
    assert_eq!(total(), json!(0));
}

#[test]
fn invalid_purge_is_400_and_named() {
    let service = service();
    for (body, part) in [
        (json!({}), "resource_types"),
        (json!({"resource_types": "messages"}), "resource_types: it must be a list"),
        (json!({"resource_types": ["messages", "claims"]}), "resource_types[1]"),
        (json!({"resource_types": [1]}), "resource_types[0]"),
        (json!([]), "must be a JSON object"),
    ] {
        let refused = service.client.post(PURGE, &body).unwrap();
        assert_eq!(refused.status, 400, "{body}");
        let said = refused.json()["description"].as_str().unwrap().to_owned();
        assert!(said.contains(part), "{body}: {said}");
    }
}

//! Queues in order of groups over HTTP, ids of deduplication, and details of messages on request.

use http::Method;
use serde_json::{Value, json};

use super::{Service, service};

const MESSAGES: &str = "/v2/queues/q/messages";

/// A service with a queue in order of groups.
fn ordered() -> Service {
    let service = service();
    assert_eq!(service.client.put("/v2/queues/q", Some(&json!({"_fifo": true}))).unwrap().status, 201);
    service
}

fn bodies(answer: &Value) -> Vec<&Value> {
    answer["messages"].as_array().unwrap().iter().map(|message| &message["body"]).collect()
}

#[test]
fn group_messages_are_claimed_in_order_one_claim_at_a_time() {
    let service = ordered();
    let messages = json!({"messages": [
        {"body": 1, "group": "a"}, {"body": 2, "group": "b"}, {"body": 3, "group": "a"}]});
    assert_eq!(service.client.post(MESSAGES, &messages).unwrap().status, 201);
    let first = service.client.claim("q", 1, 60).unwrap().json();
    assert_eq!(bodies(&first), [&json!(1)]);
    let second = service.client.claim("q", 10, 60).unwrap().json();
    assert_eq!(bodies(&second), [&json!(2)]);
    assert_eq!(service.client.claim("q", 10, 60).unwrap().status, 204);
    let href = first["messages"][0]["href"].as_str().unwrap();
    assert_eq!(service.client.send(Method::DELETE, href, &[], None).unwrap().status, 204);
    assert_eq!(bodies(&service.client.claim("q", 10, 60).unwrap().json()), [&json!(3)]);
}

#[test]
fn a_message_with_an_id_of_before_is_the_one_of_before() {
    let service = ordered();
    let message = json!({"messages": [{"body": 1, "dedup_id": "order-1"}]});
    let first = service.client.post(MESSAGES, &message).unwrap().json();
    let again = service.client.post(MESSAGES, &message).unwrap();
    assert_eq!((again.status.as_u16(), &again.json()["ids"]), (201, &first["ids"]));
    let stats = service.client.get("/v2/queues/q/stats").unwrap().json();
    assert_eq!(stats["messages"]["total"], json!(1));
}

#[test]
fn message_details_are_shown_on_request() {
    let service = ordered();
    let messages = json!({"messages": [{"body": 1, "group": "a"}, {"body": 2}]});
    service.client.post(MESSAGES, &messages).unwrap();
    let details = [("X-Message-Details", "true")];
    let plain = service.client.get(MESSAGES).unwrap().json();
    assert_eq!(plain["messages"][0].get("details"), None);
    let asked = service.client.send(Method::GET, MESSAGES, &details, None).unwrap().json();
    let listed: Vec<&Value> = asked["messages"].as_array().unwrap().iter().map(|m| &m["details"]).collect();
    assert_eq!((&listed[0]["group"], &listed[0]["attempts"]), (&json!("a"), &json!(0)));
    assert_eq!(listed[1]["group"], json!("default"));
    let numbers = listed.iter().map(|details| details["sequence_number"].as_str().unwrap());
    let numbers: Vec<&str> = numbers.collect();
    assert!(numbers[0] < numbers[1] && numbers.iter().all(|number| number.len() == 20), "{numbers:?}");
    let path = "/v2/queues/q/claims";
    let claim = service.client.send(Method::POST, path, &details, Some(&json!({"ttl": 60}))).unwrap().json();
    assert_eq!(claim["messages"][0]["details"]["attempts"], json!(1));
    let path = asked["messages"][0]["href"].as_str().unwrap();
    let one = service.client.send(Method::GET, path, &details, None).unwrap().json();
    assert_eq!(one["details"]["group"], json!("a"));
    let wrong = service.client.send(Method::GET, path, &[("X-Message-Details", "some")], None).unwrap();
    assert_eq!(wrong.status, 400);
}

#[test]
fn invalid_group_or_id_is_400_naming_the_field() {
    let service = ordered();
    let long = "x".repeat(129);
    for (message, field) in [
        (json!({"body": 1, "group": ""}), "messages[0].group"),
        (json!({"body": 1, "group": "a b"}), "messages[0].group"),
        (json!({"body": 1, "group": 7}), "messages[0].group"),
        (json!({"body": 1, "dedup_id": long}), "messages[0].dedup_id"),
        (json!({"body": 1, "dedup_id": null}), "messages[0].dedup_id"),
    ] {
        let answer = service.client.post(MESSAGES, &json!({"messages": [message]})).unwrap();
        assert_eq!(answer.status, 400, "{message}");
        assert!(answer.text().contains(field), "{message}: {}", answer.text());
    }
    let message = json!({"messages": [{"body": 1, "dedup_id": "1"}]});
    let refused = service.client.post("/v2/queues/plain/messages", &message).unwrap();
    assert_eq!(refused.status, 400, "a queue in no order remembers nothing");
}

#[test]
fn queue_keeps_its_creation_order() {
    let service = ordered();
    let patch = json!([{"op": "replace", "path": "/metadata/_fifo", "value": false}]);
    let headers = [("Content-Type", "application/openstack-messaging-v2.0-json-patch")];
    let refused = service.client.send(Method::PATCH, "/v2/queues/q", &headers, Some(&patch)).unwrap();
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(refused.text().contains("_fifo"));
}

#[test]
fn queue_with_fifo_name_keeps_order_of_groups() {
    let service = service();
    let kind = |queue: &str| {
        let shown = service.client.get(&format!("/v2/queues/{queue}")).unwrap();
        (shown.headers["x-queue-exists"].clone(), shown.json()["_fifo"].clone())
    };
    assert_eq!(
        service.client.put("/v2/queues/made.fifo", Some(&json!({"colour": "red"}))).unwrap().status,
        201
    );
    service.client.post_messages("posted.fifo", &[json!(1), json!(2)]).unwrap();
    for queue in ["made.fifo", "posted.fifo"] {
        assert_eq!(kind(queue), ("true".parse().unwrap(), json!(true)), "{queue}");
    }
    assert_eq!(bodies(&service.client.claim("posted.fifo", 1, 60).unwrap().json()), [&json!(1)]);
    assert_eq!(service.client.claim("posted.fifo", 1, 60).unwrap().status, 204);
    let refused = service.client.put("/v2/queues/other.fifo", Some(&json!({"_fifo": false}))).unwrap();
    assert!(refused.status == 400 && refused.text().contains("_fifo"), "{}", refused.text());
    assert_eq!(service.client.put("/v2/queues/plain", None).unwrap().status, 201);
    assert_eq!(kind("plain").1, Value::Null);
}

/// As through SQS, where that is no attribute of a queue whose ids of deduplication hold for all of it.
#[test]
fn groups_have_own_throughput_only_with_group_dedup() {
    let service = service();
    let limit = json!("perMessageGroupId");
    let mut metadata = json!({"_fifo": true, "_fifo_throughput_limit": limit});
    let refused = service.client.put("/v2/queues/q", Some(&metadata)).unwrap();
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(refused.text().contains("_fifo_throughput_limit"), "{}", refused.text());
    metadata["_deduplication_scope"] = json!("group");
    assert_eq!(service.client.put("/v2/queues/q", Some(&metadata)).unwrap().status, 201);
    let headers = [("Content-Type", "application/openstack-messaging-v2.0-json-patch")];
    let patch = |patch| service.client.send(Method::PATCH, "/v2/queues/q", &headers, Some(&patch)).unwrap();
    let scope = json!([{"op": "replace", "path": "/metadata/_deduplication_scope", "value": "queue"}]);
    assert_eq!(patch(scope).status, 400);
    let both = json!([
        {"op": "replace", "path": "/metadata/_deduplication_scope", "value": "queue"},
        {"op": "remove", "path": "/metadata/_fifo_throughput_limit"}]);
    let done = patch(both);
    assert_eq!(done.status, 200, "{}", done.text());
}

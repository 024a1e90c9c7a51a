//! Queues over HTTP.

use serde_json::{Value, json};

use super::service;
use crate::support::client::Client;

const QUEUE: &str = "/v2/queues/q";

#[test]
fn put_creates_once_and_changes_nothing_after() {
    let service = service();
    let first = service.client.put(QUEUE, Some(&json!({"team": "a", "deep": {"er": [1, 2.50]}}))).unwrap();
    assert_eq!((first.status.as_u16(), &first.headers["location"]), (201, &QUEUE.parse().unwrap()));
    let second = service.client.put(QUEUE, Some(&json!({"team": "b"}))).unwrap();
    assert_eq!(second.status, 204);
    let metadata = service.client.get(QUEUE).unwrap().json();
    assert_eq!(metadata, with_defaults(&json!({"team": "a", "deep": {"er": [1, 2.50]}})));
}

/// Metadata as Zaqar shows it: with the reserved keys that the queue does not set.
fn with_defaults(own: &Value) -> Value {
    let mut shown = json!({
        "_max_messages_post_size": 262_144,
        "_default_message_ttl": 3_600,
        "_default_message_delay": 0,
        "_dead_letter_queue": null,
        "_dead_letter_queue_messages_ttl": null,
        "_max_claim_count": null,
        "_enable_encrypt_messages": false,
    });
    let own = own.as_object().unwrap().clone();
    shown.as_object_mut().unwrap().extend(own);
    shown
}

#[test]
fn missing_queue_is_empty_in_every_way() {
    let service = service();
    assert_eq!(service.client.get(QUEUE).unwrap().json(), with_defaults(&json!({})));
    let page = service.client.get("/v2/queues/q/messages").unwrap().json();
    assert_eq!(page, json!({"messages": [], "links": []}));
    let popped = service.client.delete("/v2/queues/q/messages?pop=1").unwrap();
    assert_eq!((popped.status.as_u16(), popped.json()), (200, json!({"messages": []})));
    assert_eq!(service.client.delete("/v2/queues/q/messages?ids=a,b").unwrap().status, 204);
    assert_eq!(service.client.get("/v2/queues/q/messages?ids=a,b").unwrap().status, 404);
    assert_eq!(
        service.client.post("/v2/queues/q/purge", &json!({"resource_types": []})).unwrap().status,
        204
    );
    let stats = service.client.stats("q").unwrap().json();
    assert_eq!(
        stats,
        json!({"messages": {"claimed": 0, "free": 0, "ready": 0, "delayed": 0, "in_transfer": 0, "total": 0}})
    );
    assert_eq!(service.client.claim("q", 1, 60).unwrap().status, 204);
    let id = "01a1fc0b-7a70-73e1-a5b6-7f7b06722333";
    assert_eq!(service.client.get_message("q", id).unwrap().status, 404);
    assert_eq!(service.client.delete_message("q", id, None).unwrap().status, 204);
    // None of that made a queue.
    assert_eq!(service.client.create_queue("q").unwrap().status, 201);
}

#[test]
fn stats_count_claimed_and_free_and_point_to_the_ends() {
    let service = service();
    let posted = service.client.post_messages("q", &[json!(1), json!(2), json!(3)]).unwrap().json();
    let claim = service.client.claim("q", 1, 60).unwrap();
    assert_eq!(claim.status, 201);
    let stats = service.client.stats("q").unwrap().json();
    let messages = &stats["messages"];
    assert_eq!(
        (&messages["claimed"], &messages["free"], &messages["total"]),
        (&json!(1), &json!(2), &json!(3))
    );
    assert_eq!(messages["oldest"]["href"], posted["resources"][0]);
    assert_eq!(messages["newest"]["href"], posted["resources"][2]);
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&messages["oldest"]), ["age", "created", "href"]);
}

#[test]
fn a_reserved_attribute_out_of_its_bounds_is_refused() {
    let service = service();
    let refused = service.client.put(QUEUE, Some(&json!({"_max_claim_count": -3}))).unwrap();
    assert_eq!(refused.status, 400);
    assert!(refused.json()["description"].as_str().unwrap().contains("_max_claim_count"));
    assert_eq!(service.client.create_queue("q").unwrap().status, 201);
}

#[test]
fn projects_do_not_see_each_other() {
    let service = service();
    let project = |name: &str| -> Client { service.server.client().with_header("X-Project-Id", name) };
    let (ours, theirs) = (project("ours"), project("ours/../theirs"));
    let id =
        ours.post_messages("q", &[json!("secret")]).unwrap().json()["ids"][0].as_str().unwrap().to_owned();
    assert_eq!(theirs.get_message("q", &id).unwrap().status, 404);
    assert_eq!(theirs.claim("q", 10, 60).unwrap().status, 204);
    assert_eq!(theirs.delete_message("q", &id, None).unwrap().status, 204);
    assert_eq!(ours.get_message("q", &id).unwrap().json()["body"], json!("secret"));
}

#[test]
fn an_absent_project_is_the_default_one() {
    let service = service();
    service.client.post_messages("q", &[json!(1)]).unwrap();
    for named in ["", "000000000000"] {
        let client = service.server.client().with_header("X-Project-Id", named);
        assert_eq!(client.stats("q").unwrap().json()["messages"]["total"], json!(1), "{named:?}");
    }
}

#[test]
fn refused_post_creates_no_queue() {
    let service = service();
    let long = json!("x".repeat(262_144));
    assert_eq!(service.client.post_messages("missing", std::slice::from_ref(&long)).unwrap().status, 400);
    let batch =
        service.client.post("/v2/queues/missing/messages/batch", &json!({"messages": [{"body": long}]}));
    assert_eq!(batch.unwrap().json()["results"][0]["status"], json!(400));
    assert_eq!(service.client.get("/v2/queues").unwrap().json()["queues"], json!([]));
}

#[test]
fn queue_bounds_each_of_its_messages() {
    let service = service();
    service.client.put(QUEUE, Some(&json!({"_max_messages_post_size": 100}))).unwrap();
    // A message, not the request: two of a hundred bytes with their quotes.
    let (fits, long) = (json!("x".repeat(98)), json!("x".repeat(99)));
    assert_eq!(service.client.post_messages("q", &[fits.clone(), fits.clone()]).unwrap().status, 201);
    let refused = service.client.post_messages("q", &[fits.clone(), long.clone()]).unwrap();
    assert_eq!(refused.status, 400);
    let said = "messages[1].body: a message of this queue has at most 100 bytes, and this one has 101";
    assert_eq!(refused.json()["description"], said);
    assert_eq!(service.client.stats("q").unwrap().json()["messages"]["total"], json!(2));
    assert_eq!(service.client.post_messages("other", std::slice::from_ref(&long)).unwrap().status, 201);
    let batch = json!({"messages": [{"body": long}, {"body": fits}]});
    let answer = service.client.post("/v2/queues/q/messages/batch", &batch).unwrap().json();
    let results: Vec<u64> = (0..2).filter_map(|at| answer["results"][at]["status"].as_u64()).collect();
    assert_eq!(results, [400, 201], "{answer}");
    assert_eq!(service.client.stats("q").unwrap().json()["messages"]["total"], json!(3));
}

#[test]
fn stats_tell_ready_from_delayed_messages() {
    let service = service();
    service.client.post_messages("q", &[json!(1), json!(2)]).unwrap();
    service.client.post_delayed("q", &[json!(3)], 600).unwrap();
    service.client.claim("q", 1, 60).unwrap().granted().unwrap();
    let messages = service.client.stats("q").unwrap().json()["messages"].clone();
    let counts =
        ["claimed", "free", "ready", "delayed", "in_transfer", "total"].map(|key| messages[key].as_u64());
    assert_eq!(counts, [1, 2, 1, 1, 0, 3].map(Some), "{messages}");
}

#[test]
fn missing_queue_answer_is_explicit() {
    let service = service();
    let told =
        |path: &str| service.client.get(path).unwrap().headers["x-queue-exists"].to_str().unwrap() == "true";
    assert!(!told(QUEUE) && !told("/v2/queues/q/stats"));
    assert_eq!(service.client.create_queue("q").unwrap().status, 201);
    assert!(told(QUEUE) && told("/v2/queues/q/stats"));
}

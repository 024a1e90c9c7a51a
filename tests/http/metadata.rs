//! Changing the metadata of a queue over HTTP.

use http::Method;
use serde_json::{Value, json};

use super::{Service, service};
use crate::support::client::Answer;

const QUEUE: &str = "/v2/queues/q";
const PATCH_TYPE: &str = "application/openstack-messaging-v2.0-json-patch";

fn patch(service: &Service, body: &Value) -> Answer {
    service.client.send_as(Method::PATCH, QUEUE, PATCH_TYPE, body.to_string().as_bytes()).unwrap()
}

#[test]
fn a_patch_adds_replaces_and_removes_and_answers_the_whole() {
    let service = service();
    service.client.put(QUEUE, Some(&json!({"a": 1, "b": 2}))).unwrap();
    let answer = patch(
        &service,
        &json!([
            {"op": "add", "path": "/metadata/c~1~0", "value": null},
            {"op": "replace", "path": "/metadata/a", "value": {"deep": [1.5]}},
            {"op": "remove", "path": "/metadata/b"},
            {"op": "replace", "path": "/metadata/_default_message_ttl", "value": 300},
        ]),
    );
    assert_eq!(answer.status, 200, "{}", answer.text());
    let metadata = answer.json();
    assert_eq!(
        (&metadata["a"], metadata.get("b"), &metadata["c/~"]),
        (&json!({"deep": [1.5]}), None, &json!(null))
    );
    assert_eq!(metadata["_default_message_ttl"], json!(300));
    assert_eq!(metadata["_max_messages_post_size"], json!(262_144));
    assert_eq!(service.client.get(QUEUE).unwrap().json(), metadata);
    // Nothing asked, nothing changed.
    assert_eq!(patch(&service, &json!([])).json(), metadata);
    // A reserved key that is removed has its default again, and can always be removed.
    for _ in 0..2 {
        let answer = patch(&service, &json!([{"op": "remove", "path": "/metadata/_default_message_ttl"}]));
        assert_eq!(answer.json()["_default_message_ttl"], json!(3_600));
    }
}

#[test]
fn missing_keys_conflict_and_change_nothing() {
    let service = service();
    service.client.create_queue("q").unwrap();
    for op in ["replace", "remove"] {
        let refused = patch(
            &service,
            &json!([
                {"op": "add", "path": "/metadata/a", "value": 1},
                {"op": op, "path": "/metadata/missing", "value": 1},
            ]),
        );
        assert_eq!((refused.status.as_u16(), &refused.json()["title"]), (409, &json!("Resource conflict")));
        assert!(refused.json()["description"].as_str().unwrap().contains("'missing'"));
    }
    assert!(service.client.get(QUEUE).unwrap().json().get("a").is_none());
}

#[test]
fn missing_queue_has_no_metadata_to_change() {
    let service = service();
    assert_eq!(patch(&service, &json!([{"op": "add", "path": "/metadata/a", "value": 1}])).status, 404);
    assert_eq!(service.client.create_queue("q").unwrap().status, 201);
}

#[test]
fn a_patch_has_a_media_type_of_its_own() {
    let service = service();
    service.client.create_queue("q").unwrap();
    for wrong in ["application/json", "application/merge-patch+json", "text/plain"] {
        let refused = service.client.send_as(Method::PATCH, QUEUE, wrong, b"[]").unwrap();
        assert_eq!(refused.status, 415, "{wrong}");
        assert!(refused.json()["description"].as_str().unwrap().contains(PATCH_TYPE));
    }
    for known in [PATCH_TYPE, "application/json-patch+json"] {
        let spelled = format!("{}; charset=utf-8", known.to_uppercase());
        let changed = br#"[{"op": "add", "path": "/metadata/a", "value": 1}]"#;
        let answer = service.client.send_as(Method::PATCH, QUEUE, &spelled, changed).unwrap();
        assert_eq!((answer.status.as_u16(), &answer.json()["a"]), (200, &json!(1)), "{known}");
    }
}

#[test]
fn invalid_patch_is_400_with_position() {
    let service = service();
    service.client.create_queue("q").unwrap();
    let long = "x".repeat(65_536);
    for (body, part) in [
        (json!({}), "it must be a list, not an object"),
        (json!("x"), "it must be a list, not a string"),
        (json!([1]), "[0]: it must be a JSON object"),
        (json!([[]]), "[0]: it must be a JSON object"),
        (json!([{"path": "/metadata/a", "value": 1}]), "'op' is missing"),
        (json!([{"op": "add", "value": 1}]), "'path' is missing"),
        (json!([{"op": "add", "path": "/metadata/a"}]), "'value' is missing"),
        (json!([{"op": "move", "path": "/metadata/a", "from": "/metadata/b"}]), "[0].op"),
        (json!([{"op": "add", "path": "/foo/a", "value": 1}]), "[0].path"),
        (json!([{"op": "add", "path": "/metadata/a/b", "value": 1}]), "[0].path"),
        (json!([{"op": "add", "path": "/metadata/_max_claim_count", "value": "3"}]), "_max_claim_count"),
        (
            json!([{"op": "add", "path": "/metadata/_default_message_ttl", "value": 59}]),
            "_default_message_ttl",
        ),
        (json!([{"op": "add", "path": "/metadata/a", "value": long}]), "too large"),
    ] {
        let refused = patch(&service, &body);
        assert_eq!(refused.status, 400, "{body}");
        let said = refused.json()["description"].as_str().unwrap().to_owned();
        assert!(said.contains(part), "{body}: {said}");
    }
}

#[test]
fn patches_made_at_the_same_time_are_all_kept() {
    let service = service();
    service.client.create_queue("q").unwrap();
    std::thread::scope(|scope| {
        for number in 0..16 {
            let service = &service;
            scope.spawn(move || {
                let change = json!([{"op": "add", "path": format!("/metadata/k{number}"), "value": number}]);
                assert_eq!(patch(service, &change).status, 200);
            });
        }
    });
    let metadata = service.client.get(QUEUE).unwrap().json();
    assert!((0..16).all(|number| metadata[format!("k{number}")] == json!(number)), "{metadata}");
}

#[test]
fn attributes_kept_for_sqs_are_judged_as_sqs_does() {
    let service = service();
    service.client.create_queue("q").unwrap();
    let before = service.client.get(QUEUE).unwrap().json();
    let statement = |action: &str| {
        let one = json!({"Effect": "Deny", "Principal": "*", "Action": action, "Resource": "*"});
        json!({"Statement": [one]})
    };
    for (key, value, part) in [
        ("_policy", statement("sqs:SendMesage"), "SendMesage"),
        ("_policy", json!({"Statement": "all"}), "Statement"),
        ("_redrive_allow", json!({"redrivePermission": "somebody"}), "redrivePermission"),
        ("_tags", json!({"aws:mine": "x"}), "aws:mine"),
        ("_tags", json!({"team": {}}), "_tags"),
    ] {
        let path = format!("/metadata/{key}");
        let patched = [
            json!({"op": "add", "path": "/metadata/a", "value": 1}),
            json!({"op": "add", "path": path, "value": value}),
        ];
        let created = service.client.put("/v2/queues/new", Some(&json!({key: value}))).unwrap();
        for refused in [patch(&service, &json!(patched)), created] {
            let said = refused.json();
            assert_eq!(refused.status, 400, "{value}: {said}");
            let why = said["description"].as_str().unwrap();
            assert!(why.contains(key) && why.contains(part), "{value}: {why}");
        }
    }
    assert_eq!(service.client.get(QUEUE).unwrap().json(), before, "nothing is changed");
    let kept = statement("sqs:SendMessage");
    let answer = patch(&service, &json!([{"op": "add", "path": "/metadata/_policy", "value": kept}]));
    assert_eq!((answer.status.as_u16(), &answer.json()["_policy"]), (200, &kept));
    let answer = patch(&service, &json!([{"op": "add", "path": "/metadata/_policy", "value": null}]));
    assert_eq!(answer.status, 200, "{}", answer.text());
}

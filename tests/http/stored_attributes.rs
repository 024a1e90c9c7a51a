//! Queues whose stored metadata have reserved keys with values that this version does not understand, as when a key was
//! free metadata of a client before.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use angarium_catalogue::Catalogue;
use angarium_clock::Clock;
use angarium_coordination::embedded::EmbeddedTree;
use angarium_coordination::{Coordination, Op};
use angarium_core::names::{ProjectId, QueueName, QueueRef};
use angarium_journal::Journal;
use http::Method;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{Service, service};
use crate::support::server::{Server, ServerBuilder};

/// Replaces the metadata of a queue in the tree of a service that is stopped.
async fn store_metadata(data: &Path, name: &str, metadata: &Value) {
    let at = QueueRef {
        project: ProjectId::new(ProjectId::DEFAULT).unwrap(),
        name: QueueName::new(name).unwrap(),
    };
    let journal = Journal::open(&data.join("journal"), &Clock::system()).unwrap();
    let tree = Arc::new(EmbeddedTree::open(journal).await.unwrap());
    let catalogue = Catalogue::new(tree.clone());
    let mut record = catalogue.queue_records(std::slice::from_ref(&at)).await.unwrap().remove(0).unwrap();
    record.metadata = RawValue::from_string(metadata.to_string()).unwrap();
    let slot = format!("/queues/{:02x}", at.slot().0);
    let project = tree.children(&slot).await.unwrap().pop().unwrap();
    let (path, data) = (format!("{slot}/{project}/{name}"), serde_json::to_vec(&record).unwrap().into());
    tree.commit(&[], &[Op::Set { path, data, version: None }]).await.unwrap();
    tree.close().await;
}

/// The warnings of `doctor` about attributes.
fn warnings(data: &Path) -> Vec<String> {
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_angarium"));
    doctor.args(["doctor", "--url", "http://127.0.0.1:1", "-o", "json", "--data"]).arg(data);
    let checks: Value = serde_json::from_slice(&doctor.output().unwrap().stdout).unwrap();
    let told = checks.as_array().unwrap().iter().filter(|check| check["name"] == "attributes");
    told.map(|check| format!("{}: {}", check["verdict"].as_str().unwrap(), check["found"].as_str().unwrap()))
        .collect()
}

/// Starts a service again after its queue `q` got other metadata, of which `doctor` warns as expected.
fn written(service: Service, metadata: &Value, warning: &str) -> Service {
    let Service { server, data, .. } = service;
    assert!(server.terminate().success());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(store_metadata(data.path(), "q", metadata));
    drop(runtime);
    assert_eq!(warnings(data.path()), [format!("warning: queue 000000000000/q ignores {warning}")]);
    let server = ServerBuilder::new(data.path()).start();
    Service { client: server.client(), server, data }
}

#[test]
fn misfit_attribute_is_ignored_shown_and_told() {
    let service = service();
    service.client.put("/v2/queues/q", Some(&json!({"a": 1}))).unwrap();
    assert_eq!(service.client.post_messages("q", &[json!("before")]).unwrap().status, 201);
    let stored = json!({"a": 1, "_default_message_ttl": "long", "_policy": "all", "_max_claim_count": 3});
    let warning = "_policy must be a JSON object; _default_message_ttl must be an integer";
    let service = written(service, &stored, warning);
    let client = &service.client;
    assert_eq!(client.post_messages("q", &[json!("after")]).unwrap().status, 201);
    let claimed = client.claim("q", 10, 60).unwrap().json();
    let told: Vec<_> = claimed["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| (m["body"].clone(), m["ttl"].clone()))
        .collect();
    assert_eq!(told, [(json!("before"), json!(3_600)), (json!("after"), json!(3_600))]);
    let shown = client.get("/v2/queues/q").unwrap().json();
    for (key, value) in stored.as_object().unwrap() {
        assert_eq!(&shown[key], value, "{shown}");
    }
    let listed = client.get("/v2/queues?detailed=true").unwrap().json();
    assert_eq!(listed["queues"][0]["metadata"]["_default_message_ttl"], "long", "{listed}");
    let lines = service.server.last_lines();
    assert_eq!(lines.matches("stored attribute ignored").count(), 2, "{lines}");
    assert!(lines.contains("_default_message_ttl"), "{lines}");
    // Another key can be changed, and the value replaced or removed, but by no other misfit.
    let patch = |operations: Value| {
        let (media, text) = ("application/json-patch+json", operations.to_string());
        client.send_as(Method::PATCH, "/v2/queues/q", media, text.as_bytes()).unwrap().status.as_u16()
    };
    assert_eq!(patch(json!([{"op": "replace", "path": "/metadata/a", "value": 2}])), 200);
    assert_eq!(
        patch(json!([{"op": "replace", "path": "/metadata/_default_message_ttl", "value": "x"}])),
        400
    );
    let mended = json!([
        {"op": "replace", "path": "/metadata/_default_message_ttl", "value": 600},
        {"op": "remove", "path": "/metadata/_policy"},
    ]);
    assert_eq!(patch(mended), 200);
    let Service { server, data, .. } = service;
    Server::terminate(server);
    assert_eq!(warnings(data.path()), [""; 0]);
}

#[test]
fn misfit_fifo_keeps_order_and_can_be_replaced() {
    let service = service();
    service.client.put("/v2/queues/q", Some(&json!({"_fifo": true}))).unwrap();
    let stored = json!({"_fifo": {"order": "strict"}});
    let service = written(service, &stored, "_fifo must be true or false");
    let client = &service.client;
    for body in ["a", "b"] {
        let message = json!({"messages": [{"body": body, "group": "g"}]});
        assert_eq!(client.post("/v2/queues/q/messages", &message).unwrap().status, 201);
    }
    assert_eq!(client.claim("q", 1, 60).unwrap().json()["messages"][0]["body"], "a");
    assert_eq!(client.claim("q", 1, 60).unwrap().status, 204, "the group has a claimed message");
    let patch = |value: bool| {
        let operations = json!([{"op": "replace", "path": "/metadata/_fifo", "value": value}]).to_string();
        let media = "application/json-patch+json";
        client.send_as(Method::PATCH, "/v2/queues/q", media, operations.as_bytes()).unwrap().status.as_u16()
    };
    assert_eq!(patch(false), 400);
    assert_eq!(patch(true), 200);
}

//! What an orderly end and a sudden one leave behind.

use serde_json::json;

use super::{Service, service};
use crate::support::server::{Server, ServerBuilder};

impl Service {
    /// The service started again on its data.
    pub(super) fn again(self, end: impl FnOnce(Server)) -> Self {
        end(self.server);
        let server = ServerBuilder::new(self.data.path()).start();
        Self { client: server.client(), server, data: self.data }
    }
}

#[test]
fn messages_claims_and_metadata_survive_kill_9() {
    let service = service();
    service.client.put("/v2/queues/q", Some(&json!({"a": 1}))).unwrap();
    service.client.post_messages("q", &[json!("one"), json!("two"), json!("three")]).unwrap();
    let claim = service.client.claim("q", 1, 60).unwrap().json();
    let (claim, claimed) = (claim["id"].as_str().unwrap(), claim["messages"][0]["id"].as_str().unwrap());

    let service = service.again(Server::kill9);
    assert_eq!(service.client.get("/v2/queues/q").unwrap().json()["a"], json!(1));
    let free = service.client.claim("q", 10, 60).unwrap().json();
    let bodies: Vec<_> = free["messages"].as_array().unwrap().iter().map(|m| m["body"].clone()).collect();
    assert_eq!(bodies, [json!("two"), json!("three")]);
    assert_eq!(service.client.delete_message("q", claimed, None).unwrap().status, 403);
    assert_eq!(service.client.delete_message("q", claimed, Some(claim)).unwrap().status, 204);

    let service = service.again(Server::kill9);
    assert_eq!(service.client.get_message("q", claimed).unwrap().status, 404);
    assert_eq!(service.client.stats("q").unwrap().json()["messages"]["claimed"], json!(2));
}

#[test]
fn ids_go_on_growing_after_a_restart() {
    let service = service();
    let post = |service: &Service| {
        let posted = service.client.post_messages("q", &[json!(1)]).unwrap().json();
        posted["ids"][0].as_str().unwrap().to_owned()
    };
    let first = post(&service);
    let service = service.again(Server::kill9);
    assert!(post(&service) > first);
}

#[test]
fn sigterm_ends_with_success_and_loses_nothing() {
    let service = service();
    service.client.post_messages("q", &[json!(1)]).unwrap();
    let service = service.again(|server| assert!(server.terminate().success()));
    assert_eq!(service.client.claim("q", 1, 60).unwrap().status, 201);
}

#[test]
fn a_second_service_on_the_same_data_refuses_to_start() {
    let service = service();
    let second = std::process::Command::new(env!("CARGO_BIN_EXE_angarium"))
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(service.data.path())
        .output()
        .unwrap();
    assert!(!second.status.success());
    assert!(String::from_utf8_lossy(&second.stderr).contains("in use by another process"));
    assert_eq!(service.client.get("/v2/ping").unwrap().status, 204);
}

#[test]
fn the_terms_of_a_renewed_claim_survive_kill_9() {
    let service = service();
    service.client.post_messages("q", &[json!(1)]).unwrap();
    let id = service.client.claim("q", 1, 60).unwrap().json()["id"].as_str().unwrap().to_owned();
    let path = format!("/v2/queues/q/claims/{id}");
    assert_eq!(service.client.patch(&path, &json!({"ttl": 5000})).unwrap().status, 204);
    let service = service.again(Server::kill9);
    assert_eq!(service.client.get(&path).unwrap().json()["ttl"], json!(5000));
}

//! What holds for every request.

use http::Method;
use serde_json::json;

use super::service;
use crate::support::client::Answer;

#[test]
fn every_answer_carries_a_request_id_of_its_own() {
    let service = service();
    let ids: Vec<String> = ["/livez", "/v2/queues/q", "/nowhere", "/v2/queues/%20"]
        .iter()
        .map(|path| {
            let answer = service.client.get(path).unwrap();
            answer.headers["x-openstack-request-id"].to_str().unwrap().to_owned()
        })
        .collect();
    assert!(ids.iter().all(|id| id.starts_with("req-") && id.len() == 40));
    assert!(ids.windows(2).all(|pair| pair[0] != pair[1]));
}

#[test]
fn errors_have_zaqars_form_and_say_what_a_program_needs() {
    let service = service();
    let answer = service.client.get("/v2/queues/a%20b").unwrap();
    assert_eq!(answer.status, 400);
    assert_eq!(
        (&answer.headers["content-type"], &answer.headers["vary"]),
        (&"application/json".parse().unwrap(), &"Accept".parse().unwrap())
    );
    let body = answer.json();
    assert_eq!(body["title"], json!("Invalid queue identification"));
    assert_eq!(
        (&body["code"], &body["may_retry"], &body["nothing_written"]),
        (&json!("invalid"), &json!(false), &json!(true))
    );
    assert_eq!(body["request_id"], json!(answer.headers["x-openstack-request-id"].to_str().unwrap()));
}

#[test]
fn unknown_paths_are_404_and_unknown_methods_405_with_allow() {
    let service = service();
    let missing = service.client.get("/v2/nowhere").unwrap();
    assert_eq!((missing.status.as_u16(), &missing.json()["title"]), (404, &json!("404 Not Found")));
    let refused = service.client.delete("/v2/queues/q/stats").unwrap();
    assert_eq!((refused.status.as_u16(), &refused.json()["title"]), (405, &json!("405 Method Not Allowed")));
    assert_eq!(refused.headers["allow"], "GET, OPTIONS");
}

#[test]
fn head_exists_only_on_ping() {
    let service = service();
    let head = |path: &str| service.client.send(Method::HEAD, path, &[], None).unwrap();
    assert_eq!(head("/v2/ping").status, 204);
    let refused = head("/v2/queues/q");
    assert_eq!((refused.status.as_u16(), methods(&refused)), (405, vec!["GET", "OPTIONS", "PUT"]));
}

/// The methods of `Allow`, in order.
fn methods(answer: &Answer) -> Vec<&str> {
    let mut methods: Vec<&str> = answer.headers["allow"].to_str().unwrap().split(", ").collect();
    methods.sort_unstable();
    methods
}

#[test]
fn options_answers_200_with_the_methods_of_the_path() {
    let service = service();
    let options = |path: &str| service.client.send(Method::OPTIONS, path, &[], None).unwrap();
    for (path, allow) in [
        ("/v2/queues/q/messages", vec!["OPTIONS", "POST"]),
        ("/v2/queues/q/messages/x", vec!["DELETE", "GET", "OPTIONS"]),
        ("/v2/ping", vec!["GET", "HEAD", "OPTIONS"]),
    ] {
        let answer = options(path);
        assert_eq!((answer.status.as_u16(), methods(&answer)), (200, allow), "{path}");
    }
    assert_eq!(options("/nowhere").status, 404);
}

#[test]
fn a_service_that_can_write_is_alive_and_ready() {
    let service = service();
    for (path, status) in [("/livez", 200), ("/readyz", 200), ("/v2/ping", 204)] {
        assert_eq!(service.client.get(path).unwrap().status, status, "{path}");
    }
}

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
fn errors_have_zaqar_form_and_program_fields() {
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
    assert_eq!(missing.json()["description"], json!("there is no /v2/nowhere"));
    let refused = service.client.delete("/v2/queues/q/stats").unwrap();
    assert_eq!((refused.status.as_u16(), &refused.json()["title"]), (405, &json!("405 Method Not Allowed")));
    assert_eq!(refused.headers["allow"], "GET, OPTIONS");
    assert_eq!(refused.json()["description"], json!("/v2/queues/q/stats has no DELETE: it has GET, OPTIONS"));
}

#[test]
fn head_exists_only_on_ping_and_probes() {
    let service = service();
    let head = |path: &str| service.client.send(Method::HEAD, path, &[], None).unwrap();
    assert_eq!(head("/v2/ping").status, 204);
    for probe in ["/livez", "/readyz"] {
        let answer = head(probe);
        assert_eq!((answer.status.as_u16(), answer.body.len()), (200, 0), "{probe}");
    }
    let refused = head("/v2/queues/q");
    assert_eq!(
        (refused.status.as_u16(), methods(&refused)),
        (405, vec!["DELETE", "GET", "OPTIONS", "PATCH", "PUT"])
    );
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
        ("/v2/queues/q/messages", vec!["DELETE", "GET", "OPTIONS", "POST"]),
        ("/v2/queues/q/messages/x", vec!["DELETE", "GET", "OPTIONS", "PATCH"]),
        ("/v2/ping", vec!["GET", "HEAD", "OPTIONS"]),
        ("/readyz", vec!["GET", "HEAD", "OPTIONS"]),
    ] {
        let answer = options(path);
        assert_eq!((answer.status.as_u16(), methods(&answer)), (200, allow), "{path}");
    }
    assert_eq!(options("/nowhere").status, 404);
}

#[test]
fn client_without_json_is_refused_first() {
    let service = service();
    let put = |accept: &str| {
        let headers = [("Accept", accept)];
        service.client.send(Method::PUT, "/v2/queues/q", &headers, None).unwrap()
    };
    for refused in ["text/html", "application/xml", "application/json;q=0"] {
        let answer = put(refused);
        assert_eq!((answer.status.as_u16(), &answer.json()["title"]), (406, &json!("406 Not Acceptable")));
    }
    assert_eq!(put("text/html, application/*;q=0.1").status, 201);
    assert_eq!(put("*/*").status, 204);
    // What is not of the API has answers of its own.
    let livez = service.client.send(Method::GET, "/livez", &[("Accept", "text/plain")], None).unwrap();
    assert_eq!(livez.status, 200);
}

#[test]
fn every_api_path_checks_the_caller() {
    let service = service();
    for path in ["/v2/", "/v2/ping", "/v2/queues", "/v2/queues/q", "/v2/queues/q/messages"] {
        for headers in [("Client-ID", "nobody"), ("Client-ID", ""), ("X-Project-Id", &*"p".repeat(257))] {
            let answer = service.client.send(Method::GET, path, &[headers], None).unwrap();
            assert_eq!(answer.status, 400, "{path} {headers:?}");
        }
        let client = [("Client-ID", "3381af924cd611e2957b00163e1ea28a")];
        assert!(service.client.send(Method::GET, path, &client, None).unwrap().status.is_success(), "{path}");
    }
}

#[test]
fn writable_service_is_alive_and_ready() {
    let service = service();
    for (path, status) in [("/livez", 200), ("/readyz", 200), ("/v2/ping", 204)] {
        assert_eq!(service.client.get(path).unwrap().status, status, "{path}");
    }
}

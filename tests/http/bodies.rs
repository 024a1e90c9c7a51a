//! Lists and claims without bodies over HTTP.

use http::Method;
use serde_json::{Value, json};

use super::{Service, service};
use crate::support::server::ServerBuilder;

const MESSAGES: &str = "/v2/queues/q/messages";
const CLAIMS: &str = "/v2/queues/q/claims";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Posts two messages in one trace, and returns their ids.
fn post(service: &Service) -> Vec<String> {
    let messages = json!({"messages": [
        {"body": {"order": 1}, "ttl": 600, "tags": ["eu"], "group": "customer-7"},
        {"body": null, "ttl": 700}
    ]});
    let answer = service.client.send(Method::POST, MESSAGES, &[("traceparent", PARENT)], Some(&messages));
    answer.unwrap().posted_ids()
}

fn keys(message: &Value) -> Vec<&str> {
    message.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Checks that an answer has everything of the messages of [`post`] but their bodies.
fn check(answer: &Value, ids: &[String]) {
    let messages = answer["messages"].as_array().unwrap();
    let shown: Vec<&str> = messages.iter().map(|message| message["id"].as_str().unwrap()).collect();
    assert_eq!(shown, ids);
    assert!(messages.iter().all(|message| message.get("body").is_none()), "{answer}");
    let [first, second] = &messages[..] else { panic!("{answer}") };
    assert_eq!((&first["ttl"], &second["ttl"]), (&json!(600), &json!(700)));
    assert_eq!((&first["body_bytes"], &second["body_bytes"]), (&json!(11), &json!(4)));
    assert_eq!(first["details"]["tags"], json!(["eu"]));
    assert_eq!(first["details"]["group"], json!("customer-7"));
    assert_eq!(answer["traces"][&ids[0]]["traceparent"], json!(PARENT));
}

#[test]
fn list_without_bodies_has_all_else_and_its_links() {
    let service = service();
    let ids = post(&service);
    check(&service.client.get(&format!("{MESSAGES}?bodies=false")).unwrap().json(), &ids);
    check(&service.client.get(&format!("{MESSAGES}?bodies=no&ids={}", ids.join(","))).unwrap().json(), &ids);

    let page = service.client.get(&format!("{MESSAGES}?bodies=0&limit=1")).unwrap().json();
    let link = page["links"][0]["href"].as_str().unwrap();
    assert!(link.contains("bodies=false"), "{link}");
    let next = service.client.get(link).unwrap().json();
    assert_eq!(keys(&next["messages"][0]), ["age", "body_bytes", "details", "href", "id", "ttl"]);
}

#[test]
fn claim_without_bodies_leaves_them_to_reads_by_id() {
    let service = service();
    let ids = post(&service);
    let claim =
        service.client.send(Method::POST, &format!("{CLAIMS}?bodies=false"), &[], None).unwrap().json();
    check(&claim, &ids);
    assert_eq!(claim["messages"][0]["claim_count"], json!(1));
    let path = format!("{CLAIMS}/{}", claim["id"].as_str().unwrap());
    check(&service.client.get(&format!("{path}?bodies=false")).unwrap().json(), &ids);

    // The href of the claim reads the body, and then deletes the message.
    let href = claim["messages"][0]["href"].as_str().unwrap();
    assert_eq!(service.client.get(href).unwrap().json()["body"], json!({"order": 1}));
    assert_eq!(service.client.delete(href).unwrap().status, 204);
    let left = service.client.get(&path).unwrap().json();
    assert_eq!((left["messages"].as_array().unwrap().len(), &left["messages"][0]["body"]), (1, &Value::Null));
    assert!(left["messages"][0].get("body").is_some(), "a body that is null is shown: {left}");
}

#[test]
fn bodies_are_shown_unless_the_parameter_is_false() {
    let service = service();
    let ids = post(&service);
    for query in ["", "?bodies=", "?bodies=true"] {
        let page = service.client.get(&format!("{MESSAGES}{query}")).unwrap().json();
        assert_eq!(keys(&page["messages"][0]), ["age", "body", "href", "id", "ttl"], "{query}");
    }
    let claim =
        service.client.send(Method::POST, &format!("{CLAIMS}?bodies=true"), &[], None).unwrap().json();
    assert_eq!(claim["messages"][0]["body"], json!({"order": 1}));
    // A pop shows bodies always, because they exist nowhere else any more.
    service.client.release_claim("q", claim["id"].as_str().unwrap()).unwrap();
    let popped = service.client.delete(&format!("{MESSAGES}?pop=2&bodies=false")).unwrap().json();
    assert_eq!(
        (&popped["messages"][0]["id"], &popped["messages"][0]["body"]),
        (&json!(ids[0]), &json!({"order": 1}))
    );
}

#[test]
fn invalid_bodies_parameter_is_refused_and_claims_nothing() {
    let service = service();
    let ids = post(&service);
    let claims = [(Method::GET, MESSAGES.to_owned()), (Method::POST, CLAIMS.to_owned())];
    let by_id = (Method::GET, format!("{CLAIMS}/{}", ids[0]));
    for (method, path) in claims.into_iter().chain([by_id]) {
        let refused = service.client.send(method, &format!("{path}?bodies=maybe"), &[], None).unwrap();
        let error = refused.json();
        assert_eq!(refused.status, 400, "{path}: {error}");
        assert_eq!(error["description"], json!("bodies: it is neither true nor false"), "{path}");
    }
    assert_eq!(service.client.stats("q").unwrap().json()["messages"]["claimed"], json!(0));
}

/// Bodies beyond the ready cache are read from the pool; those of an answer without bodies are not sent either.
#[test]
fn restarted_service_shows_messages_without_bodies() {
    let service = service();
    let ids = post(&service);
    let large = vec![json!("x".repeat(200_000)); 8];
    service.client.post_messages("q", &large).unwrap();
    service.server.kill9();
    let server = ServerBuilder::new(service.data.path()).start();
    let answer = server.client().get(&format!("{MESSAGES}?bodies=false&limit=20")).unwrap();
    assert!(answer.body.len() < 10_000, "{} bytes", answer.body.len());
    let page = answer.json();
    assert_eq!(page["messages"].as_array().unwrap().len(), 10);
    assert_eq!(page["messages"][9]["body_bytes"], json!(200_002));
    let first = json!({"messages": [page["messages"][0], page["messages"][1]], "traces": page["traces"]});
    check(&first, &ids);
}

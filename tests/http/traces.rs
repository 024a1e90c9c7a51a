//! A trace travels with a message from its producer to its consumer, and with a request into the log.

use http::{Method, StatusCode};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

use super::service;
use crate::support::client::{Answer, Client};
use crate::support::server::{Server, ServerBuilder};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const STATE: &str = "vendor=value,other=1";

fn post(client: &Client, queue: &str, headers: &[(&str, &str)], bodies: &[Value]) -> Answer {
    let messages: Vec<Value> = bodies.iter().map(|body| json!({ "body": body })).collect();
    let path = format!("/v2/queues/{queue}/messages");
    let answer = client.send(Method::POST, &path, headers, Some(&json!({ "messages": messages }))).unwrap();
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
    answer
}

fn traced(client: &Client, bodies: &[Value]) -> Vec<String> {
    post(client, "q", &[("traceparent", PARENT), ("tracestate", STATE)], bodies).posted_ids()
}

fn expected() -> Value {
    json!({"traceparent": PARENT, "tracestate": STATE})
}

#[test]
fn consumer_gets_producer_trace() {
    let service = service();
    let client = &service.client;
    let ids = traced(client, &[json!({"a": 1}), json!("two")]);
    post(client, "q", &[], &[json!(3)]);
    let traces = json!({&ids[0]: expected(), &ids[1]: expected()});
    let list = client.get("/v2/queues/q/messages").unwrap().json();
    assert_eq!(list["traces"], traces);
    let claim = client.claim("q", 10, 300).unwrap().json();
    assert_eq!(claim["traces"], traces);
    let bodies: Vec<&Value> =
        claim["messages"].as_array().unwrap().iter().map(|message| &message["body"]).collect();
    assert_eq!(bodies, [&json!({"a": 1}), &json!("two"), &json!(3)]);
    let again = client.get(&format!("/v2/queues/q/claims/{}", claim["id"].as_str().unwrap())).unwrap().json();
    assert_eq!(again["traces"], traces);
    let by_id = client.get(&format!("/v2/queues/q/messages?ids={}", ids[1])).unwrap().json();
    assert_eq!(by_id["traces"], json!({&ids[1]: expected()}));
}

#[test]
fn a_popped_message_brings_its_trace() {
    let service = service();
    let ids = traced(&service.client, &[json!(1)]);
    let popped = service.client.delete("/v2/queues/q/messages?pop=1").unwrap().json();
    assert_eq!(popped["traces"], json!({&ids[0]: expected()}));
}

#[test]
fn single_message_has_trace_headers_and_plain_body() {
    let service = service();
    let ids = traced(&service.client, &[json!({"a": [1, 2]})]);
    let answer = service.client.get_message("q", &ids[0]).unwrap();
    assert_eq!(answer.headers["traceparent"], PARENT);
    assert_eq!(answer.headers["tracestate"], STATE);
    assert_eq!(answer.json()["body"], json!({"a": [1, 2]}));
    let keys: Vec<String> = answer.json().as_object().unwrap().keys().cloned().collect();
    let plain = post(&service.client, "q", &[], &[json!(1)]).posted_ids();
    let plain = service.client.get_message("q", &plain[0]).unwrap();
    assert!(!plain.headers.contains_key("traceparent"));
    assert_eq!(keys, plain.json().as_object().unwrap().keys().cloned().collect::<Vec<_>>());
}

#[test]
fn message_without_valid_trace_is_posted() {
    let service = service();
    let client = &service.client;
    for parent in ["", "00-1-2-3", "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"] {
        let ids = post(client, "q", &[("traceparent", parent)], &[json!(1)]).posted_ids();
        assert!(!client.get_message("q", &ids[0]).unwrap().headers.contains_key("traceparent"), "{parent}");
    }
    // A list that is too long leaves, and the trace stays.
    let long = format!("a={}", "x".repeat(600));
    let ids = post(client, "q", &[("traceparent", PARENT), ("tracestate", &long)], &[json!(1)]).posted_ids();
    let answer = client.get_message("q", &ids[0]).unwrap();
    assert_eq!(answer.headers["traceparent"], PARENT);
    assert!(!answer.headers.contains_key("tracestate"));
    assert!(client.claim("q", 3, 300).unwrap().json().get("traces").is_none());
}

#[test]
fn a_trace_outlives_a_restart_and_a_dead_letter() {
    let service = service();
    let once = json!({"_dead_letter_queue": "dead", "_max_claim_count": 1});
    assert_eq!(service.client.put("/v2/queues/q", Some(&once)).unwrap().status, StatusCode::CREATED);
    let ids = traced(&service.client, &[json!(1)]);
    let super::Service { server, data, .. } = service;
    server.terminate();
    let server = Server::start(data.path());
    let client = server.client();
    let claim = client.claim("q", 1, 300).unwrap().json();
    assert_eq!(claim["traces"], json!({&ids[0]: expected()}));
    client.release_claim("q", claim["id"].as_str().unwrap()).unwrap();
    assert_eq!(client.claim("q", 1, 300).unwrap().status, StatusCode::NO_CONTENT);
    let start = Instant::now();
    let moved = loop {
        let answer = client.claim("dead", 1, 300).unwrap();
        if answer.status == StatusCode::CREATED {
            break answer.json();
        }
        assert!(start.elapsed() < Duration::from_secs(20), "the dead letter does not come");
    };
    assert_eq!((&moved["traces"], &moved["messages"][0]["body"]), (&json!({&ids[0]: expected()}), &json!(1)));
}

#[test]
fn request_log_has_trace_and_request_id() {
    let data = tempfile::tempdir().unwrap();
    let server = ServerBuilder::new(data.path()).arg("--log=debug").arg("--log-format=json").start();
    let path = "/v2/queues/q/messages";
    let refused =
        server.client().send(Method::POST, path, &[("traceparent", PARENT)], Some(&json!({}))).unwrap();
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    let id = refused.headers["x-openstack-request-id"].to_str().unwrap().to_owned();
    let start = Instant::now();
    let line = loop {
        let lines = server.last_lines();
        let found = lines.lines().find_map(|line| {
            let line: Value = serde_json::from_str(line.get(line.find('{')?..)?).ok()?;
            (line["request_id"] == id.as_str() && line["message"].is_string()).then_some(line)
        });
        match found {
            Some(line) => break line,
            None => assert!(start.elapsed() < Duration::from_secs(20), "{lines}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(line["trace_id"], TRACE_ID);
}

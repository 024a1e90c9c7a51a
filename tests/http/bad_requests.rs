//! Bad input gets a clear 4xx that names the field, and leaves nothing behind.

use http::Method;
use proptest::prelude::*;
use serde_json::json;

use super::service;

const MESSAGES: &str = "/v2/queues/q/messages";
const CLAIMS: &str = "/v2/queues/q/claims";

#[test]
fn bodies_of_the_wrong_shape_are_400_and_name_the_field() {
    let service = service();
    for (path, body, part) in [
        (MESSAGES, "", "could not be parsed: it is empty"),
        (MESSAGES, "{", "the request body could not be parsed"),
        (MESSAGES, "[]", "must be a JSON object"),
        (MESSAGES, "null", "it must be a JSON object, not null"),
        (MESSAGES, "{}", "messages"),
        (MESSAGES, r#"{"messages":{}}"#, "messages"),
        (MESSAGES, r#"{"messages":[]}"#, "messages"),
        (MESSAGES, r#"{"messages":[1]}"#, "messages[0]"),
        (MESSAGES, r#"{"messages":[{}]}"#, "body"),
        (MESSAGES, r#"{"messages":[{"body":NaN}]}"#, "could not be parsed"),
        (MESSAGES, r#"{"messages":[{"body":1}]} trailing"#, "after the JSON value"),
        (MESSAGES, r#"{"messages":[{"body":1,"body":2}]}"#, "given more than once"),
        (MESSAGES, r#"{"messages":[{"body":1}],"messages":[]}"#, "given more than once"),
        (MESSAGES, r#"{"messages":[{"body":1,"ttl":"60"}]}"#, "messages[0].ttl"),
        (MESSAGES, r#"{"messages":[{"body":1,"ttl":60.5}]}"#, "messages[0].ttl"),
        (MESSAGES, r#"{"messages":[{"body":1,"ttl":true}]}"#, "messages[0].ttl"),
        (MESSAGES, r#"{"messages":[{"body":1,"ttl":1209601}]}"#, "messages[0].ttl"),
        (MESSAGES, r#"{"messages":[{"body":1,"ttl":99999999999999999999}]}"#, "messages[0].ttl"),
        (MESSAGES, r#"{"messages":[[1,60]]}"#, "messages[0]"),
        (CLAIMS, "[60,60]", "must be a JSON object"),
        (CLAIMS, r#"{"ttl":59}"#, "ttl"),
        (CLAIMS, r#"{"grace":43201}"#, "grace"),
        (CLAIMS, r#"{"ttl":"x"}"#, "ttl"),
    ] {
        let answer = service.client.send_text(Method::POST, path, body.as_bytes()).unwrap();
        assert_eq!(answer.status, 400, "{body}");
        let text = answer.json()["description"].as_str().unwrap().to_owned();
        assert!(text.contains(part), "{body}: {text}");
    }
    assert_eq!(service.client.stats("q").unwrap().json()["messages"]["total"], json!(0));
}

#[test]
fn non_utf8_text_is_400() {
    let service = service();
    let body = b"{\"messages\":[{\"body\":\"\xff\"}]}";
    assert_eq!(service.client.send_text(Method::POST, MESSAGES, body).unwrap().status, 400);
    assert_eq!(service.client.put("/v2/queues/%ff", None).unwrap().status, 400);
}

#[test]
fn nesting_is_refused_beyond_128_levels_and_kept_up_to_there() {
    let service = service();
    let post = |levels: usize| {
        let body = format!(r#"{{"messages":[{{"body":{}{}}}]}}"#, "[".repeat(levels), "]".repeat(levels));
        service.client.send_text(Method::POST, MESSAGES, body.as_bytes()).unwrap().status.as_u16()
    };
    assert_eq!(post(125), 201);
    assert_eq!(post(126), 400);
    assert_eq!(post(100_000), 400);
}

#[test]
fn bodies_up_to_the_limit_are_posted_and_longer_ones_are_400() {
    let service = service();
    let post = |length: usize, beside: usize| {
        let message = format!(r#"{{"body":"{}"}}"#, "x".repeat(length - 2));
        let body = format!(r#"{{"messages":[{message}]{}}}"#, " ".repeat(beside));
        service.client.send_text(Method::POST, MESSAGES, body.as_bytes()).unwrap()
    };
    assert_eq!(post(262_144, 0).status, 201);
    assert_eq!(post(262_144, 6_000_000).status, 201);
    for (length, beside, most) in [(262_145, 0, "262144"), (100, 6_553_600, "6553600")] {
        let refused = post(length, beside);
        assert_eq!(refused.status, 400);
        assert!(refused.json()["description"].as_str().unwrap().contains(most), "{}", refused.text());
    }
    let many = |count: usize| {
        let body = format!(r#"{{"messages":[{}]}}"#, vec![r#"{"body":1}"#; count].join(","));
        service.client.send_text(Method::POST, MESSAGES, body.as_bytes()).unwrap()
    };
    assert_eq!(many(24_000).status, 201);
    let refused = many(24_001);
    assert_eq!(refused.status, 400);
    assert!(
        refused.json()["description"].as_str().unwrap().contains("at most 24000 messages"),
        "{}",
        refused.text()
    );
    let metadata = json!({"text": "x".repeat(65_536)});
    assert_eq!(service.client.put("/v2/queues/q2", Some(&metadata)).unwrap().status, 400);
}

#[test]
fn bad_names_headers_and_parameters_are_400() {
    let service = service();
    for name in ["a%20b", "%2e%2e", "a%2fb", &"x".repeat(65)] {
        assert_eq!(service.client.put(&format!("/v2/queues/{name}"), None).unwrap().status, 400, "{name}");
    }
    let long = "p".repeat(257);
    for (header, value) in [("X-Project-Id", long.as_str()), ("Client-ID", "not-a-uuid")] {
        let answer = service.client.send(Method::GET, "/v2/queues/q", &[(header, value)], None).unwrap();
        assert_eq!(answer.status, 400, "{header}");
        assert!(answer.json()["description"].as_str().unwrap().contains(header));
    }
    for query in ["limit=0", "limit=21", "limit=x", "limit=1&limit=2", "limit=%ff"] {
        let answer = service.client.post(&format!("{CLAIMS}?{query}"), &json!({})).unwrap();
        assert_eq!(answer.status, 400, "{query}");
    }
    assert_eq!(service.client.post(&format!("{CLAIMS}?limit="), &json!({})).unwrap().status, 204);
}

/// A misspelt filter would select all messages. Zaqar ignores names that it does not know.
#[test]
fn unknown_parameter_is_ignored_only_where_zaqar_ignores_it() {
    let service = service();
    let request = |method: &Method, path: &str, query: &str| {
        service.client.send(method.clone(), &format!("{path}?{query}"), &[], Some(&json!({}))).unwrap()
    };
    for (method, path) in [
        (Method::GET, "/v2/queues/q/peek"),
        (Method::GET, "/v2/queues/q/explain"),
        (Method::PUT, "/v2/queues/q/hold"),
        (Method::DELETE, "/v2/queues/q/hold"),
        (Method::POST, "/v2/queues/q/tasks"),
        (Method::DELETE, "/v2/queues/q/messages/batch"),
        (Method::POST, "/v2/queues/q/migrate"),
        (Method::GET, "/v2/queues/q/subscriptions/019ab1c2-5f07-7d3e-8a41-3c5d7e9f1b20/messages"),
        (Method::GET, "/v2/admin/balance"),
        (Method::GET, "/v2/admin/holds"),
        (Method::GET, "/v2/quota"),
    ] {
        let answer = request(&method, path, "limt=1");
        let said = answer.json();
        assert_eq!((answer.status.as_u16(), &said["code"]), (400, &json!("invalid")), "{method} {path}");
        assert!(said["description"].as_str().unwrap().starts_with("limt:"), "{said}");
    }
    let holds = service.client.get("/v2/admin/holds?limt=1").unwrap().json();
    assert!(holds["description"].as_str().unwrap().ends_with("it has marker, limit"), "{holds}");
    for path in
        ["/v2/queues", "/v2/queues/q/messages", "/v2/queues/q/stats", "/v2/pools", "/v2/ping", "/v2/docs"]
    {
        let status = service.client.get(&format!("{path}?limt=1")).unwrap().status.as_u16();
        assert!(status == 200 || status == 204, "{path}: {status}");
    }
}

#[test]
fn no_body_whatsoever_is_anything_but_an_answer_below_500() {
    let service = service();
    let pieces = prop::collection::vec(
        prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"messages\"",
            "\"body\"",
            "\"ttl\"",
            "1",
            "-1",
            "1e9",
            "null",
            "true",
            "\"x\"",
            "\"\\ud800\"",
            "\\",
            " ",
            "\u{0}",
        ]),
        0..30,
    );
    proptest!(ProptestConfig::with_cases(200), |(pieces in pieces, is_claim: bool)| {
        let path = if is_claim { CLAIMS } else { MESSAGES };
        let answer = service.client.send_text(Method::POST, path, pieces.concat().as_bytes()).unwrap();
        prop_assert!(answer.status.as_u16() < 500, "{:?}", answer);
    });
}

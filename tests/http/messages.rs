//! Messages over HTTP.

use http::Method;
use serde_json::json;

use super::{Service, service};

fn ids(posted: &serde_json::Value) -> Vec<String> {
    posted["ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_post_answers_paths_and_ids_in_order() {
    let service = service();
    let answer = service.client.post_messages("q", &[json!("a"), json!("b")]).unwrap();
    assert_eq!(answer.status, 201);
    let posted = answer.json();
    let ids = ids(&posted);
    assert!(ids[0] < ids[1]);
    let paths: Vec<String> = ids.iter().map(|id| format!("/v2/queues/q/messages/{id}")).collect();
    assert_eq!(posted["resources"], json!(paths));
    let location = format!("/v2/queues/q/messages?ids={}", ids.join(","));
    assert_eq!(answer.headers["location"], location.as_str());
}

#[test]
fn bodies_leave_byte_for_byte_as_they_came() {
    let service = service();
    let bodies = [
        "null",
        "1.50",
        "1e400",
        "123456789012345678901234567890",
        r#""\u00e4\/""#,
        r#"{"b":1,"a":2,"b":3}"#,
        "[ 1 ,2 ]",
        "\"\u{1F40E}\"",
    ];
    let messages: Vec<String> = bodies.iter().map(|body| format!(r#"{{"body":{body}}}"#)).collect();
    let text = format!(r#"{{"messages":[{}]}}"#, messages.join(","));
    let posted = raw_post(&service, &text);
    assert_eq!(posted.0, 201, "{}", posted.1);
    let claimed = service.client.claim("q", 20, 60).unwrap();
    let text = String::from_utf8(claimed.body).unwrap();
    for body in bodies {
        assert!(text.contains(&format!(r#""body":{body}}}"#)), "{body} in {text}");
    }
}

#[test]
fn unknown_keys_are_dropped() {
    let service = service();
    let text = r#"{"messages":[{"body":1,"ttl":60,"color":"red","color":"blue"}],"more":[]}"#;
    assert_eq!(raw_post(&service, text).0, 201);
}

#[test]
fn one_bad_message_refuses_the_whole_post() {
    let service = service();
    let text = r#"{"messages":[{"body":1},{"body":2,"ttl":59}]}"#;
    let (status, body) = raw_post(&service, text);
    assert_eq!(status, 400);
    assert!(body.contains("messages[1].ttl"), "{body}");
    assert_eq!(service.client.stats("q").unwrap().json()["messages"]["total"], json!(0));
}

#[test]
fn a_message_is_read_claimed_or_not() {
    let service = service();
    let id = ids(&service.client.post_messages("q", &[json!({"x": 1})]).unwrap().json()).remove(0);
    let free = service.client.get_message("q", &id).unwrap().json();
    assert_eq!((&free["body"], &free["ttl"]), (&json!({"x": 1}), &json!(3600)));
    assert_eq!(free["href"], json!(format!("/v2/queues/q/messages/{id}")));
    let claim = service.client.claim("q", 1, 60).unwrap().json();
    let claimed = service.client.get_message("q", &id).unwrap().json();
    let href = format!("/v2/queues/q/messages/{id}?claim_id={}", claim["id"].as_str().unwrap());
    assert_eq!(claimed["href"], json!(href));
    assert_eq!(service.client.get("/v2/queues/q/messages/nonsense").unwrap().status, 404);
}

#[test]
fn deleting_a_free_message_follows_zaqars_table() {
    let service = service();
    let ids = ids(&service.client.post_messages("q", &[json!(1), json!(2)]).unwrap().json());
    let live = service.client.claim("q", 1, 60).unwrap().json()["id"].as_str().unwrap().to_owned();
    let unknown = "7f1f5f2e-31a4-4c4f-9d3b-0e6b4c1d2e3f";
    for claim in [live.as_str(), unknown, "junk"] {
        let refused = service.client.delete_message("q", &ids[1], Some(claim)).unwrap();
        assert_eq!(refused.status, 400, "{claim}");
        let text = refused.json();
        assert_eq!(text["title"], json!("Unable to delete"));
        assert!(text["description"].as_str().unwrap().contains("not currently claimed"), "{text}");
    }
    assert_eq!(service.client.delete_message("q", &ids[1], None).unwrap().status, 204);
    assert_eq!(service.client.get_message("q", &ids[1]).unwrap().status, 404);
}

#[test]
fn deleting_a_claimed_message_takes_its_claim() {
    let service = service();
    let ids = ids(&service.client.post_messages("q", &[json!(1), json!(2)]).unwrap().json());
    let claim = || service.client.claim("q", 1, 60).unwrap().json()["id"].as_str().unwrap().to_owned();
    let (ours, other) = (claim(), claim());
    let status =
        |claim: Option<&str>| service.client.delete_message("q", &ids[0], claim).unwrap().status.as_u16();
    assert_eq!(status(None), 403);
    assert_eq!(status(Some(&other)), 403);
    assert_eq!(status(Some("7f1f5f2e-31a4-4c4f-9d3b-0e6b4c1d2e3f")), 400);
    assert_eq!(status(Some("junk")), 400);
    assert_eq!(status(Some(&ours)), 204);
    // It is gone, so the same request reports it again.
    assert_eq!(status(Some(&ours)), 204);
    assert_eq!(service.client.stats("q").unwrap().json()["messages"]["total"], json!(1));
}

#[test]
fn deleting_missing_message_succeeds() {
    let service = service();
    service.client.create_queue("q").unwrap();
    for (id, claim) in [
        ("01a1fc0b-7a70-73e1-a5b6-7f7b06722333", None),
        ("01a1fc0b-7a70-73e1-a5b6-7f7b06722333", Some("7f1f5f2e-31a4-4c4f-9d3b-0e6b4c1d2e3f")),
        ("01a1fc0b-7a70-73e1-a5b6-7f7b06722333", Some("junk")),
        ("nonsense", None),
    ] {
        assert_eq!(service.client.delete_message("q", id, claim).unwrap().status, 204, "{id} {claim:?}");
    }
}

/// Posts a body as it is.
fn raw_post(service: &Service, text: &str) -> (u16, String) {
    let path = "/v2/queues/q/messages";
    let answer = service.client.send_text(Method::POST, path, text.as_bytes()).unwrap();
    (answer.status.as_u16(), String::from_utf8(answer.body).unwrap())
}

//! What clients may ask for, set to other values than the defaults: each is obeyed at its edges, and shown where it shows.

use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::client::{Answer, Client};
use crate::support::server::{Server, ServerBuilder};

/// A service with these settings on a directory of its own.
fn service(settings: &[&str]) -> (Client, Server, TempDir) {
    let data = tempfile::tempdir().unwrap();
    let builder = ServerBuilder::new(data.path());
    let server = settings.iter().fold(builder, |builder, setting| builder.arg(*setting)).start();
    (server.client(), server, data)
}

#[track_caller]
fn assert_status(answer: &Answer, wanted: u16) {
    assert_eq!(answer.status.as_u16(), wanted, "{}", answer.text());
}

/// A refusal that names the field.
#[track_caller]
fn assert_refused(answer: &Answer, field: &str) {
    assert_status(answer, 400);
    let said = answer.json()["description"].as_str().unwrap_or_default().to_owned();
    assert!(said.starts_with(field), "{said}");
}

/// What answers as it should to the least and the most of `field`, and to one less and one more.
#[track_caller]
fn assert_edges(field: &str, (least, most): (i64, i64), ask: impl Fn(i64) -> Answer) {
    for within in [least, most] {
        let answer = ask(within);
        assert!(answer.status.is_success(), "{field} {within}: {}", answer.text());
    }
    for beyond in [least - 1, most + 1] {
        assert_refused(&ask(beyond), field);
    }
}

fn post(client: &Client, queue: &str, message: &Value) -> Answer {
    client.post(&format!("/v2/queues/{queue}/messages"), &json!({"messages": [message]})).unwrap()
}

#[test]
fn pages_have_configured_limits() {
    let (client, _server, _data) = service(&[
        "--max-queues-per-page=30",
        "--max-messages-per-page=31",
        "--max-pools-per-page=3",
        "--max-flavors-per-page=500",
        "--default-per-page=2",
    ]);
    let admin = client.clone().with_header("X-Roles", "admin");
    for (path, most) in
        [("/v2/queues", 30), ("/v2/queues/q0/messages", 31), ("/v2/pools", 3), ("/v2/flavors", 500)]
    {
        assert_edges("limit", (1, most), |limit| admin.get(&format!("{path}?limit={limit}")).unwrap());
    }
    for queue in ["q0", "q1", "q2"] {
        assert_status(&client.post_messages(queue, &[json!(1), json!(2), json!(3)]).unwrap(), 201);
    }
    assert_eq!(client.get("/v2/queues").unwrap().json()["queues"].as_array().unwrap().len(), 2);
    assert_eq!(client.get("/v2/queues/q0/messages").unwrap().json()["messages"].as_array().unwrap().len(), 2);
}

#[test]
fn one_request_names_as_many_ids_as_a_page_has_messages() {
    let (client, _server, _data) = service(&["--max-messages-per-page=31"]);
    let ids = |count: i64| {
        let id = "00000000-0000-0000-0000-000000000001";
        client.delete(&format!("/v2/queues/q/messages?ids={}", vec![id; count as usize].join(","))).unwrap()
    };
    assert_status(&ids(31), 204);
    assert_refused(&ids(32), "ids");
}

#[test]
fn claims_and_pops_have_configured_limits() {
    let settings = ["--max-messages-per-claim-or-pop=500", "--default-messages-per-claim=25"];
    let (client, _server, _data) = service(&settings);
    let bodies: Vec<Value> = (0..1_100).map(Value::from).collect();
    assert_status(&client.post_messages("q", &bodies).unwrap(), 201);
    let claimed = |answer: Answer| answer.granted().unwrap().messages.len();
    assert_eq!(claimed(client.post("/v2/queues/q/claims", &json!({})).unwrap()), 25);
    assert_eq!(claimed(client.claim("q", 500, 60).unwrap()), 500);
    assert_refused(&client.claim("q", 501, 60).unwrap(), "limit");
    let popped = client.delete("/v2/queues/q/messages?pop=500").unwrap();
    assert_eq!(popped.json()["messages"].as_array().unwrap().len(), 500);
    assert_refused(&client.delete("/v2/queues/q/messages?pop=501").unwrap(), "pop");
}

#[test]
fn message_times_have_configured_limits() {
    let (client, _server, _data) = service(&[
        "--min-message-ttl=1",
        "--default-message-ttl=5",
        "--max-message-ttl=31622400",
        "--max-message-delay=1000",
    ]);
    assert_edges("messages[0].ttl", (1, 31_622_400), |ttl| {
        post(&client, "q", &json!({"body": 1, "ttl": ttl}))
    });
    let delayed = |delay| post(&client, "q", &json!({"body": 1, "delay": delay}));
    assert_edges("messages[0].delay", (0, 1_000), delayed);
    let created = |key: &'static str| {
        let client = client.clone();
        move |value: i64| client.put(&format!("/v2/queues/{key}{value}"), Some(&json!({key: value}))).unwrap()
    };
    for key in ["_default_message_ttl", "_dead_letter_queue_messages_ttl"] {
        assert_edges(key, (1, 31_622_400), created(key));
    }
    assert_edges("_default_message_delay", (0, 1_000), created("_default_message_delay"));
    assert_status(&post(&client, "fresh", &json!({"body": 1})), 201);
    let listed = client.get("/v2/queues/fresh/messages").unwrap().json();
    assert_eq!(listed["messages"][0]["ttl"], 5);
}

#[test]
fn service_delay_applies_where_none_is_named() {
    let (client, _server, _data) = service(&["--default-message-delay=900"]);
    assert_status(
        &client.put("/v2/queues/at-once", Some(&json!({"_default_message_delay": 0}))).unwrap(),
        201,
    );
    for (queue, message, is_there) in [
        ("q", json!({"body": 1}), false),
        ("q2", json!({"body": 1, "delay": 0}), true),
        ("at-once", json!({"body": 1}), true),
    ] {
        assert_status(&post(&client, queue, &message), 201);
        assert_eq!(client.claim(queue, 1, 60).unwrap().granted().is_some(), is_there, "{queue}");
    }
    assert_eq!(client.get("/v2/queues/q").unwrap().json()["_default_message_delay"], 900);
    assert_eq!(client.get("/v2/queues/at-once").unwrap().json()["_default_message_delay"], 0);
}

#[test]
fn claim_times_have_configured_limits() {
    let (client, _server, _data) = service(&[
        "--min-claim-ttl=10",
        "--default-claim-ttl=20",
        "--max-claim-ttl=30",
        "--min-claim-grace=0",
        "--default-claim-grace=0",
        "--max-claim-grace=90000",
    ]);
    let bodies: Vec<Value> = (0..20).map(Value::from).collect();
    assert_status(&client.post_messages("q", &bodies).unwrap(), 201);
    let claim = |body: Value| client.post("/v2/queues/q/claims?limit=1", &body).unwrap();
    assert_edges("ttl", (10, 30), |ttl| claim(json!({"ttl": ttl})));
    assert_edges("grace", (0, 90_000), |grace| claim(json!({"grace": grace})));
    let claimed = claim(json!({})).granted().unwrap();
    let path = format!("/v2/queues/q/claims/{}", claimed.id);
    assert_eq!(client.get(&path).unwrap().json()["ttl"], 20);
    assert_edges("ttl", (10, 30), |ttl| client.patch(&path, &json!({"ttl": ttl})).unwrap());
    assert_edges("grace", (0, 90_000), |grace| client.patch(&path, &json!({"grace": grace})).unwrap());
    // A message that outlives its claim by no grace keeps its life.
    assert_eq!(client.get_message("q", &claimed.messages[0].id).unwrap().json()["ttl"], 3_600);
}

/// JSON of exactly so many bytes, with room for padding between `before` and `after`.
fn padded(before: &str, after: &str, bytes: usize) -> Vec<u8> {
    format!("{before}{}{after}", "x".repeat(bytes - before.len() - after.len())).into_bytes()
}

#[test]
fn bodies_have_configured_limits() {
    // Both above the defaults: a message of four mebibytes leaves all the way, and so does metadata near the tree's
    // bound.
    let (most, metadata) = (4 << 20, 122_880);
    let settings = ["--max-messages-post-size=4194304", "--max-queue-metadata=122880"];
    let (client, _server, _data) = service(&settings);
    let send = |bytes: usize| client.post_messages("q", &[json!("x".repeat(bytes - 2))]).unwrap();
    let wide = json!({"_max_messages_post_size": most});
    assert_status(&client.put("/v2/queues/q", Some(&wide)).unwrap(), 201);
    assert_status(&send(most), 201);
    let claimed = client.claim("q", 1, 60).unwrap().granted().unwrap();
    assert_eq!(claimed.messages[0].body.as_str().unwrap().len(), most - 2);
    let too_long =
        "messages[0].body: a message of this queue has at most 4194304 bytes, and this one has 4194305";
    assert_refused(&send(most + 1), too_long);
    assert_eq!(client.get("/v2/queues/q").unwrap().json()["_max_messages_post_size"], 4_194_304);

    let create = |name: &str, bytes| {
        let body = padded(r#"{"a":""#, r#""}"#, bytes);
        client.send_text(Method::PUT, &format!("/v2/queues/{name}"), &body).unwrap()
    };
    assert_status(&create("great", metadata), 201);
    assert_eq!(client.get("/v2/queues/great").unwrap().json()["a"].as_str().unwrap().len(), metadata - 8);
    assert_refused(&create("greater", metadata + 1), "the request body is too large: at most 122880 bytes");
    let key = "_max_messages_post_size";
    assert_edges(key, (1, 4_194_304), |size| {
        client.put(&format!("/v2/queues/size{size}"), Some(&json!({key: size}))).unwrap()
    });
}

#[test]
fn smaller_bodies_are_refused_where_the_limit_is_smaller() {
    let settings = ["--max-messages-post-size=100", "--max-queue-metadata=50"];
    let (client, _server, _data) = service(&settings);
    let send = |bytes: usize| client.post_messages("q", &[json!("x".repeat(bytes - 2))]).unwrap();
    assert_status(&send(100), 201);
    assert_refused(
        &send(101),
        "messages[0].body: a message of this queue has at most 100 bytes, and this one has 101",
    );
    assert_eq!(client.get("/v2/queues/q").unwrap().json()["_max_messages_post_size"], 100);
    let change = |bytes: usize| {
        // What a patch makes of the metadata is bounded too, beside the patch itself.
        let value = "x".repeat(bytes - r#"{"a":""}"#.len());
        let patch = json!([{"op": "add", "path": "/metadata/a", "value": value}]).to_string();
        let media_type = "application/openstack-messaging-v2.0-json-patch";
        client.send_as(Method::PATCH, "/v2/queues/q", media_type, patch.as_bytes()).unwrap()
    };
    assert_refused(&change(49), "the request body is too large: at most 50 bytes");
}

#[test]
fn queue_keeps_values_set_under_wider_limits() {
    let data = tempfile::tempdir().unwrap();
    let wide = ServerBuilder::new(data.path()).start();
    let metadata = json!({"_default_message_ttl": 1_000_000, "_max_messages_post_size": 200_000});
    assert_status(&wide.client().put("/v2/queues/q", Some(&metadata)).unwrap(), 201);
    assert!(wide.terminate().success());
    let narrow = ServerBuilder::new(data.path());
    let narrow = narrow.arg("--max-message-ttl=3600").arg("--max-messages-post-size=1000").start();
    let client = narrow.client();
    assert_status(&post(&client, "q", &json!({"body": 1})), 201);
    let listed = client.get("/v2/queues/q/messages").unwrap().json();
    assert_eq!(listed["messages"][0]["ttl"], 1_000_000);
    assert_eq!(client.get("/v2/queues/q").unwrap().json()["_max_messages_post_size"], 1_000);
    assert_status(&post(&client, "q", &json!({"body": "x".repeat(1_000)})), 400);
}

#[test]
fn a_default_outside_its_bounds_stops_the_start_and_is_named() {
    let data = tempfile::tempdir().unwrap();
    let said = ServerBuilder::new(data.path()).arg("--max-claim-ttl=100").start_refused();
    assert!(said.contains("--default-claim-ttl 300") && said.contains("--max-claim-ttl 100"), "{said}");
}

//! Explanations of queues and messages over HTTP: the sentence, the fields, and what they must not show.

use http::Method;
use serde_json::{Value, json};

use super::{Service, service};
use crate::support::server::{Server, ServerBuilder};

const EXPLAIN: &str = "/v2/queues/q/explain";

impl Service {
    /// The explanation of the queue `q`.
    fn explained(&self) -> Value {
        let answer = self.client.get(EXPLAIN).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    fn message_explained(&self, id: &str) -> Value {
        let answer = self.client.get(&format!("/v2/queues/q/messages/{id}/explain")).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    /// Posts one message, and returns its id.
    fn post_one(&self, message: Value) -> String {
        let posted = self.client.post("/v2/queues/q/messages", &json!({"messages": [message]})).unwrap();
        posted.posted_ids().remove(0)
    }

    /// Claims one message under a name, and returns the id of the claim.
    fn claim_as(&self, by: &str) -> String {
        let terms = json!({"ttl": 300, "grace": 60, "by": by});
        let claim = self.client.post("/v2/queues/q/claims?limit=1", &terms).unwrap();
        claim.granted().expect("a message is ready").id
    }
}

fn sentence(explained: &Value) -> &str {
    explained["says"].as_str().expect("it has a sentence")
}

#[test]
fn empty_queue_is_explained_in_all_fields() {
    let service = service();
    service.client.create_queue("q").unwrap();
    let mut explained = service.explained();
    let owner = explained.as_object_mut().unwrap().remove("owner").unwrap();
    assert_eq!(owner.as_str().map(str::len), Some(36));
    assert_eq!(
        explained,
        json!({
            "says": "The queue is empty: a claim gets nothing until a message is posted.",
            "ready": 0,
            "delayed": {"messages": 0},
            "claimed": {"messages": 0, "claims": 0, "by": []},
            "in_transfer": {"messages": 0, "to": []},
            "kept": 0,
            "groups_blocked": 0,
            "noisy_groups": {"count": 0, "names": []},
            "limit_reached": [],
            "expired_unremoved": 0,
            "held_groups": [],
            "waiting_claims": 0,
            "pool": {"name": "default", "up": true, "writable": true, "class": "sync"},
            "session": "connected"
        })
    );
}

#[test]
fn claimed_and_delayed_messages_are_explained() {
    let service = service();
    let claimed = service.post_one(json!({"body": 1}));
    let claim = service.claim_as("worker 7");
    let delayed = service.post_one(json!({"body": 2, "delay": 600}));
    let explained = service.explained();
    let said = sentence(&explained);
    assert!(
        said.starts_with("A claim gets nothing now: 1 message is claimed by \"worker 7\" until 20"),
        "{said}"
    );
    assert!(said.contains("; 1 message is delayed until 20"), "{said}");
    assert_eq!(
        (&explained["claimed"]["claims"], &explained["claimed"]["by"]),
        (&json!(1), &json!(["worker 7"]))
    );
    let left = explained["claimed"]["next_expires_in"].as_u64().unwrap();
    assert!((200..=300).contains(&left), "{explained}");
    let due = explained["delayed"]["next_due_in"].as_u64().unwrap();
    assert!((500..=600).contains(&due), "{explained}");
    let of_claimed = service.message_explained(&claimed);
    assert_eq!((&of_claimed["state"], &of_claimed["claim"]["by"]), (&json!("claimed"), &json!("worker 7")));
    assert_eq!(of_claimed["attempts"], json!(1));
    assert!(of_claimed["since"].as_str().is_some_and(|since| since.ends_with('Z')), "{of_claimed}");
    let of_delayed = service.message_explained(&delayed);
    assert_eq!(of_delayed["state"], json!("delayed"));
    assert!(of_delayed["ready_in"].as_u64().is_some_and(|left| left > 500), "{of_delayed}");
    for shown in [&explained, &of_claimed, &of_delayed] {
        assert!(!shown.to_string().contains(&claim), "a reader must not become able to delete: {shown}");
    }
}

#[test]
fn parked_message_has_no_date() {
    let service = service();
    let id = service.post_one(json!({"body": 1}));
    let path = format!("/v2/queues/q/messages/{id}/requeue");
    assert_eq!(service.client.post(&path, &json!({"not_before": "never"})).unwrap().status, 204);
    let peeked = service.client.get("/v2/queues/q/peek?state=delayed").unwrap().json()["messages"][0].take();
    assert_eq!((&peeked["id"], peeked.get("ready_in")), (&json!(id), None), "{peeked}");
    assert_eq!(
        (peeked["details"].get("delay"), peeked["details"].get("not_before")),
        (None, None),
        "{peeked}"
    );
    assert_eq!(service.explained()["delayed"], json!({"messages": 1}));
    let explained = service.message_explained(&id);
    assert_eq!((explained.get("ready_in"), explained.get("not_before")), (None, None), "{explained}");
    let due = service.post_one(json!({"body": 2, "delay": 600}));
    assert!(service.explained()["delayed"]["next_due_in"].as_u64().is_some_and(|left| left > 500));
    assert!(service.message_explained(&due)["not_before"].is_string());
}

#[test]
fn message_behind_a_claimed_one_names_it() {
    let service = service();
    service.client.put("/v2/queues/q", Some(&json!({"_fifo": true}))).unwrap();
    let first = service.post_one(json!({"body": 1, "group": "a"}));
    let second = service.post_one(json!({"body": 2, "group": "a"}));
    service.claim_as("worker");
    let explained = service.message_explained(&second);
    assert_eq!((&explained["state"], &explained["group"]), (&json!("ready"), &json!("a")));
    assert_eq!(explained["behind"], json!({"id": first, "state": "claimed"}));
    let explained = service.explained();
    assert_eq!((&explained["ready"], &explained["groups_blocked"]), (&json!(1), &json!(1)));
    assert!(sentence(&explained).contains("1 message is ready, but waits: in 1 group"), "{explained}");
}

#[test]
fn explanation_between_requests_changes_no_count() {
    let service = service();
    let id = service.post_one(json!({"body": 1}));
    for _ in 0..20 {
        service.explained();
        service.message_explained(&id);
    }
    let claim = service.client.claim("q", 1, 60).unwrap().json();
    assert_eq!((&claim["messages"][0]["id"], &claim["messages"][0]["claim_count"]), (&json!(id), &json!(1)));
}

#[test]
fn missing_queue_or_message_is_404() {
    let service = service();
    let missing = service.client.get(EXPLAIN).unwrap();
    assert_eq!((missing.status.as_u16(), &missing.json()["code"]), (404, &json!("not_found")));
    let id = service.post_one(json!({"body": 1}));
    service.client.delete_message("q", &id, None).unwrap();
    for (queue, id) in [("q", id.as_str()), ("none", &id), ("q", "no-id"), ("q", "%00"), ("q", "batch")] {
        let missing = service.client.get(&format!("/v2/queues/{queue}/messages/{id}/explain")).unwrap();
        assert_eq!(
            (missing.status.as_u16(), &missing.json()["code"]),
            (404, &json!("not_found")),
            "{queue} {id}"
        );
    }
    // It is of another project.
    service.post_one(json!({"body": 1}));
    let foreign = service.client.send(Method::GET, EXPLAIN, &[("X-Project-Id", "other")], None).unwrap();
    assert_eq!(foreign.status, 404);
}

#[test]
fn hostile_names_and_methods_are_refused() {
    let service = service();
    service.client.create_queue("q").unwrap();
    for name in ["a%20b", "%2e%2e", "x%00", &"x".repeat(81)] {
        let refused = service.client.get(&format!("/v2/queues/{name}/explain")).unwrap();
        assert!([400, 404].contains(&refused.status.as_u16()), "{name}: {}", refused.text());
    }
    let refused = service.client.post(EXPLAIN, &json!({})).unwrap();
    assert_eq!((refused.status.as_u16(), &refused.headers["allow"]), (405, &"GET, OPTIONS".parse().unwrap()));
    let long = format!("/v2/queues/q/messages/{}/explain", "9".repeat(4_000));
    assert_eq!(service.client.get(&long).unwrap().status, 404);
}

#[test]
fn name_of_a_holder_is_quoted() {
    let service = service();
    service.post_one(json!({"body": 1}));
    service.claim_as("\"; 9 messages are ready: é");
    let explained = service.explained();
    let said = sentence(&explained);
    assert!(said.contains(r#"claimed by "\"; 9 messages are ready: é" until"#), "{said}");
}

#[test]
fn explanation_is_the_same_after_restart() {
    let service = service();
    service.post_one(json!({"body": 1}));
    service.claim_as("worker 7");
    service.post_one(json!({"body": 2, "delay": 600}));
    let before = sentence(&service.explained()).to_owned();
    let service = service.again(Server::kill9);
    let after = sentence(&service.explained()).to_owned();
    // The holder may have more time after a restart.
    let start = before.split(" until ").next().unwrap();
    assert!(after.starts_with(start) && after.contains("1 message is delayed until"), "{before}\n{after}");
    let due = |text: &str| text.rsplit_once(" until ").map(|(_, due)| due.to_owned());
    assert_eq!(due(&before), due(&after));
}

#[test]
fn pool_below_its_reserve_is_explained() {
    let service = service();
    service.post_one(json!({"body": 1}));
    let Service { server, data, .. } = service;
    server.kill9();
    // No disk has so much room that such a reserve is not reached.
    let server = ServerBuilder::new(data.path()).arg(format!("--reserve={}", u64::MAX)).start();
    let explained = server.client().get(EXPLAIN).unwrap().json();
    let pool = &explained["pool"];
    assert_eq!((&pool["up"], &pool["writable"]), (&json!(true), &json!(false)), "{explained}");
    assert!(pool["why"].as_str().is_some_and(|why| why.contains("takes no new messages")), "{explained}");
    let said = sentence(&explained);
    assert!(said.contains("; posts are refused, because pool default takes no new messages"), "{said}");
}

#[test]
fn bound_of_sqs_is_explained_as_it_is_set() {
    let data = tempfile::tempdir().unwrap();
    let server = ServerBuilder::new(data.path()).arg("--sqs-in-flight").arg("2").start();
    let client = server.client();
    client.post_messages("q", &[json!(1), json!(2)]).unwrap();
    client.claim("q", 1, 60).unwrap().granted().unwrap();
    assert_eq!(client.get(EXPLAIN).unwrap().json()["limit_reached"], json!([]));
    client.claim("q", 1, 60).unwrap().granted().unwrap();
    let explained = client.get(EXPLAIN).unwrap().json();
    assert_eq!(explained["limit_reached"], json!([{"what": "messages in flight", "bound": 2}]));
    assert!(sentence(&explained).contains("receives of SQS get nothing"), "{explained}");
}

//! Outcomes over HTTP: the holder of a claim settles its messages, and clients follow them.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};

use angarium_testbed::held::wait_until;

use super::service;
use crate::support::client::{Answer, Claim, Client};

const DETAILS: [(&str, &str); 1] = [("X-Message-Details", "true")];
const NO_ID: &str = "7f1f5f2e-31a4-4c4f-9d3b-0e6b4c1d2e3f";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Posts one message and returns its id.
fn post(client: &Client, message: &Value) -> String {
    let answer = client.post("/v2/queues/q/messages", &json!({"messages": [message]})).unwrap();
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.posted_ids().remove(0)
}

/// Claims all messages of `q`, as the worker.
fn claim(client: &Client) -> Claim {
    let terms = json!({"ttl": 60, "by": "worker-1"});
    client.post("/v2/queues/q/claims?limit=20", &terms).unwrap().granted().expect("there is a message")
}

/// Posts one message and claims it.
fn claimed(client: &Client, message: &Value) -> (String, String) {
    (post(client, message), claim(client).id)
}

fn settle_all(client: &Client, claim: &str, entries: &Value) -> Answer {
    client.post(&format!("/v2/queues/q/claims/{claim}/settle"), &json!({"messages": entries})).unwrap()
}

/// Settles one message, and returns its result.
fn settle(client: &Client, claim: &str, entry: &Value) -> Value {
    let answer = settle_all(client, claim, &json!([entry]));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["results"][0].clone()
}

/// Settles one message, which is accepted.
#[track_caller]
fn settled(client: &Client, claim: &str, entry: &Value) -> Value {
    let result = settle(client, claim, entry);
    assert_eq!(result["status"], 200, "{result}");
    result
}

fn path(id: &str) -> String {
    format!("/v2/queues/q/messages/{id}")
}

fn detailed(client: &Client, path: &str) -> Value {
    let answer = client.send(Method::GET, path, &DETAILS, None).unwrap();
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

fn exists(client: &Client, queue: &str) -> bool {
    client.get(&format!("/v2/queues/{queue}")).unwrap().headers["x-queue-exists"] == "true"
}

fn requeue(client: &Client, id: &str, body: &Value) -> u16 {
    client.post(&format!("{}/requeue", path(id)), body).unwrap().status.as_u16()
}

#[test]
fn done_message_is_removed() {
    let service = service();
    let client = &service.client;
    let (id, claim) = claimed(client, &json!({"body": 1}));
    let result = settle(client, &claim, &json!({"id": id, "done": {}}));
    assert_eq!(result, json!({"id": id, "status": 200, "state": "done"}));
    for query in ["", "?wait=0", "?wait=1"] {
        assert_eq!(client.get(&format!("{}{query}", path(&id))).unwrap().status, 404, "{query}");
    }
    assert_eq!(client.stats("q").unwrap().json()["messages"]["total"], 0);
}

#[test]
fn done_message_is_kept_with_its_result() {
    let service = service();
    let client = &service.client;
    let (id, claim) = claimed(client, &json!({"body": 1, "keep": 600, "tags": ["a", "b"]}));
    let entry = json!({"id": id, "done": {"result": {"pages": 12}}, "meta": {"node": 7}});
    assert_eq!(settled(client, &claim, &entry)["state"], "done");
    assert_eq!(client.get(&path(&id)).unwrap().status, 404, "strict clients see none of it");
    let waited = client.get(&format!("{}?wait=20", path(&id))).unwrap().json();
    let outcome = &waited["outcome"];
    assert_eq!((&waited["state"], &outcome["state"]), (&json!("done"), &json!("done")));
    assert_eq!((&outcome["result"], &outcome["by"]), (&json!({"pages": 12}), &json!("worker-1")));
    assert_eq!((&outcome["attempts"], outcome.get("reason")), (&json!(1), None));
    assert!(outcome["at"].as_str().unwrap().ends_with('Z'), "{outcome}");
    assert_eq!(waited.get("details"), None);
    let message = detailed(client, &path(&id));
    assert_eq!((&message["outcome"], &message["details"]["outcome"]), (outcome, outcome));
    let details = &message["details"];
    assert_eq!((&details["state"], &details["keep"]), (&json!("done"), &json!(600)));
    assert_eq!((&details["tags"], &details["meta"]), (&json!(["a", "b"]), &json!({"node": 7})));
    assert_eq!(client.claim("q", 1, 60).unwrap().status, 204);
    assert_eq!(client.delete(&path(&id)).unwrap().status, 204);
    assert_eq!(client.get(&format!("{}?wait=0", path(&id))).unwrap().status, 404);
}

#[test]
fn result_has_64_kibibytes_at_most() {
    let service = service();
    let client = &service.client;
    let (id, claim) = claimed(client, &json!({"body": 1, "keep": 600}));
    // With its quotes.
    let result = "r".repeat(65_534);
    let entries = json!([{"id": id, "done": {"result": format!("{result}+")}}]);
    let refused = settle_all(client, &claim, &entries);
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(refused.text().contains("messages[0].done.result"), "{}", refused.text());
    settled(client, &claim, &json!({"id": id, "done": {"result": result}}));
    let outcome = client.get(&format!("{}?wait=20", path(&id))).unwrap().json()["outcome"].clone();
    assert_eq!(outcome["result"], json!(result));
}

#[test]
fn result_of_a_message_not_kept_is_refused() {
    let service = service();
    let client = &service.client;
    let (id, claim) = claimed(client, &json!({"body": 1}));
    let forward = json!([{"queue": "next", "body": 2}]);
    let result = settle(client, &claim, &json!({"id": id, "done": {"result": 1}, "forward": forward}));
    assert_eq!((&result["status"], &result["error"]["code"]), (&json!(400), &json!("invalid")));
    assert!(!exists(client, "next"), "nothing was forwarded");
    settled(client, &claim, &json!({"id": id, "done": {}}));
}

#[test]
fn keep_of_the_queue_holds_for_posts_without_one() {
    let service = service();
    let client = &service.client;
    let refused = client.put("/v2/queues/q", Some(&json!({"_keep": 1_209_601}))).unwrap();
    assert!(refused.status == 400 && refused.text().contains("_keep"), "{}", refused.text());
    client.put("/v2/queues/q", Some(&json!({"_keep": 600}))).unwrap();
    let ids = [post(client, &json!({"body": 1})), post(client, &json!({"body": 2, "keep": 0}))];
    let claim = claim(client).id;
    for (id, status) in ids.iter().zip([200, 404]) {
        settled(client, &claim, &json!({"id": id, "done": {}}));
        assert_eq!(client.get(&format!("{}?wait=0", path(id))).unwrap().status.as_u16(), status);
    }
}

#[test]
fn failed_message_returns_with_its_reason() {
    let service = service();
    let client = &service.client;
    client.put("/v2/queues/q", Some(&json!({"_backoff": {"first": 600, "jitter": 0.5}}))).unwrap();
    let (id, first) = claimed(client, &json!({"body": 1}));
    let entry = json!({"id": id, "fail": {"reason": "no space", "retry_in": 0}});
    assert_eq!(settled(client, &first, &entry)["state"], "ready");
    let again = client.send(Method::POST, "/v2/queues/q/claims", &DETAILS, None).unwrap().json();
    let (message, second) = (&again["messages"][0], again["id"].as_str().unwrap());
    assert_eq!((&message["id"], &message["claim_count"]), (&json!(id), &json!(2)));
    let event = &message["details"]["history"][0];
    assert_eq!((&event["what"], &event["reason"]), (&json!("failed"), &json!("no space")));
    assert_eq!((&event["by"], event["seconds"].is_u64()), (&json!("worker-1"), true));
    // Without a time it waits as its queue states.
    assert_eq!(settled(client, second, &json!({"id": id, "fail": {}}))["state"], "delayed");
    let delay = detailed(client, &path(&id))["details"]["delay"].as_u64().unwrap();
    assert!((500..=1_800).contains(&delay), "{delay}");
}

/// A failure without a retry.
fn failure(id: &str) -> Value {
    json!({"id": id, "fail": {"reason": "no such host", "retry": false}})
}

#[test]
fn message_failed_for_good_is_kept_with_its_reason() {
    let service = service();
    let client = &service.client;
    let (id, claim) = claimed(client, &json!({"body": 1}));
    assert_eq!(settled(client, &claim, &failure(&id))["state"], "failed");
    assert_eq!(client.claim("q", 1, 60).unwrap().status, 204);
    assert_eq!(client.get(&path(&id)).unwrap().status, 404);
    let outcome = &detailed(client, &path(&id))["outcome"];
    assert_eq!((&outcome["state"], &outcome["reason"]), (&json!("failed"), &json!("no such host")));
    assert_eq!(requeue(client, &id, &json!({})), 204);
    assert_eq!(client.claim("q", 1, 60).unwrap().status, 201);
}

#[test]
fn message_failed_for_good_is_a_dead_letter_with_its_reason() {
    let service = service();
    let client = &service.client;
    client.put("/v2/queues/q", Some(&json!({"_dead_letter_queue": "dead"}))).unwrap();
    let (id, claim) = claimed(client, &json!({"body": 2}));
    assert_eq!(settled(client, &claim, &failure(&id))["state"], "in_transfer");
    let dead = "/v2/queues/dead/messages";
    wait_until("the dead letter is there", || {
        client.get(dead).unwrap().json()["messages"].as_array().is_some_and(|messages| messages.len() == 1)
    });
    let listed = client.send(Method::GET, dead, &DETAILS, None).unwrap().json();
    let letter = &listed["messages"][0];
    assert_eq!(letter["body"], 2);
    assert_eq!(letter["details"]["history"][0]["reason"], "no such host");
}

#[test]
fn deferred_message_is_not_counted() {
    let service = service();
    let client = &service.client;
    let (id, first) = claimed(client, &json!({"body": 1}));
    assert_eq!(settled(client, &first, &json!({"id": id, "defer": {"delay": 0}}))["state"], "ready");
    let second = client.claim("q", 1, 60).unwrap().json();
    assert_eq!(second["messages"][0]["claim_count"], 1);
    let second = second["id"].as_str().unwrap();
    assert_eq!(settled(client, second, &json!({"id": id, "defer": {"delay": 600}}))["state"], "delayed");
    let details = &detailed(client, &path(&id))["details"];
    assert_eq!((&details["state"], &details["attempts"]), (&json!("delayed"), &json!(0)));
    let whats = details["history"].as_array().unwrap().iter().map(|event| event["what"].clone());
    assert_eq!(whats.collect::<Vec<_>>(), ["deferred", "deferred"]);
}

#[test]
fn moved_message_keeps_its_id_and_tags() {
    let service = service();
    let client = &service.client;
    let mut id = String::new();
    // On a busy machine the wait may begin behind the move, and finds nothing: then with another message.
    wait_until("a wait is answered by the move", || {
        let (moved, claim) = claimed(client, &json!({"body": {"n": 1}, "tags": ["t"]}));
        let wait = format!("{}?wait=20", path(&moved));
        let waited = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| client.get(&wait).unwrap());
            std::thread::sleep(Duration::from_millis(300));
            let result = settled(client, &claim, &json!({"id": moved, "move": {"queue": "next"}}));
            assert_eq!((&result["state"], result.get("ids")), (&json!("in_transfer"), None));
            waiting.join().unwrap()
        });
        assert_eq!(client.get(&wait).unwrap().status, 404, "it has left");
        let expected = json!({"id": moved, "state": "transferred", "to": "next"});
        assert!(waited.status == 404 || waited.json() == expected, "{}", waited.text());
        id = moved;
        waited.status != 404
    });
    let there = format!("/v2/queues/next/messages/{id}");
    wait_until("the message is there", || client.get(&there).unwrap().status == 200);
    let message = detailed(client, &there);
    assert_eq!((&message["body"], &message["state"]), (&json!({"n": 1}), &json!("ready")));
    let details = &message["details"];
    assert_eq!((&details["attempts"], &details["tags"]), (&json!(0), &json!(["t"])));
    assert_eq!(details["history"][0]["what"], "moved");
}

#[test]
fn forwarded_messages_appear_with_their_fields() {
    let service = service();
    let client = &service.client;
    let (id, claim) = claimed(client, &json!({"body": 1}));
    let forward = json!([
        {"queue": "next", "body": {"n": 2}, "ttl": 600, "group": "g", "tags": ["t"], "keep": 60},
        {"queue": "later", "body": 3, "delay": 900},
        {"queue": "q", "body": 4}
    ]);
    let body = json!({"messages": [{"id": id, "done": {}, "forward": forward}]});
    let settle = format!("/v2/queues/q/claims/{claim}/settle");
    let answer = client.send(Method::POST, &settle, &[("traceparent", PARENT)], Some(&body)).unwrap();
    let ids = answer.json()["results"][0]["ids"].as_array().unwrap().clone();
    assert_eq!(ids.len(), 3, "{}", answer.text());
    let text = |index: usize| ids[index].as_str().unwrap().to_owned();
    let paths = ["next", "later", "q"].map(|queue| format!("/v2/queues/{queue}/messages/"));
    for (index, path) in paths.iter().enumerate() {
        let path = format!("{path}{}", text(index));
        wait_until("the message is there", || client.get(&path).unwrap().status == 200);
    }
    let next = client.send(Method::GET, &format!("{}{}", paths[0], text(0)), &DETAILS, None).unwrap();
    assert_eq!(next.headers["traceparent"], PARENT);
    let next = next.json();
    assert_eq!((&next["body"], &next["ttl"]), (&json!({"n": 2}), &json!(600)));
    let details = &next["details"];
    assert_eq!((&details["group"], &details["tags"]), (&json!("g"), &json!(["t"])));
    assert_eq!((&details["keep"], &details["state"]), (&json!(60), &json!("ready")));
    let later = detailed(client, &format!("{}{}", paths[1], text(1)));
    assert_eq!((&later["body"], &later["state"]), (&json!(3), &json!("delayed")));
}

#[test]
fn repeated_settle_has_the_same_answer() {
    let service = service();
    let client = &service.client;
    let (id, claim) = claimed(client, &json!({"body": 1}));
    let entries = json!([{"id": id, "done": {}, "forward": [{"queue": "next", "body": 2}]}]);
    let first = settle_all(client, &claim, &entries).json();
    let forwarded = first["results"][0]["ids"][0].as_str().unwrap().to_owned();
    wait_until("it is forwarded", || client.get_message("next", &forwarded).unwrap().status == 200);
    for _ in 0..3 {
        assert_eq!(settle_all(client, &claim, &entries).json(), first);
    }
    assert_eq!(client.stats("next").unwrap().json()["messages"]["total"], 1);
}

#[test]
fn wrong_settle_does_nothing_and_names_the_field() {
    let service = service();
    let client = &service.client;
    let (id, claim) = claimed(client, &json!({"body": 1}));
    let good = json!({"id": id, "done": {}});
    for (entries, field) in [
        (json!([]), "messages"),
        (json!([good, {"id": NO_ID}]), "messages[1]"),
        (json!([good, {"id": NO_ID, "done": {}, "move": {"queue": "x"}}]), "messages[1]"),
        (json!([good, good]), "messages[1].id"),
        (json!([good, {"id": NO_ID, "done": []}]), "messages[1].done"),
        (json!([good, {"id": NO_ID, "fail": {"why": "x"}}]), "messages[1].fail.why"),
        (json!([good, {"id": NO_ID, "fail": {"retry": false, "retry_in": 1}}]), "messages[1].fail.retry_in"),
        (json!([good, {"id": NO_ID, "defer": {"delay": 43_201}}]), "messages[1].defer.delay"),
        (json!([good, {"id": NO_ID, "defer": {}}]), "messages[1].defer"),
        (
            json!([{"id": id, "done": {}, "forward": [{"queue": "a", "body": 1}, {"queue": "/", "body": 1}]}]),
            "messages[0].forward[1].queue",
        ),
        (
            json!([{"id": id, "done": {}, "forward": [{"queue": "a", "body": 1, "tag": []}]}]),
            "messages[0].forward[0].tag",
        ),
    ] {
        let refused = settle_all(client, &claim, &entries);
        assert_eq!(refused.status, 400, "{entries}");
        let said = refused.json()["description"].as_str().unwrap().to_owned();
        assert!(said.starts_with(&format!("{field}: ")) || said.contains("is missing"), "{entries}: {said}");
    }
    let many = json!(vec![good.clone(); 21]);
    assert_eq!(settle_all(client, &claim, &many).status, 400);
    settled(client, &claim, &good);
}

#[test]
fn entry_of_another_claim_is_404() {
    let service = service();
    let client = &service.client;
    let (id, claim) = claimed(client, &json!({"body": 1}));
    let free = post(client, &json!({"body": 2}));
    let entry = |id: &str| json!({"id": id, "done": {}, "forward": [{"queue": "next", "body": 1}]});
    let entries = json!([entry(&free), entry("nonsense"), entry(NO_ID), {"id": id, "done": {}}]);
    let statuses = |claim: &str, entries: &Value| {
        let answer = settle_all(client, claim, entries).json();
        let results = answer["results"].as_array().unwrap().clone();
        let mut pairs = results.iter().zip(entries.as_array().unwrap());
        assert!(pairs.all(|(result, entry)| result["id"] == entry["id"]));
        results.iter().map(|result| result["status"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    for no_claim in ["nonsense", NO_ID] {
        assert_eq!(statuses(no_claim, &entries), [404; 4], "{no_claim}");
    }
    assert_eq!(statuses(&claim, &entries), [404, 404, 404, 200]);
    let refused = settle(client, &claim, &entry(&free));
    assert_eq!(refused["error"]["code"], "not_found");
    assert!(!exists(client, "next"), "nothing was forwarded");
    let elsewhere = format!("/v2/queues/none/claims/{claim}/settle");
    let elsewhere = client.post(&elsewhere, &json!({"messages": [entry(&id)]})).unwrap().json();
    assert_eq!(elsewhere["results"][0]["status"], 404);
}

#[test]
fn waiting_get_is_answered_by_the_settle() {
    let service = service();
    let client = &service.client;
    let (id, claim) = claimed(client, &json!({"body": 1, "keep": 60}));
    for wrong in ["21", "-1", "x"] {
        assert_eq!(client.get(&format!("{}?wait={wrong}", path(&id))).unwrap().status, 400, "{wrong}");
    }
    let current = client.get(&format!("{}?wait=1", path(&id))).unwrap().json();
    assert_eq!((&current["state"], current.get("outcome")), (&json!("claimed"), None));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| client.get(&format!("{}?wait=20", path(&id))).unwrap().json());
        std::thread::sleep(Duration::from_millis(300));
        settled(client, &claim, &json!({"id": id, "done": {"result": null}}));
        let waited = waiting.join().unwrap();
        assert_eq!((&waited["state"], &waited["outcome"]["result"]), (&json!("done"), &Value::Null));
        assert!(waited["outcome"].as_object().unwrap().contains_key("result"), "{waited}");
    });
    assert!(begun.elapsed() < Duration::from_secs(15), "the settle ends the wait");
}

#[test]
fn requeued_message_is_available_again() {
    let service = service();
    let client = &service.client;
    let (id, claim) = claimed(client, &json!({"body": 1, "keep": 600}));
    assert_eq!(requeue(client, &id, &json!({})), 409, "it is claimed");
    settled(client, &claim, &json!({"id": id, "done": {}}));
    assert_eq!(requeue(client, &id, &json!({"delay": 900})), 204);
    assert_eq!(detailed(client, &path(&id))["state"], "delayed");
    assert_eq!(requeue(client, &id, &json!({"not_before": "never"})), 204);
    assert_eq!(client.claim("q", 1, 60).unwrap().status, 204);
    let empty = client.send(Method::POST, &format!("{}/requeue", path(&id)), &[], None).unwrap();
    assert_eq!(empty.status, 204);
    let again = client.claim("q", 1, 60).unwrap().json();
    assert_eq!((&again["messages"][0]["id"], &again["messages"][0]["claim_count"]), (&json!(id), &json!(1)));
    // The number of the old claim gives no right to the new one.
    let repeated = settle(client, &claim, &json!({"id": id, "fail": {}}));
    assert_eq!(repeated["status"], 200, "it repeats its answer");
    for (body, status) in [
        (json!({"delay": 901}), 400),
        (json!({"delay": 1, "not_before": "never"}), 400),
        (json!({"when": 1}), 400),
        (json!([]), 400),
    ] {
        assert_eq!(requeue(client, &id, &body), status, "{body}");
    }
    for id in [NO_ID, "nonsense"] {
        assert_eq!(requeue(client, id, &json!({})), 404, "{id}");
    }
}

#[test]
fn recalled_message_is_gone_for_its_holder() {
    let service = service();
    let client = &service.client;
    let ids = [1, 2, 3].map(|body| post(client, &json!({"body": body})));
    let claim = claim(client).id;
    let forced = |id: &str, force: &str| {
        client.delete(&format!("{}?force={force}", path(id))).unwrap().status.as_u16()
    };
    assert_eq!((forced(&ids[1], "perhaps"), forced(&ids[1], "false")), (400, 403));
    assert_eq!((forced(&ids[1], "true"), forced(NO_ID, "true"), forced("nonsense", "true")), (204, 204, 204));
    assert_eq!(client.get(&path(&ids[1])).unwrap().status, 404);
    let renewal = format!("/v2/queues/q/claims/{claim}");
    let renewed = client.send(Method::PATCH, &renewal, &DETAILS, Some(&json!({"ttl": 60}))).unwrap();
    assert_eq!(renewed.status, 200);
    assert_eq!(renewed.json(), json!({"ids": [ids[0], ids[2]]}));
    assert_eq!(client.patch(&renewal, &json!({"ttl": 60})).unwrap().status, 204);
    let refused = settle(client, &claim, &json!({"id": ids[1], "done": {}}));
    assert_eq!((&refused["status"], &refused["error"]["code"]), (&json!(404), &json!("gone")));
    let deleted = client.delete_message("q", &ids[1], Some(&claim)).unwrap();
    assert_eq!((deleted.status.as_u16(), &deleted.json()["code"]), (404, &json!("gone")));
    assert_eq!(client.delete_message("q", &ids[0], Some(&claim)).unwrap().status, 204);
}

#[test]
fn purge_removes_kept_messages_only_by_name() {
    let service = service();
    let client = &service.client;
    let (id, claim) = claimed(client, &json!({"body": 1, "keep": 600}));
    settled(client, &claim, &json!({"id": id, "done": {}}));
    let other = post(client, &json!({"body": 2}));
    let counts = client.stats("q").unwrap().json()["messages"].clone();
    assert_eq!((&counts["total"], &counts["kept"]), (&json!(1), &json!(1)));
    let purge = |body: Option<Value>| {
        client.send(Method::POST, "/v2/queues/q/purge", &[], body.as_ref()).unwrap().status.as_u16()
    };
    let is_kept = || client.get(&format!("{}?wait=0", path(&id))).unwrap().status == 200;
    assert_eq!((purge(None), is_kept()), (204, true));
    assert_eq!(client.get(&path(&other)).unwrap().status, 404);
    let other = post(client, &json!({"body": 3}));
    assert_eq!((purge(Some(json!({"resource_types": ["kept"]}))), is_kept()), (204, false));
    assert_eq!(client.get(&path(&other)).unwrap().status, 200);
}

#[test]
fn strict_answers_have_only_the_keys_of_zaqar() {
    let service = service();
    let client = &service.client;
    let id = post(client, &json!({"body": 1, "keep": 60, "tags": ["t"]}));
    let keys = |message: &Value| message.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let plain = ["age", "body", "href", "id", "ttl"];
    assert_eq!(keys(&client.get(&path(&id)).unwrap().json()), plain);
    assert_eq!(keys(&client.get("/v2/queues/q/messages").unwrap().json()["messages"][0]), plain);
    let claim = claim(client).id;
    let held = client.get(&format!("/v2/queues/q/claims/{claim}")).unwrap().json();
    assert_eq!(keys(&held["messages"][0]), ["age", "body", "claim_count", "href", "id", "ttl"]);
    settled(client, &claim, &json!({"id": id, "done": {"result": 1}}));
    assert_eq!(client.get("/v2/queues/q/messages").unwrap().json()["messages"], json!([]));
    let by_id = client.get(&format!("/v2/queues/q/messages?ids={id}&include_claimed=true")).unwrap();
    assert_eq!(by_id.status, 404);
}

#[test]
fn wrong_fields_of_posts_and_claims_are_named() {
    let service = service();
    let client = &service.client;
    for (message, field) in [
        (json!({"body": 1, "keep": -1}), "messages[0].keep"),
        (json!({"body": 1, "keep": 1_209_601}), "messages[0].keep"),
        (json!({"body": 1, "tags": vec!["t"; 9]}), "messages[0].tags"),
        (json!({"body": 1, "tags": [""]}), "messages[0].tags"),
        (json!({"body": 1, "tags": ["t".repeat(257)]}), "messages[0].tags"),
        (json!({"body": 1, "tags": "t"}), "messages[0].tags"),
    ] {
        let refused = client.post("/v2/queues/q/messages", &json!({"messages": [message]})).unwrap();
        assert_eq!(refused.status, 400, "{message}");
        assert!(refused.text().contains(field), "{message}: {}", refused.text());
    }
    for by in [json!(""), json!("x".repeat(81)), json!(1), json!(null), json!("a\nb")] {
        let refused = client.post("/v2/queues/q/claims", &json!({"by": by})).unwrap();
        assert!(refused.status == 400 && refused.text().contains("by"), "{by}: {}", refused.text());
    }
}

//! Peeks over HTTP: the form of an answer, the parameters, and a restart.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Service, service};
use crate::support::client::{Answer, Claim};
use crate::support::server::Server;

const PEEK: &str = "/v2/queues/q/peek";

fn post(service: &Service, messages: &Value) -> Vec<String> {
    let answer = service.client.post("/v2/queues/q/messages", &json!({"messages": messages})).unwrap();
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.posted_ids()
}

/// Claims up to so many messages as the worker.
fn claim(service: &Service, limit: usize) -> Claim {
    let path = format!("/v2/queues/q/claims?limit={limit}");
    let terms = json!({"ttl": 300, "by": "worker-1"});
    service.client.post(&path, &terms).unwrap().granted().expect("there is a message")
}

fn settle(service: &Service, claim: &Claim, entry: &Value) {
    let path = format!("/v2/queues/q/claims/{}/settle", claim.id);
    let settled = service.client.post(&path, &json!({"messages": [entry]})).unwrap().json();
    assert_eq!(settled["results"][0]["status"], 200, "{settled}");
}

fn peek(service: &Service, query: &str) -> Value {
    let answer = service.client.get(&format!("{PEEK}{query}")).unwrap();
    assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    answer.json()
}

fn column<'p>(page: &'p Value, key: &str) -> Vec<&'p Value> {
    page["messages"].as_array().unwrap().iter().map(|message| &message[key]).collect()
}

/// A queue with a message in each of five states, and the claim of the third.
fn in_five_states(service: &Service) -> (Vec<String>, Claim) {
    let mut ids = post(
        service,
        &json!([
            {"body": {"n": 1}, "keep": 600, "tags": ["eu"]},
            {"body": {"n": 2}, "keep": 600, "tags": ["us"]},
            {"body": {"n": 3}, "group": "g"},
        ]),
    );
    let claim = claim(service, 3);
    settle(service, &claim, &json!({"id": ids[1], "fail": {"reason": "no space", "retry": false}}));
    thread::sleep(Duration::from_millis(5));
    settle(service, &claim, &json!({"id": ids[0], "done": {"result": 7}}));
    ids.extend(post(service, &json!([{"body": {"n": 4}, "delay": 500}, {"body": {"n": 5}}])));
    (ids, claim)
}

#[test]
fn peek_shows_each_state_without_claim_ids() {
    let service = service();
    let (ids, claim) = in_five_states(&service);
    let answer = service.client.get(PEEK).unwrap();
    assert!(!answer.text().contains(&claim.id), "{}", answer.text());
    let page = answer.json();
    let keys: Vec<&String> = page.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["links", "looked_at", "messages"]);
    assert_eq!((&page["looked_at"], &page["links"]), (&json!(5), &json!([])));
    assert_eq!(column(&page, "state"), ["claimed", "delayed", "ready", "failed", "done"]);
    assert_eq!(column(&page, "id"), [&ids[2], &ids[3], &ids[4], &ids[1], &ids[0]]);
    assert_eq!(column(&page, "body"), [3, 4, 5, 2, 1].map(|n| json!({"n": n})).each_ref());
    let [claimed, delayed, ready, failed, done] = &page["messages"].as_array().unwrap()[..] else {
        panic!("{page}");
    };
    assert_eq!(claimed["claim"]["by"], "worker-1");
    assert!((290..=300).contains(&claimed["claim"]["expires_in"].as_u64().unwrap()), "{claimed}");
    assert_eq!((&claimed["details"]["attempts"], &claimed["details"]["group"]), (&json!(1), &json!("g")));
    assert!((490..=500).contains(&delayed["ready_in"].as_u64().unwrap()), "{delayed}");
    let keys: Vec<&String> = ready.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["age", "body", "body_bytes", "details", "id", "state", "ttl"]);
    assert_eq!((&ready["body_bytes"], &ready["ttl"]), (&json!(7), &json!(3_600)));
    assert_eq!(failed["details"]["outcome"]["reason"], "no space");
    assert_eq!(done["details"]["outcome"]["result"], 7);
}

#[test]
fn parameters_select_messages_and_are_in_the_link() {
    let service = service();
    let (ids, _) = in_five_states(&service);
    for (query, found) in [
        ("state=done,failed", vec![1, 0]),
        ("state=failed&state=ready", vec![4, 1]),
        ("tag=eu", vec![0]),
        ("group=g", vec![2]),
        ("by=worker-1", vec![2, 1, 0]),
        ("by=worker-2", vec![]),
        ("min_attempts=1&state=claimed", vec![2]),
        ("min_age=60", vec![]),
        ("max_age=60&tag=us", vec![1]),
        ("contains=%7B%22n%22%3A4", vec![3]),
        ("contains=N", vec![]),
        ("state=in_transfer", vec![]),
    ] {
        let page = peek(&service, &format!("?{query}"));
        let expected: Vec<&String> = found.into_iter().map(|index| &ids[index]).collect();
        assert_eq!(column(&page, "id"), expected, "{query}");
    }
    let mut query =
        "?state=claimed,done,failed&by=worker-1&min_age=0&contains=n&body=none&limit=1".to_owned();
    for id in [&ids[2], &ids[1], &ids[0]] {
        let page = peek(&service, &query);
        assert_eq!(column(&page, "id"), [id]);
        assert!(page["messages"][0].get("body").is_none(), "{page}");
        let Some(link) = page["links"][0]["href"].as_str() else { continue };
        query = link.strip_prefix(PEEK).expect("it is a path of the queue").to_owned();
        let carried =
            "?state=claimed%2Cdone%2Cfailed&by=worker-1&min_age=0&contains=n&body=none&limit=1&marker=";
        assert!(query.starts_with(carried), "{query}");
    }
    assert_eq!(peek(&service, &query)["links"], json!([]));
}

#[test]
fn long_body_is_shown_as_far_as_requested() {
    let service = service();
    let long = json!("ü".repeat(5_000));
    post(&service, &json!([{"body": 1}, {"body": long}]));
    let shown = |body: &str| peek(&service, &format!("?body={body}"))["messages"].take();
    let head = shown("head");
    assert_eq!((&head[0]["body"], &head[0].get("body_head")), (&json!(1), &None));
    assert_eq!((head[1].get("body"), &head[1]["body_bytes"]), (None, &json!(10_002)));
    // 4,096 bytes without half of a character.
    assert_eq!(head[1]["body_head"], json!(format!("\"{}", "ü".repeat(2_047))));
    let whole = shown("whole");
    assert_eq!((&whole[1]["body"], whole[1].get("body_head")), (&long, None));
    for message in shown("none").as_array().unwrap() {
        assert!(message.get("body").is_none() && message.get("body_head").is_none(), "{message}");
        assert!(message["body_bytes"].as_u64().unwrap() > 0);
    }
}

fn refused(answer: &Answer) -> (u16, String) {
    let body = answer.json();
    assert_eq!(body["code"], "invalid", "{body}");
    (answer.status.as_u16(), body["description"].as_str().unwrap().to_owned())
}

#[test]
fn wrong_parameters_of_a_peek_are_400_and_named() {
    let service = service();
    post(&service, &json!([{"body": 1}]));
    let long = format!("group={}", "x".repeat(129));
    let too_long = ["tag", "by", "contains"].map(|name| (format!("{name}={}", "/".repeat(1_025)), name));
    for (query, name) in [
        ("state=gone", "state"),
        ("state=ready,Done", "state"),
        ("state=", "state"),
        ("state=%2C+,", "state"),
        ("tag=a&state", "state"),
        ("stat=failed", "stat"),
        ("unknown=", "unknown"),
        ("body=all", "body"),
        ("limit=0", "limit"),
        ("limit=21", "limit"),
        ("limit=99999999999999999999", "limit"),
        ("min_age=-1", "min_age"),
        ("max_age=4294967296", "max_age"),
        ("min_attempts=two", "min_attempts"),
        (long.as_str(), "group"),
        ("group=a%20b", "group"),
        ("marker=nonsense", "marker"),
        ("marker=kept.1", "marker"),
        ("marker=kept.x.019ab1c2-5f07-7d3e-8a41-3c5d7e9f1b20", "marker"),
        ("marker=%00", "marker"),
        ("contains=%ff%fe", "contains"),
        ("tag=%c3", "tag"),
        ("by=%80", "by"),
    ]
    .into_iter()
    .chain(too_long.iter().map(|(query, name)| (query.as_str(), *name)))
    {
        for queue in ["q", "missing"] {
            let answer = service.client.get(&format!("/v2/queues/{queue}/peek?{query}")).unwrap();
            let (status, said) = refused(&answer);
            assert_eq!(status, 400, "{query}");
            assert!(said.starts_with(&format!("{name}:")), "{query}: {said}");
        }
    }
    // More than any query has.
    let answer = service.client.get(&format!("{PEEK}?contains={}", "x".repeat(20_000))).unwrap();
    assert_eq!(refused(&answer).0, 400);
    assert_eq!(peek(&service, "?contains=%00")["messages"], json!([]));
}

#[test]
fn marker_of_another_queue_shows_nothing_of_it() {
    let service = service();
    let ours = post(&service, &json!([{"body": 1}]));
    let theirs = service.client.post_messages("other", &[json!("theirs")]).unwrap().posted_ids();
    let later = post(&service, &json!([{"body": 2}]));
    assert_eq!(column(&peek(&service, &format!("?marker={}", theirs[0])), "id"), [&later[0]]);
    let kept = peek(&service, &format!("?marker=kept.0.{}", theirs[0]));
    assert_eq!((&kept["messages"], &kept["links"]), (&json!([]), &json!([])));
    let late = peek(&service, &format!("?marker=kept.999999999999999999.{}", ours[0]));
    assert_eq!((&late["messages"], &late["looked_at"]), (&json!([]), &json!(0)));
}

#[test]
fn absent_queue_has_no_messages_to_peek_at() {
    let service = service();
    assert_eq!(peek(&service, ""), json!({"messages": [], "looked_at": 0, "links": []}));
    assert_eq!(service.client.get("/v2/queues/q").unwrap().headers["x-queue-exists"], "false");
    assert_eq!(service.client.get("/v2/queues/wrong%20name/peek").unwrap().status, 400);
    assert_eq!(service.client.post(PEEK, &json!({})).unwrap().status, 405);
}

#[test]
fn peek_after_restart_is_the_same_and_counts_nothing() {
    let service = service();
    let (ids, claim) = in_five_states(&service);
    let before = peek(&service, "");
    let service = service.again(Server::kill9);
    for _ in 0..3 {
        let after = peek(&service, "?body=whole");
        for key in ["id", "state", "body", "body_bytes", "ttl"] {
            assert_eq!(column(&after, key), column(&before, key), "{key}");
        }
        assert_eq!(after["messages"][0]["claim"]["by"], "worker-1");
    }
    let stats = service.client.stats("q").unwrap().json()["messages"].take();
    assert_eq!((&stats["claimed"], &stats["ready"], &stats["delayed"]), (&json!(1), &json!(1), &json!(1)));
    let next = service.client.claim("q", 5, 60).unwrap().json()["messages"].take();
    assert_eq!((&next[0]["id"], &next[0]["claim_count"], next.get(1)), (&json!(ids[4]), &json!(1), None));
    assert_eq!(service.client.delete_message("q", &ids[2], Some(&claim.id)).unwrap().status, 204);
}

#[test]
fn page_over_backlog_is_empty_and_has_a_link() {
    let service = service();
    for _ in 0..42 {
        let bodies: Vec<Value> = (0..500).map(|_| json!("plain")).collect();
        assert_eq!(service.client.post_messages("q", &bodies).unwrap().status, 201);
    }
    let needle = post(&service, &json!([{"body": "needle"}]));
    let first = peek(&service, "?state=ready&contains=needle");
    assert_eq!((&first["messages"], &first["looked_at"]), (&json!([]), &json!(16_384)));
    let link = first["links"][0]["href"].as_str().expect("there is more");
    let second = service.client.get(link).unwrap().json();
    assert_eq!(column(&second, "id"), [&needle[0]]);
    assert_eq!((&second["looked_at"], &second["links"]), (&json!(42 * 500 + 1 - 16_384), &json!([])));
}

//! Holds of queues over HTTP: what each client sees meanwhile, and what stays.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Service, service};
use crate::support::server::{Server, ServerBuilder};
use angarium_clock::Clock;
use angarium_core::time::Timestamp;
use angarium_testbed::held::wait_until;

const HOLD: &str = "/v2/queues/q/hold";
const MESSAGES: &str = "/v2/queues/q/messages";

impl Service {
    fn hold(&self, terms: &Value) -> Value {
        let answer = self.client.put(HOLD, Some(terms)).unwrap();
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        answer.json()
    }

    fn release(&self) {
        assert_eq!(self.client.delete(HOLD).unwrap().status, StatusCode::NO_CONTENT);
    }
}

#[test]
fn held_queue_grants_nothing_and_explains_it() {
    let service = service();
    let client = &service.client;
    let posted = client.post_messages("q", &[json!(1), json!(2)]).unwrap().posted_ids();
    let claim = client.claim("q", 1, 300).unwrap().granted().unwrap();
    let hold = service.hold(&json!({"reason": "déploiement 1.4.2"}));
    assert_eq!(
        (&hold["claim"], &hold["post"], &hold["discard"], &hold["reason"]),
        (&json!(true), &json!(false), &json!(false), &json!("déploiement 1.4.2"))
    );
    assert_eq!(client.get(HOLD).unwrap().json(), hold);

    let nothing = client.claim("q", 1, 300).unwrap();
    assert_eq!(nothing.status, StatusCode::NO_CONTENT);
    assert_eq!(nothing.headers["x-held"], "d%C3%A9ploiement 1.4.2");
    let popped = client.delete("/v2/queues/q/messages?pop=1").unwrap();
    assert_eq!((popped.status, &popped.json()["messages"]), (StatusCode::OK, &json!([])));
    // A claim that exists continues, and posts are stored.
    let path = format!("/v2/queues/q/claims/{}", claim.id);
    assert_eq!(client.patch(&path, &json!({"ttl": 600, "grace": 60})).unwrap().status, 204);
    assert_eq!(client.delete_message("q", &posted[0], Some(&claim.id)).unwrap().status, 204);
    assert_eq!(client.post_messages("q", &[json!(3)]).unwrap().status, StatusCode::CREATED);

    let explained = client.get("/v2/queues/q/explain").unwrap().json();
    let says = explained["says"].as_str().unwrap();
    let start =
        "A claim gets nothing now, because the queue is held until it is released (déploiement 1.4.2);";
    assert!(says.starts_with(start) && says.contains("expire"), "{says}");
    assert_eq!(explained["held"], json!([hold]));
    let message = client.get(&format!("{MESSAGES}/{}/explain", posted[1])).unwrap().json();
    assert!(message["says"].as_str().unwrap().contains("the queue is held"), "{message}");
    let peeked = client.get("/v2/queues/q/peek").unwrap().json();
    assert_eq!(peeked["messages"].as_array().unwrap().len(), 2);
    let page = client.get("/metrics").unwrap().text();
    assert!(page.lines().any(|line| line == "angarium_holds 1"), "{page}");

    service.release();
    let claim = client.claim("q", 10, 300).unwrap().granted().unwrap();
    let bodies: Vec<&Value> = claim.messages.iter().map(|message| &message.body).collect();
    assert_eq!(bodies, [&json!(2), &json!(3)]);
    assert_eq!(client.get(HOLD).unwrap().status, StatusCode::NOT_FOUND);
    service.release();
}

#[test]
fn long_poll_of_held_queue_waits_and_then_names_the_hold() {
    let service = service();
    service.client.post_messages("q", &[json!(1)]).unwrap();
    service.hold(&json!({"reason": "bad deploy"}));
    let start = Instant::now();
    let nothing = service.client.post("/v2/queues/q/claims?wait=1", &json!({})).unwrap();
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert_eq!(
        (nothing.status, &nothing.headers["x-held"]),
        (StatusCode::NO_CONTENT, &"bad deploy".parse().unwrap())
    );
    thread::scope(|scope| {
        let waiting = scope.spawn(|| service.client.post("/v2/queues/q/claims?wait=20", &json!({})).unwrap());
        thread::sleep(Duration::from_millis(300));
        service.release();
        assert_eq!(waiting.join().unwrap().status, StatusCode::CREATED);
    });
    assert!(start.elapsed() < Duration::from_secs(15));
}

#[test]
fn posts_to_held_queue_are_refused_with_time_to_retry() {
    let service = service();
    let client = &service.client;
    client.create_queue("q").unwrap();
    service.hold(
        &json!({"claim": false, "post": true, "reason": "full disk behind", "until": "2999-01-01T00:00:00Z"}),
    );
    for path in [MESSAGES.to_owned(), format!("{MESSAGES}/batch")] {
        let refused = client.post(&path, &json!({"messages": [{"body": 1}]})).unwrap();
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert_eq!(refused.headers["retry-after"], "3600");
        let body = refused.json();
        assert_eq!(
            (&body["code"], &body["may_retry"], &body["nothing_written"]),
            (&json!("held"), &json!(true), &json!(true)),
            "{body}"
        );
        assert_eq!(body["description"], json!("posts are held: full disk behind"));
    }
    service.release();
    assert_eq!(client.post_messages("q", &[json!(1)]).unwrap().status, StatusCode::CREATED);
}

#[test]
fn discarded_posts_are_answered_and_counted() {
    let service = service();
    let client = &service.client;
    client.create_queue("q").unwrap();
    service.hold(&json!({"claim": false, "discard": true, "reason": "load test"}));
    for path in [MESSAGES.to_owned(), format!("{MESSAGES}/batch")] {
        let dropped = client.post(&path, &json!({"messages": [{"body": 1}, {"body": 2}]})).unwrap();
        assert_eq!(
            (dropped.status, dropped.json()),
            (StatusCode::ACCEPTED, json!({"resources": []})),
            "{path}"
        );
        assert_eq!(dropped.headers["x-discarded"], "load test");
    }
    let explained = client.get("/v2/queues/q/explain").unwrap().json();
    let says = explained["says"].as_str().unwrap();
    assert!(says.contains("posts are discarded, because the queue is held"), "{says}");
    let page = client.get("/metrics").unwrap().text();
    assert!(page.lines().any(|line| line == "angarium_messages_discarded_total 4"), "{page}");
    service.release();
    assert_eq!(client.claim("q", 1, 300).unwrap().status, StatusCode::NO_CONTENT);
}

#[test]
fn hold_ends_by_itself() {
    let service = service();
    service.client.post_messages("q", &[json!(1)]).unwrap();
    let clock = Clock::system();
    let until = Timestamp::from_millis((clock.now().as_millis() / 1_000 + 8) * 1_000);
    service.hold(&json!({"reason": "short", "until": until.calendar()}));
    assert_eq!(service.client.claim("q", 1, 300).unwrap().status, StatusCode::NO_CONTENT);
    let waited = service.client.post("/v2/queues/q/claims?wait=20", &json!({})).unwrap();
    assert_eq!(waited.status, StatusCode::CREATED);
    assert!(clock.now() >= until);
    wait_until("its record is gone", || service.client.get(HOLD).unwrap().status == StatusCode::NOT_FOUND);
    wait_until("the log tells both", || {
        let log = service.server.last_lines();
        let held = log.lines().any(|line| line.contains("queue held") && line.contains(&until.calendar()));
        held && log.contains("queue hold ended")
    });
}

#[test]
fn invalid_hold_is_refused_and_changes_nothing() {
    let service = service();
    let client = &service.client;
    assert_eq!(client.put(HOLD, Some(&json!({"reason": "x"}))).unwrap().status, StatusCode::NOT_FOUND);
    client.create_queue("q").unwrap();
    for body in [
        json!({}),
        json!([]),
        json!({"reason": ""}),
        json!({"reason": "a\nb"}),
        json!({"reason": "x".repeat(257)}),
        json!({"reason": "x", "claim": false}),
        json!({"reason": "x", "post": true, "discard": true}),
        json!({"reason": "x", "claim": null}),
        json!({"reason": "x", "until": "tomorrow"}),
        json!({"reason": "x", "until": "2020-01-01T00:00:00Z"}),
        json!({"reason": "x", "group": "g"}),
    ] {
        let refused = client.put(HOLD, Some(&body)).unwrap();
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{body}: {}", refused.text());
        assert_eq!(refused.json()["code"], json!("invalid"));
    }
    let missing = client.get(HOLD).unwrap();
    assert_eq!((missing.status, &missing.json()["code"]), (StatusCode::NOT_FOUND, &json!("not_found")));
}

#[test]
fn hold_outlives_kill_9() {
    let data = tempfile::tempdir().unwrap();
    let builder = ServerBuilder::new(data.path());
    let server: Server = builder.start();
    let client = server.client();
    client.post_messages("q", &[json!(1)]).unwrap();
    assert_eq!(client.put(HOLD, Some(&json!({"reason": "x"}))).unwrap().status, StatusCode::OK);
    server.kill9();
    let server = builder.start();
    let client = server.client();
    assert_eq!(client.claim("q", 1, 300).unwrap().headers["x-held"], "x");
    assert_eq!(client.send(Method::DELETE, HOLD, &[], None).unwrap().status, StatusCode::NO_CONTENT);
    server.kill9();
    let server = builder.start();
    assert_eq!(server.client().claim("q", 1, 300).unwrap().status, StatusCode::CREATED);
}

#[test]
fn hold_names_the_token_of_its_caller() {
    let data = tempfile::tempdir().unwrap();
    let tokens = data.path().join("tokens.toml");
    let token = |role: &str, name: &[&str]| {
        let program = env!("CARGO_BIN_EXE_angarium");
        let args = ["token", "new", "--project", "p", "--role", role, "--tokens"];
        let made = Command::new(program).args(args).arg(&tokens).args(name).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        format!("Bearer {}", String::from_utf8(made.stdout).unwrap().trim())
    };
    let (named, plain) = (token("member", &["--name", "Jürgen, on call"]), token("member", &[]));
    let (reader, admin) = (token("reader", &[]), token("admin", &["--name", "root@example"]));
    let server = ServerBuilder::new(&data.path().join("data")).arg("--tokens").arg(&tokens).start();
    let client = |token: &str| server.client().with_header("Authorization", token);
    client(&named).create_queue("q").unwrap();
    let hold = json!({"reason": "x"});
    assert_eq!(client(&named).put(HOLD, Some(&hold)).unwrap().json()["by"], json!("Jürgen, on call"));
    let explained = client(&reader).get("/v2/queues/q/explain").unwrap().json();
    assert!(explained["says"].as_str().unwrap().contains("held by \"Jürgen, on call\""), "{explained}");
    assert_eq!(client(&reader).put(HOLD, Some(&hold)).unwrap().status, StatusCode::FORBIDDEN);
    assert_eq!(client(&reader).delete(HOLD).unwrap().status, StatusCode::FORBIDDEN);
    assert_eq!(client(&plain).put(HOLD, Some(&hold)).unwrap().json().get("by"), None);
    let id = client(&named).post_messages("q", &[json!(1)]).unwrap().posted_ids().remove(0);
    client(&named).delete(HOLD).unwrap();
    for path in ["/v2/pools/default/hold", "/v2/projects/p/hold"] {
        assert_eq!(client(&admin).put(path, Some(&hold)).unwrap().json()["by"], json!("root@example"));
    }
    // Tenants see the reason, and not the names of administrators.
    for path in ["/v2/queues/q/explain".to_owned(), format!("/v2/queues/q/messages/{id}/explain")] {
        for token in [&named, &reader] {
            let explained = client(token).get(&path).unwrap().text();
            assert!(explained.contains("(x)") && !explained.contains("root@example"), "{explained}");
        }
        let admin = client(&admin).with_header("X-Project-Id", "p");
        let explained = admin.get(&path).unwrap().text();
        assert!(explained.contains("root@example"), "{explained}");
    }
    let held = client(&reader).get("/v2/queues/q/explain").unwrap().json()["held"].take();
    assert_eq!((held[0].get("by"), &held[0]["reason"]), (None, &json!("x")), "{held}");
}

#[test]
fn empty_long_poll_names_the_held_group_with_messages() {
    let service = service();
    let client = &service.client;
    client.put("/v2/queues/fifo", Some(&json!({"_fifo": true}))).unwrap();
    for queue in ["q", "fifo"] {
        let hold = |group: &str, terms: Value| {
            let path = format!("/v2/queues/{queue}/groups/{group}/hold");
            assert_eq!(client.put(&path, Some(&terms)).unwrap().status, StatusCode::OK);
        };
        let post = |group: &str| {
            let messages = json!({"messages": [{"body": 1, "group": group}]});
            let posted = client.post(&format!("/v2/queues/{queue}/messages"), &messages).unwrap();
            assert_eq!(posted.status, StatusCode::CREATED, "{}", posted.text());
        };
        let held = || {
            let nothing = client.post(&format!("/v2/queues/{queue}/claims?wait=1"), &json!({})).unwrap();
            assert_eq!(nothing.status, StatusCode::NO_CONTENT);
            nothing.headers.get("x-held").map(|reason| reason.to_str().unwrap().to_owned())
        };
        post("c");
        assert_eq!(client.claim(queue, 1, 300).unwrap().status, StatusCode::CREATED);
        hold("a", json!({"reason": "no messages"}));
        hold("c", json!({"reason": "all claimed"}));
        hold("d", json!({"reason": "posts alone", "claim": false, "post": true}));
        // A claim of before the holds has the only message.
        assert_eq!(held(), None, "{queue}");
        post("b");
        hold("b", json!({"reason": "move of b"}));
        assert_eq!(held().as_deref(), Some("move of b"), "{queue}");
        let path = format!("/v2/queues/{queue}/groups/b/hold");
        assert_eq!(client.delete(&path).unwrap().status, StatusCode::NO_CONTENT);
        let claimed = client.post(&format!("/v2/queues/{queue}/claims?wait=20"), &json!({})).unwrap();
        assert_eq!(claimed.status, StatusCode::CREATED, "{queue}");
        assert_eq!(held(), None, "{queue}");
    }
}

#[test]
fn held_group_waits_beside_others_and_is_explained() {
    let service = service();
    let client = &service.client;
    let group = "eu/north:1";
    let path = "/v2/queues/q/groups/eu%2Fnorth%3A1/hold";
    let post = |messages: Value| client.post(MESSAGES, &json!({ "messages": messages })).unwrap();
    let posted = post(json!([{"body": 1, "group": group}, {"body": 2, "group": "us"}, {"body": 3}]));
    assert_eq!(posted.status, StatusCode::CREATED, "{}", posted.text());
    let held = posted.posted_ids()[0].clone();
    let hold = client.put(path, Some(&json!({"reason": "move of the database"}))).unwrap();
    assert_eq!(hold.status, StatusCode::OK, "{}", hold.text());
    assert_eq!(client.get(path).unwrap().json(), hold.json());

    let claim = client.claim("q", 10, 300).unwrap().granted().unwrap();
    let bodies: Vec<&Value> = claim.messages.iter().map(|message| &message.body).collect();
    assert_eq!(bodies, [&json!(2), &json!(3)]);
    wait_until("the message is aside", || {
        let peeked = client.get("/v2/queues/q/peek?state=held").unwrap().json();
        peeked["messages"].as_array().unwrap().len() == 1
    });
    let peeked = client.get("/v2/queues/q/peek?state=held").unwrap().json();
    assert_eq!(
        (&peeked["messages"][0]["id"], &peeked["messages"][0]["state"]),
        (&json!(held), &json!("held"))
    );
    assert_eq!(peeked["messages"][0].get("ready_in"), None, "{peeked}");
    let explained = client.get("/v2/queues/q/explain").unwrap().json();
    let says = explained["says"].as_str().unwrap();
    assert!(says.contains("group eu/north:1 is held until it is released (move of the database)"), "{says}");
    assert_eq!(explained["held_groups"][0]["group"], json!(group));
    let message = client.get(&format!("{MESSAGES}/{held}/explain")).unwrap().json();
    let says = message["says"].as_str().unwrap();
    assert!(says.starts_with("A claim has put it aside, because its group is held"), "{says}");
    let page = client.get("/metrics").unwrap().text();
    assert!(page.lines().any(|line| line == "angarium_holds 1"), "{page}");

    assert_eq!(client.claim("q", 1, 300).unwrap().headers["x-held"], "move of the database");
    assert_eq!(client.delete(path).unwrap().status, StatusCode::NO_CONTENT);
    wait_until("the message is ready", || {
        client.get("/v2/queues/q/stats").unwrap().json()["messages"]["ready"] == json!(1)
    });
    let claim = client.claim("q", 10, 300).unwrap().granted().unwrap();
    assert_eq!(claim.messages[0].body, json!(1));
    let missing = client.get(path).unwrap();
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
    let why = missing.json()["description"].as_str().unwrap().to_owned();
    assert!(why.contains("hold of group eu/north:1"), "{why}");
    assert_eq!(client.delete(path).unwrap().status, StatusCode::NO_CONTENT);
    let unfit = client.put("/v2/queues/q/groups/a%20b/hold", Some(&json!({"reason": "x"}))).unwrap();
    assert_eq!((unfit.status, &unfit.json()["code"]), (StatusCode::BAD_REQUEST, &json!("invalid")));
    let missing = client.put("/v2/queues/none/groups/g/hold", Some(&json!({"reason": "x"}))).unwrap();
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
}

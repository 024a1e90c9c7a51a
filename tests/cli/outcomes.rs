//! Outcomes of messages: what a holder settles and a producer reads, against a real server; and requests on the wire.

use serde_json::{Value, json};

use super::canned::Canned;
use super::{Beside, Program, beside_a_server};
use angarium_testbed::held::wait_until;

/// A server with a message in the queue `q`, and its id.
fn with_message(post: &[&str]) -> (Beside, String) {
    let it = beside_a_server();
    let id = it.program.plain(&[&["message", "post", "q", "work"], post].concat()).remove(0);
    (it, id)
}

/// Claims the oldest message of `q`, and returns the id of the claim.
fn claim(it: &Beside, more: &[&str]) -> String {
    let claim = it.program.json(&[&["claim", "create", "q", "--limit", "1"], more].concat());
    claim["id"].as_str().expect("there is a message to claim").to_owned()
}

/// The request of a settle with these arguments, as the server gets it.
fn settle_request(args: &[&str]) -> Value {
    let answer = r#"{"results": [{"id": "m1", "status": 200, "state": "done"}]}"#;
    let server = Canned::start(vec![("200 OK", answer.to_owned())]);
    let all = [&["message", "settle", "q", "c1", "m1"], args].concat();
    Program::new(Some(&server.url)).say(&all);
    let asked = server.asked().remove(0);
    assert_eq!(asked.line, "POST /v2/queues/q/claims/c1/settle");
    let mut body: Value = serde_json::from_str(&asked.body).unwrap();
    let mut entry = body["messages"][0].take();
    assert_eq!(entry.as_object_mut().unwrap().remove("id"), Some(json!("m1")));
    entry
}

#[test]
fn settle_sends_its_verdict() {
    assert_eq!(settle_request(&["--done"]), json!({"done": {}}));
    assert_eq!(settle_request(&["--done", "--result", "[1]"]), json!({"done": {"result": [1]}}));
    let fail = settle_request(&["--fail", "--reason", "no space", "--retry-in", "1m"]);
    assert_eq!(fail, json!({"fail": {"reason": "no space", "retry_in": 60}}));
    assert_eq!(settle_request(&["--fail", "--no-retry"]), json!({"fail": {"retry": false}}));
    let moved = settle_request(&["--move", "p", "--delay", "5", "--meta", "{\"step\": 2}"]);
    assert_eq!(moved, json!({"move": {"queue": "p", "delay": 5}, "meta": {"step": 2}}));
    assert_eq!(settle_request(&["--defer", "30s"]), json!({"defer": {"delay": 30}}));
    let forward = settle_request(&["--done", "--forward", "a=text", "--forward", "b={\"n\": 1}"]);
    let sent = json!([{"queue": "a", "body": "text"}, {"queue": "b", "body": {"n": 1}}]);
    assert_eq!(forward, json!({"done": {}, "forward": sent}));
}

#[test]
fn settle_needs_exactly_one_verdict() {
    let program = Program::new(Some("http://127.0.0.1:9"));
    for wrong in [
        &[][..],
        &["--done", "--fail"],
        &["--done", "--defer", "5"],
        &["--done", "--reason", "x"],
        &["--fail", "--result", "1"],
        &["--move", "p", "--no-retry"],
        &["--defer", "5", "--retry-in", "5"],
        &["--fail", "--no-retry", "--retry-in", "5"],
        &["--done", "--delay", "5"],
        &["--defer", "5", "--forward", "a=b"],
        &["--done", "--result", "no json"],
        &["--done", "--forward", "a"],
    ] {
        let ended = program.run(&[&["message", "settle", "q", "c", "m"], wrong].concat());
        assert_eq!(ended.code, 2, "{wrong:?}: {ended:?}");
    }
}

#[test]
fn refused_settle_shows_its_error() {
    let error = r#"{"title": "Not found", "description": "message m1 was recalled", "code": "gone"}"#;
    let answer = format!(r#"{{"results": [{{"id": "m1", "status": 404, "error": {error}}}]}}"#);
    let server = Canned::start(vec![("200 OK", answer)]);
    let ended = Program::new(Some(&server.url)).run(&["message", "settle", "q", "c1", "m1", "--done"]);
    assert_eq!(ended.code, 1);
    assert!(ended.err.contains("message m1 was recalled\n  status 404, code gone"), "{}", ended.err);
}

#[test]
fn result_is_kept_for_the_producer() {
    let (it, id) = with_message(&["--keep", "10m", "--tag", "a b", "--tag", "c"]);
    let claim = claim(&it, &["--by", "worker 1"]);
    let file = it.program.home.path().join("result.json");
    std::fs::write(&file, "{\"pages\": 12}").unwrap();
    let result = format!("@{}", file.display());
    let settle = ["message", "settle", "q", &claim, &id, "--done", "--result", &result];
    let forwards = ["--forward", "notify={\"n\": 1}", "--forward", "log=text"];
    let told = it.program.say(&[&settle[..], &forwards].concat());
    assert!(told.starts_with(&format!("message {id} is done\n")), "{told}");
    assert!(told.contains(" is forwarded to notify\n") && told.contains(" is forwarded to log\n"), "{told}");
    let get = ["message", "get", "q", &id];
    assert_eq!(it.program.plain(&[&get[..], &["--wait", "20"]].concat()), ["done\t{\"pages\": 12}"]);
    let outcome = &it.program.json(&get)["outcome"];
    assert_eq!(
        (&outcome["state"], &outcome["by"], &outcome["attempts"]),
        (&json!("done"), &json!("worker 1"), &json!(1))
    );
    let shown = it.program.say(&get);
    for row in ["result.pages  12", "tags          a b, c", "keep          10m", "by            worker 1"] {
        assert!(shown.contains(row), "{row}: {shown}");
    }
    // The same settle has the same outcome.
    assert_eq!(it.program.say(&[&settle[..], &forwards].concat()), told);
    // Messages arrive in other queues a moment after the answer.
    for queue in ["notify", "log"] {
        wait_until("the message has arrived", || {
            it.server.client().stats(queue).unwrap().json()["messages"]["free"] == 1
        });
    }
    assert_eq!(it.program.plain(&["message", "consume", "notify", "--count", "1"]), ["{\"n\": 1}"]);
    assert_eq!(it.program.plain(&["message", "consume", "log", "--count", "1"]), ["text"]);
    it.program.say(&["queue", "purge", "q"]);
    it.program.say(&get);
    it.program.say(&["queue", "purge", "q", "--kept"]);
    assert_eq!(it.program.run(&get).code, 1);
}

#[test]
fn waiting_get_sends_its_wait() {
    let message = r#"{"id": "m1", "href": "/m1", "ttl": 60, "age": 0, "body": 1, "state": "ready"}"#;
    let moved = r#"{"id": "m1", "state": "transferred", "to": "p"}"#;
    let answers = [message, moved, moved].map(|answer| ("200 OK", answer.to_owned()));
    let server = Canned::start(answers.to_vec());
    let program = Program::new(Some(&server.url));
    let get = ["message", "get", "q", "m1", "--wait", "5"];
    assert_eq!(program.plain(&get), ["ready"]);
    assert_eq!(program.plain(&get), ["transferred\tp"]);
    assert!(program.say(&get).contains("to     p"));
    assert_eq!(server.asked()[0].line, "GET /v2/queues/q/messages/m1?wait=5");
}

#[test]
fn failed_message_is_kept_and_requeued() {
    let (it, id) = with_message(&["--keep", "600"]);
    let held = claim(&it, &[]);
    it.program.say(&["message", "settle", "q", &held, &id, "--fail", "--reason", "no space", "--no-retry"]);
    let get = ["message", "get", "q", &id, "--wait", "0"];
    assert_eq!(it.program.plain(&get), ["failed\tno space"]);
    assert!(it.program.say(&get).contains(" failed: no space"));
    assert_eq!(it.program.say(&["claim", "create", "q"]), "there is nothing to claim\n");
    let requeue = |when: &[&str]| it.program.say(&[&["message", "requeue", "q", &id], when].concat());
    assert_eq!(requeue(&["--never"]), format!("message {id} is parked until it is requeued\n"));
    assert_eq!(it.program.plain(&get), ["delayed"]);
    assert_eq!(requeue(&["--delay", "10m"]), format!("message {id} can be claimed in 10m\n"));
    let date = "2060-01-31T08:00:00Z";
    let until = requeue(&["--not-before", date]);
    assert_eq!(until, format!("message {id} can be claimed from {date} on\n"));
    assert_eq!(requeue(&[]), format!("message {id} can be claimed\n"));
    claim(&it, &[]);
    let claimed = it.program.run(&["message", "requeue", "q", &id]);
    assert_eq!(claimed.code, 1);
    assert!(claimed.err.contains("status 409, code conflict"), "{}", claimed.err);
    it.program.say(&["message", "post", "edited", "old"]);
    let old = it.program.plain(&["message", "peek", "edited", "--body", "none"]).remove(0);
    let new = it.program.plain(&["message", "requeue", "edited", &old, "--body", "\"new\""]).remove(0);
    assert_ne!(new, old);
    assert_eq!(it.program.plain(&["message", "peek", "edited"]), ["new"]);
    let two = it.program.run(&["message", "requeue", "edited", &new, &old, "--body", "1"]);
    assert_eq!(two.code, 2);
    let both = it.program.run(&["message", "requeue", "q", &id, "--never", "--delay", "5"]);
    assert_eq!(both.code, 2);
}

#[test]
fn recalled_message_cannot_be_settled() {
    let (it, id) = with_message(&[]);
    let claim = claim(&it, &[]);
    assert_eq!(it.program.run(&["message", "delete", "q", &id]).code, 1);
    it.program.say(&["message", "delete", "q", &id, "--force"]);
    let settle = it.program.run(&["message", "settle", "q", &claim, &id, "--done", "--forward", "p=1"]);
    assert_eq!(settle.code, 1);
    assert!(settle.err.contains("code gone"), "{}", settle.err);
    let (_, told) = it.program.hint(&["queue", "stats", "p"]);
    assert!(told.contains("queue p does not exist"), "nothing was forwarded: {told}");
}

#[test]
fn peek_shows_holders_and_kept_messages() {
    let (it, id) = with_message(&["--keep", "1h", "--tag", "eu"]);
    let claim = claim(&it, &["--by", "worker-1"]);
    let table = it.program.say(&["message", "peek", "q", "--state", "claimed", "--tag", "eu"]);
    assert!(table.contains("worker-1") && table.contains("  claimed "), "{table}");
    it.program.say(&["message", "settle", "q", &claim, &id, "--fail", "--no-retry", "--reason", "no space"]);
    it.program.say(&["message", "post", "q", "other"]);
    assert_eq!(it.program.plain(&["message", "peek", "q"]), ["other", "work"]);
    let failed = it.program.json(&["message", "peek", "q", "--by", "worker-1", "--contains", "work"]);
    assert_eq!(failed[0]["details"]["outcome"]["reason"], json!("no space"));
    assert_eq!(it.program.plain(&["message", "peek", "q", "--state", "failed", "--body", "none"]), [id]);
    let none = it.program.say(&["message", "peek", "q", "--state", "delayed,done"]);
    assert!(none.contains("there are no such messages"), "{none}");
}

#[test]
fn conditions_by_name_are_those_of_the_options() {
    let (it, id) = with_message(&["--keep", "1h", "--tag", "eu=1"]);
    it.program.say(&["message", "post", "q", "other"]);
    let found = |named: &[&str]| {
        let words = [&["message", "peek", "q", "--body", "none"], named].concat();
        it.program.plain(&words)
    };
    let all = ["tag=eu=1", "state=ready,claimed", "max-age=1h", "min_attempts=0", "contains=work"];
    let named: Vec<&str> = all.into_iter().flat_map(|condition| ["--where", condition]).collect();
    assert_eq!(found(&named), [&*id]);
    assert_eq!(found(&["--where", "tag=eu=1", "--state", "ready"]), [&*id]);
    assert!(found(&["--where", "tag=eu=1", "--where", "state=done"]).is_empty());
    let dry = ["queue", "redrive", "q", "--do", "delete", "--where", "tag=eu=1", "--dry-run"];
    assert!(it.program.say(&dry).starts_with("1 of 2 messages match\n"));
    for (wrong, reason) in [
        (&["--where", "tag"][..], "no `=`"),
        (&["--where", "colour=red"], "no condition colour"),
        (&["--where", "state=gone"], "no state gone"),
        (&["--where", "min_age=soon"], "min_age=soon"),
        (&["--where", "min_attempts=-1"], "no number of attempts"),
        (&["--where", "tag=eu", "--tag", "us"], "tag is given twice"),
    ] {
        for words in [&["message", "peek", "q"][..], &["queue", "redrive", "q", "--do", "delete"]] {
            let refused = it.program.run(&[words, wrong].concat());
            assert!(refused.code == 2 && refused.err.contains(reason), "{wrong:?}: {}", refused.err);
        }
    }
    assert_eq!(it.program.plain(&["message", "peek", "q", "--body", "none"]).len(), 2);
}

/// The words of a redrive of the messages with a tag.
fn redrive<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["queue", "redrive", "q", "--tag", "eu"], more].concat()
}

#[test]
fn redrive_requeues_and_moves_selected_messages() {
    let (it, id) = with_message(&["--keep", "1h", "--tag", "eu"]);
    let claim = claim(&it, &[]);
    it.program.say(&["message", "settle", "q", &claim, &id, "--fail", "--no-retry"]);
    let counted = it.program.say(&redrive(&["--dry-run"]));
    assert!(counted.starts_with("1 of 1 messages match\n") && counted.contains(&id), "{counted}");
    assert_eq!(it.program.plain(&redrive(&["--dry-run", "--state", "done"])), ["0"]);
    let state = |task: &str| {
        let tasks = it.program.json(&["queue", "tasks", "q"]);
        let task = tasks.as_array().unwrap().iter().find(|shown| shown["id"] == json!(task)).unwrap().clone();
        (task["state"].clone(), task["moved"].clone())
    };
    let ended = |task: &str| {
        while state(task).0 == json!("running") {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert_eq!(state(task), (json!("completed"), json!(1)));
    };
    ended(&it.program.plain(&redrive(&[]))[0]);
    assert_eq!(it.program.plain(&["message", "peek", "q", "--state", "ready", "--body", "none"]), [&*id]);
    it.program.say(&["queue", "create", "next"]);
    ended(&it.program.plain(&redrive(&["--to", "next", "--rate", "10", "--max", "5"]))[0]);
    let peeked = || it.program.plain(&["message", "peek", "next", "--body", "none"]);
    wait_until("the message has arrived", || !peeked().is_empty());
    assert_eq!(peeked(), [&*id]);
    let table = it.program.say(&["queue", "tasks", "q"]);
    assert!(
        table.contains("  move ") && table.contains("  requeue ") && table.contains("completed"),
        "{table}"
    );
    // The slow task runs until it is cancelled, however busy the machine is.
    let messages = vec![json!({"body": 1, "tags": ["eu"]}); 20];
    let posted = it.server.client().post("/v2/queues/q/messages", &json!({ "messages": messages })).unwrap();
    assert_eq!(posted.status, 201, "{}", posted.text());
    let slow = &it.program.plain(&redrive(&["--do", "delete", "--rate", "1"]))[0];
    let second = it.program.run(&redrive(&["--do", "delete"]));
    assert_eq!(second.code, 1);
    assert!(second.err.contains("code conflict"), "{}", second.err);
    it.program.say(&["queue", "tasks", "q", "--cancel", slow]);
    assert!([json!("cancelling"), json!("cancelled")].contains(&state(slow).0), "{:?}", state(slow));
    for wrong in [&["--to", "next", "--origin"][..], &["--do", "copy"], &["--state", "gone"]] {
        assert_eq!(it.program.run(&redrive(wrong)).code, 2, "{wrong:?}");
    }
}

#[test]
fn peek_follows_the_link_of_an_empty_page() {
    let more = r#"{"messages": [], "looked_at": 16384, "links": [{"rel": "next", "href": "/v2/queues/q/peek?marker=m"}]}"#;
    let last = r#"{"messages": [{"id": "m1", "state": "ready", "age": 1, "details": {"attempts": 0}, "body": 7}],
        "looked_at": 1, "links": []}"#;
    let server = Canned::start(vec![("200 OK", more.to_owned()), ("200 OK", last.to_owned())]);
    let program = Program::new(Some(&server.url));
    assert_eq!(program.plain(&["message", "peek", "q", "--min-age", "1m", "--body", "whole"]), ["7"]);
    let asked: Vec<String> = server.asked().into_iter().map(|request| request.line).collect();
    assert_eq!(
        asked,
        ["GET /v2/queues/q/peek?limit=20&min_age=60&body=whole", "GET /v2/queues/q/peek?marker=m"]
    );
}

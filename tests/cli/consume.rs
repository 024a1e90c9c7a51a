//! `angarium message consume`, against a real server: a message is removed when it is done, and not before.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use super::canned::{Canned, CannedRequest};
use super::{Beside, Program, beside_a_server};

fn with_messages(bodies: &[&str]) -> Beside {
    let it = beside_a_server();
    let posted = it.program.feed(&["message", "post", "q", "-", "--lines"], bodies.join("\n").as_bytes());
    assert_eq!(posted.code, 0, "{posted:?}");
    it
}

#[test]
fn printed_messages_are_deleted() {
    let it = with_messages(&["one", "two", "three"]);
    assert_eq!(it.program.plain(&["message", "consume", "q", "--count", "2"]), ["one", "two"]);
    assert_eq!(it.program.plain(&["queue", "stats", "q"]), ["1"]);
    assert_eq!(it.program.plain(&["message", "consume", "q"]), ["three"]);
}

#[test]
fn a_command_gets_the_body_and_its_success_deletes() {
    let it = with_messages(&["good", "bad", "good"]);
    let handle = "body=$(cat); echo \"$body $ANGARIUM_MESSAGE_ID\"; test \"$body\" = good";
    let ended = it.program.run(&["message", "consume", "q", "--", "sh", "-c", handle]);
    assert_eq!(ended.code, 1);
    assert_eq!(ended.out.lines().filter(|line| line.starts_with("good ")).count(), 2);
    assert!(ended.err.contains("is not done: exit status: 1"), "{}", ended.err);
    let stats = it.program.json(&["queue", "stats", "q"]);
    assert_eq!(
        (&stats["q"]["messages"]["claimed"], &stats["q"]["messages"]["total"]),
        (&1.into(), &1.into())
    );
}

#[test]
fn released_message_is_claimed_again_at_once() {
    let it = with_messages(&["one"]);
    let mark = it.program.home.path().join("mark");
    let handle = ["sh", "-c", "test -e \"$0\" || { touch \"$0\"; exit 3; }", mark.to_str().unwrap()];
    let consume = ["message", "consume", "q", "--on-fail", "release", "--"];
    let ended = it.program.run(&[&consume[..], &handle].concat());
    assert_eq!(ended.code, 1);
    assert!(ended.err.contains("1 message was not done, and was released"), "{}", ended.err);
    assert_eq!(it.program.plain(&["queue", "stats", "q"]), ["0"]);
}

#[test]
fn failed_message_has_the_last_line_of_the_errors() {
    let it = beside_a_server();
    let id = it.program.plain(&["message", "post", "q", "one", "--keep", "600"]).remove(0);
    it.program.say(&["queue", "set", "q", "_max_claim_count=1"]);
    let handle = "echo first >&2; echo 'no space on disk' >&2; echo >&2; exit 3";
    let consume =
        ["message", "consume", "q", "--by", "worker 7", "--on-fail", "fail", "--", "sh", "-c", handle];
    let ended = it.program.run(&consume);
    assert_eq!(ended.code, 1);
    assert!(
        ended.err.contains("first\nno space on disk\n") && ended.err.contains("1 message failed"),
        "{}",
        ended.err
    );
    let get = ["message", "get", "q", &id, "--wait", "0"];
    assert_eq!(it.program.plain(&get), ["failed\tno space on disk"]);
    assert_eq!(it.program.json(&get)["outcome"]["by"], "worker 7");
}

#[test]
fn command_without_errors_fails_with_its_status() {
    let it = beside_a_server();
    let id = it.program.plain(&["message", "post", "q", "one"]).remove(0);
    it.program.say(&["queue", "set", "q", "_max_claim_count=1"]);
    it.program.run(&["message", "consume", "q", "--on-fail", "fail", "--", "sh", "-c", "exit 3"]);
    assert_eq!(it.program.plain(&["message", "get", "q", &id, "--wait", "0"]), ["failed\texit status: 3"]);
}

#[test]
fn recalled_message_does_not_end_the_consumer() {
    let it = beside_a_server();
    let recalled = it.program.plain(&["message", "post", "q", "one"]).remove(0);
    it.program.say(&["message", "post", "q", "two"]);
    let program = env!("CARGO_BIN_EXE_angarium");
    let handle =
        format!("body=$(cat); echo $body; test $body = two || {program} message delete q {recalled} --force");
    let ended = it.program.run(&["message", "consume", "q", "--", "sh", "-c", &handle]);
    assert_eq!(
        (ended.code, ended.err.as_str()),
        (0, format!("angarium: message {recalled} was recalled\n").as_str())
    );
    assert!(ended.out.starts_with("one\n") && ended.out.ends_with("two\n"), "{}", ended.out);
    assert_eq!(it.program.plain(&["queue", "stats", "q"]), ["0"]);
}

#[test]
fn end_of_failures_needs_a_command() {
    let ended =
        Program::new(Some("http://127.0.0.1:9")).run(&["message", "consume", "q", "--on-fail", "fail"]);
    assert_eq!(ended.code, 2, "{ended:?}");
}

#[test]
fn unrunnable_command_returns_the_message() {
    let it = with_messages(&["one"]);
    assert_eq!(it.program.run(&["message", "consume", "q", "--", "/no/such/program"]).code, 2);
    assert_eq!(it.program.plain(&["message", "list", "q"]), ["one"]);
}

#[test]
fn command_ignoring_its_input_is_no_error() {
    let it = beside_a_server();
    let body = "x".repeat(200_000);
    it.program.feed(&["message", "post", "q", "-"], body.as_bytes());
    it.program.say(&["message", "consume", "q", "--", "true"]);
    assert_eq!(it.program.plain(&["queue", "stats", "q"]), ["0"]);
}

#[test]
fn unread_messages_are_returned() {
    let body = "z".repeat(60_000);
    let it = with_messages(&[body.as_str(); 12]);
    let mut child = it
        .program
        .command(&["message", "consume", "q", "-o", "plain"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // One line is read, then the pipe is closed: it does not hold what is next.
    let mut line = String::new();
    BufReader::with_capacity(4_096, child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line.trim_end(), body);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let stats = it.program.json(&["queue", "stats", "q"]);
    let messages = &stats["q"]["messages"];
    assert_eq!(messages["claimed"], 0);
    assert!((9..=11).contains(&messages["free"].as_u64().unwrap()), "{messages}");
}

#[test]
fn a_claim_is_renewed_while_its_command_runs() {
    let home = tempfile::tempdir().unwrap();
    let renewed = home.path().join("renewed");
    let (mark, mut claims) = (renewed.clone(), 0);
    let server = Canned::answering(move |asked: &CannedRequest| {
        let method = asked.line.split(' ').next().unwrap();
        let message =
            r#"{"id": "c1", "messages": [{"id": "m1", "href": "/m1", "ttl": 60, "age": 0, "body": 1}]}"#;
        claims += usize::from(method == "POST");
        Some(match method {
            "POST" if claims == 1 => ("201 Created".to_owned(), message.to_owned()),
            "PATCH" => {
                std::fs::write(&mark, "").unwrap();
                ("204 No Content".to_owned(), String::new())
            }
            _ => ("204 No Content".to_owned(), String::new()),
        })
    });
    // The command ends when the claim was renewed; or badly, so that the test does not hang.
    let wait = "for _ in $(seq 200); do test -e \"$0\" && exit; sleep 0.05; done; exit 1";
    let args = ["message", "consume", "q", "--ttl", "1", "--", "sh", "-c", wait, renewed.to_str().unwrap()];
    Program::new(Some(&server.url)).say(&args);
    let lines: Vec<String> = server.asked().into_iter().map(|asked| asked.line).collect();
    assert!(lines.contains(&"PATCH /v2/queues/q/claims/c1".to_owned()), "{lines:?}");
    assert!(lines.contains(&"DELETE /v2/queues/q/messages/m1?claim_id=c1".to_owned()), "{lines:?}");
}

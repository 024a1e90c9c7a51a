//! `angarium message`, against a real server: what is posted is what is shown.

use serde_json::{Value, json};

use super::canned::Canned;
use super::{Program, beside_a_server};

#[test]
fn an_argument_is_posted_as_text_and_with_json_as_json() {
    let it = beside_a_server();
    it.program.say(&["message", "post", "q", "-1"]);
    it.program.say(&["message", "post", "q", "--json", "{\"n\": 12345678901234567890123}"]);
    assert_eq!(it.program.plain(&["message", "list", "q"]), ["-1", "{\"n\": 12345678901234567890123}"]);
    let list = it.program.say(&["message", "list", "q", "-o", "json"]);
    assert!(list.contains("\"body\":\"-1\"") && list.contains("{\"n\": 12345678901234567890123}"), "{list}");
}

#[test]
fn body_is_read_unchanged_from_stdin_or_file() {
    let it = beside_a_server();
    assert_eq!(it.program.feed(&["message", "post", "q", "-"], b"two\nlines\n").code, 0);
    let file = it.program.home.path().join("body.json");
    std::fs::write(&file, "[1,\n2]").unwrap();
    it.program.say(&["message", "post", "q", "--json", "--file", file.to_str().unwrap()]);
    let list = it.program.json(&["message", "list", "q"]);
    assert_eq!((&list[0]["body"], &list[1]["body"]), (&json!("two\nlines\n"), &json!([1, 2])));
}

#[test]
fn many_lines_are_many_messages_in_their_order() {
    let it = beside_a_server();
    let lines: Vec<String> = (0..1_700).map(|number| format!("line {number}")).collect();
    let ended = it.program.feed(&["message", "post", "q", "-", "--lines"], lines.join("\n\n").as_bytes());
    assert_eq!((ended.code, ended.out.as_str()), (0, "posted 1700 messages\n"));
    assert_eq!(it.program.plain(&["message", "list", "q", "--all"]), lines);
}

#[test]
fn large_lines_are_split_into_accepted_requests() {
    let it = beside_a_server();
    let line = "x".repeat(90_000);
    let ended =
        it.program.feed(&["message", "post", "q", "-", "--lines"], [line.as_str(); 9].join("\n").as_bytes());
    assert_eq!((ended.code, ended.out.as_str()), (0, "posted 9 messages\n"), "{}", ended.err);
}

#[test]
fn bad_line_is_named_with_earlier_posts() {
    let it = beside_a_server();
    let input = format!("{}nonsense\n", "1\n".repeat(600));
    let ended = it.program.feed(&["message", "post", "q", "-", "--lines", "--json"], input.as_bytes());
    assert_eq!(ended.code, 2);
    assert!(ended.err.contains("line 601: this is not JSON"), "{}", ended.err);
    assert!(ended.err.contains("before that, 500 messages were posted"), "{}", ended.err);
    assert_eq!(it.program.plain(&["queue", "stats", "q"]), ["500"]);
}

#[test]
fn ids_of_a_post_get_and_delete_its_messages() {
    let it = beside_a_server();
    let ids = it.program.plain(&["message", "post", "q", "one"]);
    let get = ["message", "get", "q", &ids[0]];
    assert_eq!(it.program.plain(&get), ["one"]);
    assert_eq!(it.program.json(&get)["id"], Value::from(ids[0].as_str()));
    it.program.say(&["message", "delete", "q", &ids[0]]);
    let gone = it.program.run(&get);
    assert_eq!(gone.code, 1);
    assert!(gone.err.contains("Not found") && gone.err.contains("request req-"), "{}", gone.err);
}

#[test]
fn a_pop_takes_the_oldest_and_shows_them_whole() {
    let it = beside_a_server();
    let long = "y".repeat(300);
    it.program.say(&["message", "post", "q", &long]);
    it.program.say(&["message", "post", "q", "second"]);
    let popped = it.program.say(&["message", "pop", "q"]);
    assert!(popped.contains(&long), "{popped}");
    assert_eq!(it.program.plain(&["message", "pop", "q", "--count", "5"]), ["second"]);
    assert_eq!(it.program.say(&["message", "pop", "q"]), "there is nothing to pop\n");
}

#[test]
fn a_listing_leaves_out_ones_own_messages_only_when_asked() {
    let it = beside_a_server();
    let own = ["--client-id", "5f2504e0-4f89-11d3-9a0c-0305e82c3301"];
    it.program.say(&[&["message", "post", "q", "mine"][..], &own].concat());
    it.program.say(&["message", "post", "q", "another's"]);
    let list = |more: &[&str]| it.program.plain(&[&["message", "list", "q"], &own[..], more].concat());
    assert_eq!(list(&[]), ["mine", "another's"]);
    assert_eq!(list(&["--no-echo"]), ["another's"]);
}

/// The name of the file was posted, as one message.
#[test]
fn lines_of_a_named_file_are_posted_and_not_its_name() {
    let it = beside_a_server();
    let file = it.program.home.path().join("bodies.txt");
    std::fs::write(&file, "one\ntwo\n").unwrap();
    it.program.say(&["message", "post", "q", file.to_str().unwrap(), "--lines"]);
    assert_eq!(it.program.plain(&["message", "list", "q"]), ["one", "two"]);
    let missing = it.program.run(&["message", "post", "q", "/no/such/file", "--lines"]);
    assert_eq!(missing.code, 2);
    assert!(missing.err.contains("the file of lines /no/such/file"), "{}", missing.err);
}

#[test]
fn delayed_message_is_listed_with_remaining_delay() {
    let it = beside_a_server();
    it.program.say(&["message", "post", "q", "now"]);
    let id = it.program.plain(&["message", "post", "q", "later", "--delay", "10m"]);
    let table = it.program.say(&["message", "list", "q", "--include-delayed"]);
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((rows[0][1], rows[1][1], rows[1].last()), ("STATE", "ready", Some(&"now")));
    assert_eq!((rows[2][1], rows[2].last()), ("delayed", Some(&"later")));
    assert!(rows[2][2].starts_with("9m") || rows[2][2] == "10m", "{table}");
    let shown = it.program.say(&["message", "get", "q", &id[0]]);
    assert!(shown.contains("state  delayed "), "{shown}");
}

#[test]
fn list_without_bodies_shows_tags_and_lengths() {
    let it = beside_a_server();
    let id = it.program.plain(&["message", "post", "q", "confidential", "--tag", "eu", "--tag", "us"]);
    it.program.say(&["message", "post", "q", "another"]);
    let table = it.program.say(&["message", "list", "q", "--no-bodies"]);
    assert!(!table.contains("confidential"), "{table}");
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["ID", "STATE", "AGE", "TTL", "GROUP", "TAGS", "BYTES"]);
    assert_eq!(
        (rows[1][0], rows[1][1], &rows[1][4..]),
        (id[0].as_str(), "ready", &["-", "eu,", "us", "14"][..])
    );
    assert_eq!(it.program.plain(&["message", "list", "q", "--no-bodies", "--limit", "1"]), id);
    assert_eq!(it.program.json(&["message", "list", "q", "--no-bodies"])[1]["body_bytes"], json!(9));
}

#[test]
fn dropped_post_fails_with_the_reason() {
    let it = beside_a_server();
    it.program.say(&["queue", "create", "q"]);
    it.program.say(&["queue", "hold", "q", "--reason", "bad für 100 %", "--discard"]);
    for output in ["table", "plain", "json"] {
        let ended = it.program.run(&["message", "post", "q", "lost?", "-o", output]);
        assert_eq!((ended.code, ended.out.contains("posted")), (1, false), "{ended:?}");
        let told = "1 message was dropped and not posted, because of a hold: bad für 100 %";
        assert!(ended.err.contains(told), "{ended:?}");
    }
    let ended = it.program.feed(&["message", "post", "q", "-", "--lines"], b"one\ntwo\n");
    assert!(ended.code == 1 && ended.err.contains("2 messages were dropped"), "{ended:?}");
    it.program.say(&["queue", "release", "q"]);
    assert_eq!(it.program.say(&["message", "post", "q", "kept"]), "posted 1 message\n");
    assert_eq!(it.program.plain(&["queue", "stats", "q"]), ["1"]);
}

#[test]
fn post_dropped_midway_reports_the_first_part() {
    let posted = r#"{"resources": ["/v2/queues/q/messages/m1"]}"#.to_owned();
    let dropped = "202 Accepted\r\nX-Discarded: bad deploy";
    let server = Canned::start(vec![("201 Created", posted), (dropped, r#"{"resources": []}"#.to_owned())]);
    let body = "x".repeat(150_000);
    let input = format!("{body}\n{body}\n");
    let ended =
        Program::new(Some(&server.url)).feed(&["message", "post", "q", "-", "--lines"], input.as_bytes());
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.err.contains("1 message was dropped and not posted, because of a hold: bad deploy"));
    assert!(ended.err.contains("before that, 1 message was posted"), "{ended:?}");
}

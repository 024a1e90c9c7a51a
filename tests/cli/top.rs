//! `angarium top`, on a terminal and without one.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use super::canned::Canned;
use super::{Program, beside_a_server};
use angarium_testbed::held::wait_until;

#[test]
fn top_shows_queues_and_replicas_once() {
    let it = beside_a_server();
    it.program.say(&["message", "post", "full", "one"]);
    it.program.say(&["message", "post", "full", "two"]);
    it.program.say(&["claim", "create", "full", "--limit", "1"]);
    it.program.say(&["queue", "create", "empty"]);
    for args in [["top", "--once"].as_slice(), ["top"].as_slice()] {
        let page = it.program.say(args);
        let rows: Vec<Vec<&str>> = page.lines().map(|line| line.split_whitespace().collect()).collect();
        let at = |head: &str| rows.iter().position(|row| row.first() == Some(&head)).expect("it has a head");
        assert_eq!(rows[0][1..3], ["2", "queues"], "{page}");
        let replica = &rows[at("REPLICA") + 1];
        assert_eq!((replica[2], replica[3]), ("ready", "256"), "{page}");
        let queues = at("QUEUE");
        assert_eq!(rows[queues + 1][..4], ["full", "1", "1", "0"], "the fullest one is the first: {page}");
        assert_eq!(rows[queues + 2][..2], ["empty", "0"], "{page}");
    }
    let document = it.program.json(&["top", "--once"]);
    assert_eq!(
        (&document["queues"][1]["stats"]["claimed"], document["replicas"].as_array().unwrap().len()),
        (&json!(1), 1)
    );
    assert_eq!(it.program.plain(&["top", "--once"]), ["full", "empty"]);
}

#[test]
fn top_redraws_changes_until_ended() {
    let it = beside_a_server();
    it.program.say(&["queue", "create", "orders"]);
    let mut top = it.program.on_terminal(&["top", "--interval", "300ms"], (100, 20));
    top.wait_for("orders");
    assert!(top.drawn().contains("\u{1b}[?1049h"), "it draws on a screen of its own");
    it.program.say(&["queue", "create", "invoices"]);
    top.wait_for("invoices");
    top.press("q");
    let (code, drawn) = top.end();
    assert_eq!(code, 0, "{drawn:?}");
    assert!(drawn.ends_with("\u{1b}[?1049l"), "the terminal is as it was: {drawn:?}");
}

#[test]
fn top_beside_a_hanging_server_ends_at_once() {
    for (end, code) in [
        (End::Key("q"), 0),
        (End::Key("\u{3}"), 0),
        (End::Signal(Signal::TERM), 143),
        (End::Signal(Signal::HUP), 129),
    ] {
        let it = beside_a_server();
        it.program.say(&["queue", "create", "orders"]);
        let mut top = it.program.on_terminal(&["top", "--interval", "200ms"], (100, 20));
        top.wait_for("orders");
        it.server.signal(Signal::STOP);
        // By now it waits for an answer.
        std::thread::sleep(Duration::from_millis(600));
        let start = Instant::now();
        match end {
            End::Key(key) => top.press(key),
            End::Signal(signal) => top.signal(signal),
        }
        let (ended, drawn) = top.end();
        assert_eq!(ended, code, "{drawn:?}");
        // No answer is awaited: that would take a minute.
        assert!(start.elapsed() < Duration::from_secs(20), "after {:?}", start.elapsed());
        assert!(drawn.ends_with("\u{1b}[?1049l"), "the terminal is as it was: {drawn:?}");
        it.server.signal(Signal::CONT);
    }
}

/// How many different times without an answer were drawn.
fn silences(drawn: &str) -> usize {
    let times = drawn.split("no answer for ").skip(1).filter_map(|text| text.split_once(" s"));
    times.map(|(seconds, _)| seconds).collect::<BTreeSet<_>>().len()
}

#[test]
fn silent_server_is_shown_until_a_key_ends_it() {
    // It accepts, and never answers.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let program = Program::new(Some(&format!("http://{}", listener.local_addr().unwrap())));
    for key in ["q", "\u{3}"] {
        let mut top = program.on_terminal(&["top", "--interval", "200ms"], (100, 20));
        // On a busy machine it may draw no screen for a second or more.
        wait_until("the silence is shown, and that it lasts", || silences(&top.drawn()) > 1);
        top.press(key);
        let (code, drawn) = top.end();
        assert_eq!(code, 0, "{drawn:?}");
        assert!(drawn.ends_with("\u{1b}[?1049l"), "the terminal is as it was: {drawn:?}");
    }
    let mut top = program.on_terminal(&["top", "--timeout", "3s", "--interval", "30s"], (100, 20));
    top.wait_for("no answer in time");
    top.press("q");
    assert_eq!(top.end().0, 0);
    let once = program.run(&["top", "--once", "--timeout", "1s"]);
    assert_eq!((once.code == 0, once.err.contains("no answer in time")), (false, true), "{}", once.err);
}

/// What ends a program on a terminal.
#[derive(Clone, Copy)]
enum End {
    Key(&'static str),
    Signal(Signal),
}

#[test]
fn top_keeps_to_its_screen() {
    let it = beside_a_server();
    let names: Vec<String> = (0..40).map(|number| format!("queue-{number:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    it.program.say(&[&["queue", "create"], names.as_slice()].concat());
    let mut top = it.program.on_terminal(&["top", "--interval", "1h"], (90, 15));
    top.wait_for("more queues");
    top.press("\u{3}");
    let (code, drawn) = top.end();
    assert_eq!(code, 0);
    // Before the server has answered, a page has no queues.
    let page = drawn.split("\u{1b}[J").find(|page| page.contains("more queues")).unwrap();
    assert!(page.matches("\r\n").count() < 15, "{page:?}");
    assert!(page.contains("queue-00") && !page.contains("queue-39"), "{page:?}");
}

#[test]
fn top_without_rights_shows_queues_and_no_replicas() {
    let home = r#"{"resources": {"rel/queues": {"href-template": "/v2/queues{?with_stats}"}}}"#;
    let stats = r#"{"ready": 3, "claimed": 2, "delayed": 1, "in_transfer": 0, "rates": {"posted": 0.5, "removed": 0.0}}"#;
    let page = format!(r#"{{"queues": [{{"name": "q", "stats": {stats}}}], "links": []}}"#);
    let server = Canned::start(vec![
        ("200 OK", home.to_owned()),
        ("200 OK", page),
        ("403 Forbidden", r#"{"title": "Forbidden", "code": "forbidden"}"#.to_owned()),
    ]);
    let shown = Program::new(Some(&server.url)).say(&["top", "--once"]);
    assert!(shown.contains("1 queue  3 ready  2 claimed  1 delayed"), "{shown}");
    assert!(!shown.contains("REPLICA"), "{shown}");
}

#[test]
fn top_without_queue_counts_is_explicit() {
    let server = Canned::start(vec![("200 OK", r#"{"resources": {}}"#.to_owned())]);
    let refused = Program::new(Some(&server.url)).run(&["top", "--once"]);
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains("does not count queues"), "{}", refused.err);
}

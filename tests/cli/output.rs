//! The output as others use it: closed early, or shown on a terminal.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use super::canned::Canned;
use super::{Program, beside_a_server};

#[test]
fn closed_reader_ends_listing_quietly() {
    let it = beside_a_server();
    let lines = vec!["w".repeat(1_000); 400].join("\n");
    it.program.feed(&["message", "post", "q", "-", "--lines"], lines.as_bytes());
    let mut child = it
        .program
        .command(&["message", "list", "q", "--all", "-o", "plain"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::with_capacity(1_024, child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(0), b"".as_slice()));
}

#[test]
fn names_and_bodies_cannot_steer_the_terminal() {
    let body = "{\"queues\": [{\"name\": \"a\\u001b[2Jb\"}], \"links\": []}".to_owned();
    let server = Canned::start(vec![("200 OK", body)]);
    let out = Program::new(Some(&server.url)).say(&["queue", "list", "--no-stats"]);
    assert_eq!(out, "NAME\na\\u{1b}[2Jb\n");
}

/// What steers a terminal: escapes of seven and eight bits, and the directions of text.
const HOSTILE: &str = "a\u{1b}[2J\u{9b}31m\u{202e}b";

#[test]
fn bodies_reach_a_terminal_without_their_escapes_in_every_form() {
    let it = beside_a_server();
    let id = it.program.plain(&["message", "post", "q", HOSTILE]);
    for form in ["table", "plain", "json"] {
        for command in
            [["message", "list", "q", "-o"].as_slice(), ["message", "get", "q", &id[0], "-o"].as_slice()]
        {
            let (code, drawn) = it.program.on_terminal(&[command, &[form]].concat(), (200, 24)).end();
            assert_eq!(code, 0, "{drawn:?}");
            for steering in ["\u{1b}[2J", "\u{9b}", "\u{202e}"] {
                assert!(!drawn.contains(steering), "{form}: {drawn:?}");
            }
            assert!(drawn.contains("[2J"), "{form}: it is shown written out: {drawn:?}");
        }
    }
    // A program gets what was posted.
    assert_eq!(it.program.plain(&["message", "get", "q", &id[0]]), [HOSTILE]);
}

#[test]
fn tables_fit_the_terminal() {
    let it = beside_a_server();
    it.program.say(&["message", "post", "q", &"word ".repeat(60)]);
    it.program.say(&["queue", "set", "q", &format!("note={}", "long ".repeat(40))]);
    for (args, columns) in [(["message", "list", "q"], 100), (["queue", "show", "q"], 60)] {
        let (_, drawn) = it.program.on_terminal(&args, (columns, 24)).end();
        let lines: Vec<String> = drawn.lines().map(without_colours).collect();
        let widest = lines.iter().map(|line| line.trim_end().chars().count()).max();
        assert!(
            widest <= Some(usize::from(columns)) && widest > Some(usize::from(columns) / 2),
            "{lines:#?}"
        );
    }
    // Without a terminal it is unknown how much fits, and nothing is broken into lines.
    assert!(it.program.say(&["queue", "show", "q"]).contains(&"long ".repeat(39)));
}

#[test]
fn colours_are_for_terminals_and_only_where_they_are_wanted() {
    let it = beside_a_server();
    it.program.say(&["queue", "create", "q"]);
    let list = ["queue", "list"];
    let has_colours = |drawn: &str| drawn.contains("\u{1b}[1m");
    assert!(has_colours(&it.program.on_terminal(&list, (100, 24)).end().1));
    assert!(!it.program.say(&list).contains('\u{1b}'));
    for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let program = Program::new(it.program.url.as_deref()).with_env(name, value);
        let (_, drawn) = program.on_terminal(&list, (100, 24)).end();
        assert!(drawn.contains("NAME") && !drawn.contains('\u{1b}'), "{name}: {drawn:?}");
    }
}

#[test]
fn tables_show_values_and_no_json() {
    let it = beside_a_server();
    it.program.say(&[
        "queue",
        "create",
        "q",
        "--set",
        "_tags={\"team\": \"shop\"}",
        "--set",
        "parts=[1, \"two\"]",
    ]);
    let shown = it.program.say(&["queue", "show", "q"]);
    assert!(!shown.contains(['{', '"', '[']), "{shown}");
    let pairs: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(
        pairs.contains(&vec!["_tags.team", "shop"]) && pairs.contains(&vec!["parts", "1,", "two"]),
        "{shown}"
    );
    let health = it.program.say(&["health"]);
    assert!(!health.contains(['{', '"', '[']), "{health}");
}

/// A line without the escapes of its colours.
fn without_colours(line: &str) -> String {
    let mut parts = line.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |shown, part| shown + part.split_once('m').map_or("", |(_, rest)| rest))
}

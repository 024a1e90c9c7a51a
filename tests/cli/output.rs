//! The output as others use it: closed early, or shown on a terminal.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use super::canned::Canned;
use super::{Program, beside_a_server};

#[test]
fn a_reader_that_has_gone_ends_a_listing_quietly() {
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
    let out = Program::new(Some(&server.url)).say(&["queue", "list"]);
    assert_eq!(out, "NAME\na\\u{1b}[2Jb\n");
}

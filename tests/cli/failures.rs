//! How the commands fail: the documented exit codes, and words instead of dumps.

use super::Program;
use super::canned::Canned;

/// Exit code and error text of a command that gets this answer.
fn answered(head: &'static str, body: &str, args: &[&str]) -> (i32, String) {
    let server = Canned::start(vec![(head, body.to_owned())]);
    let ended = Program::new(Some(&server.url)).run(args);
    assert_eq!(ended.out, "", "{ended:?}");
    (ended.code, ended.err)
}

#[test]
fn refusal_exits_1_and_names_request() {
    let head = "404 Not Found\r\nX-OpenStack-Request-Id: req-7";
    let (code, told) =
        answered(head, r#"{"title": "Not found", "description": "no queue"}"#, &["queue", "show", "q"]);
    assert_eq!((code, told.as_str()), (1, "angarium: Not found: no queue\n  status 404, request req-7\n"));
}

#[test]
fn wrong_arguments_are_2() {
    let program = Program::new(None);
    for args in [
        &["queue"][..],
        &["queue", "create"],
        &["message", "post", "q"],
        &["message", "post", "q", "--json", "{"],
        &["message", "post", "q", "--file", "/no/such/file"],
        &["queue", "set", "q", "nonsense"],
        &["queue", "list", "--url", "localhost:8888"],
        &["queue", "list", "--limit", "0"],
        &["queue", "list", "-o", "xml"],
        &["ping", "--ca", "/no/such/file"],
    ] {
        let ended = program.run(args);
        assert_eq!(ended.code, 2, "{args:?}: {ended:?}");
        assert!(!ended.err.is_empty() && ended.out.is_empty(), "{args:?}: {ended:?}");
    }
}

#[test]
fn absent_server_exits_3() {
    // Port 1 is no user's.
    let ended = Program::new(Some("http://127.0.0.1:1")).run(&["message", "post", "q", "x"]);
    assert_eq!(ended.code, 3, "{ended:?}");
    assert!(ended.err.contains("cannot be reached"), "{}", ended.err);
}

#[test]
fn unwritten_outage_exits_4() {
    let body = r#"{"title": "Service temporarily unavailable", "nothing_written": true}"#;
    let (code, told) = answered("503 Service Unavailable", body, &["message", "post", "q", "x"]);
    assert_eq!(code, 4);
    assert!(told.contains("nothing was written"), "{told}");
}

#[test]
fn senseless_answer_exits_4() {
    let (code, told) = answered("200 OK", "<html>", &["queue", "show", "q"]);
    assert_eq!(code, 4);
    assert!(told.contains("GET /v2/queues/q is not what the API promises"), "{told}");
    assert_eq!(answered("200 OK", "{}", &["queue", "list", "--no-stats"]).0, 4);
}

#[test]
fn a_write_without_a_known_outcome_is_5() {
    let body = r#"{"title": "Service temporarily unavailable", "nothing_written": false}"#;
    let post = ["message", "post", "q", "x"];
    let (code, told) = answered("503 Service Unavailable", body, &post);
    assert_eq!(code, 5);
    assert!(told.contains("may have been done or not"), "{told}");
    // The connection breaks after the request.
    assert_eq!(answered("", "", &post).0, 5);
    assert_eq!(answered("502 Bad Gateway", "", &post).0, 5);
}

#[test]
fn unanswered_read_is_not_called_unknown() {
    assert_eq!(answered("", "", &["queue", "show", "q"]).0, 3);
}

#[test]
fn the_help_names_the_exit_codes() {
    let help = Program::new(None).say(&["--help"]);
    for code in
        ["  0  done", "  1  refused", "  2  usage", "  3  unreachable", "  4  unavailable", "  5  unknown"]
    {
        assert!(help.contains(code), "{code}: {help}");
    }
}

#[test]
fn refused_connection_hides_system_numbers() {
    let refused = Program::new(Some("http://127.0.0.1:1")).run(&["ping"]);
    assert_eq!(refused.code, 3);
    assert!(
        refused.err.contains("is it running there?") && !refused.err.contains("os error"),
        "{}",
        refused.err
    );
}

#[test]
fn invalid_instance_is_not_sent() {
    let refused = Program::new(Some("http://127.0.0.1:1")).run(&["drain", "bad"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.err.contains("angarium components"), "{}", refused.err);
}

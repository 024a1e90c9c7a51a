//! `angarium context`: what is kept is used, and moves to no other server.

use serde_json::json;

use super::Program;
use super::canned::Canned;

fn answers(number: usize) -> Canned {
    Canned::start(vec![("204 No Content", String::new()); number])
}

#[test]
fn the_first_context_is_current_and_another_can_be_chosen() {
    let program = Program::new(None);
    program.say(&["context", "set", "a", "--url", "http://a"]);
    program.say(&["context", "set", "b", "--url", "http://b", "--token", "secret"]);
    program.say(&["context", "use", "b"]);
    let list = program.json(&["context", "list"]);
    assert_eq!((&list[0]["current"], &list[1]["current"]), (&json!(false), &json!(true)));
    let table = program.say(&["context", "list"]);
    assert!(table.contains("kept") && !table.contains("secret"), "{table}");
    program.say(&["context", "remove", "b"]);
    assert_eq!(program.plain(&["context", "list"]), ["a"]);
}

#[test]
fn context_selects_server_and_caller() {
    let server = answers(1);
    let program = Program::new(None);
    let id = "5f2504e0-4f89-11d3-9a0c-0305e82c3301";
    program.say(&["context", "set", "a", "--url", &server.url, "--project", "p", "--client-id", id]);
    let token = program.feed(&["context", "set", "a", "--token", "-"], b"secret\n");
    assert_eq!(token.code, 0, "{token:?}");
    program.say(&["ping"]);
    let headers = &server.asked()[0].headers;
    for wanted in ["x-project-id: p", "authorization: Bearer secret", &format!("client-id: {id}")] {
        assert!(headers.iter().any(|header| header == wanted), "{wanted}: {headers:?}");
    }
}

#[test]
fn a_server_named_by_its_url_does_not_get_the_token() {
    let server = answers(1);
    let program = Program::new(None);
    program.say(&[
        "context",
        "set",
        "a",
        "--url",
        "http://127.0.0.1:1",
        "--token",
        "secret",
        "--project",
        "p",
    ]);
    program.say(&["ping", "--url", &server.url]);
    let headers = &server.asked()[0].headers;
    assert!(
        !headers.iter().any(|header| header.contains("secret") || header.starts_with("x-project")),
        "{headers:?}"
    );
}

#[test]
fn a_redirect_is_not_followed() {
    let target = answers(1);
    let elsewhere = format!("307 Temporary Redirect\r\nLocation: {}/", target.url);
    let server = Canned::answering(move |_| Some((elsewhere.clone(), String::new())));
    assert_eq!(Program::new(Some(&server.url)).run(&["ping", "--token", "secret"]).code, 4);
    assert!(target.asked().is_empty());
}

#[test]
fn missing_or_unreadable_contexts_are_usage_errors() {
    let program = Program::new(None);
    assert_eq!(program.run(&["ping", "--context", "none"]).code, 2);
    assert_eq!(program.run(&["context", "use", "none"]).code, 2);
    assert_eq!(program.run(&["context", "set", "new", "--project", "p"]).code, 2);
    let file = program.home.path().join("broken.toml");
    std::fs::write(&file, "current = ").unwrap();
    assert_eq!(program.run(&["ping", "--contexts", file.to_str().unwrap()]).code, 2);
}

#[test]
fn settings_of_the_service_do_not_stand_in_the_way() {
    // In a container they are all in the environment.
    let server = answers(1);
    let program = Program::new(Some(&server.url))
        .with_env("ANGARIUM_LISTEN", "0.0.0.0:8888")
        .with_env("ANGARIUM_DATA", "/var/lib/angarium");
    program.say(&["ping"]);
}

#[test]
fn list_without_contexts_has_no_head() {
    assert_eq!(Program::new(None).say(&["context", "list"]), "there are no contexts\n");
}

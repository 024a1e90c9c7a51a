//! The examples of the README: a person copies them, so they are run as they stand.

use std::path::Path;
use std::process::Command;

use super::beside_a_server;
use crate::support::client::Client;

/// The first block of shell below a heading.
fn block(heading: &str) -> String {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let section = text.split(&format!("## {heading}\n")).nth(1).expect("the heading is there");
    let block = section.split("```sh\n").nth(1).expect("there is an example");
    block.split("```").next().expect("it ends").to_owned()
}

#[test]
fn the_examples_of_the_command_line_work() {
    let it = beside_a_server();
    let url = it.program.url.as_deref().unwrap();
    let script = format!("set -eu\n{}", block("Command line").replace("http://127.0.0.1:8888", url));
    let programs = Path::new(env!("CARGO_BIN_EXE_angarium")).parent().unwrap().display().to_string();
    let ended = Command::new("bash")
        .args(["-c", &script])
        .env_clear()
        .env("HOME", it.program.home.path())
        .env("PATH", format!("{programs}:/usr/bin:/bin"))
        .output()
        .expect("bash is there");
    let told = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && told.is_empty(), "{told}");
    let shown = String::from_utf8(ended.stdout).unwrap();
    for fact in ["queue orders is created", "posted 1000 messages", "hello", "one more", "is gone"] {
        assert!(shown.contains(fact), "{fact}: {shown}");
    }
}

/// All pages of the documentation.
fn pages() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    [root.join("README.md")]
        .into_iter()
        .chain(pages)
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect()
}

#[test]
fn parts_of_zaqar_that_are_missing_are_documented() {
    let (it, pages) = (beside_a_server(), pages());
    let url = it.program.url.as_deref().unwrap();
    for (named, path) in [
        ("/v2/queues/{queue}/subscriptions", "/v2/queues/q/subscriptions"),
        ("/v2/topics", "/v2/topics"),
        ("/v2/queues/{queue}/share", "/v2/queues/q/share"),
    ] {
        assert!(pages.contains(named), "no page names {named}");
        let client = Client::new(url);
        assert_eq!(client.get(path).unwrap().status.as_u16(), 404, "{path}: it is there by now");
    }
    for named in ["_enable_encrypt_messages", "websocket", "URL-Signature"] {
        assert!(pages.contains(named), "no page names {named}");
    }
}

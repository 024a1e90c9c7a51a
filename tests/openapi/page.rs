//! The reference page as a browser shows it: Chromium, without a window.

use std::collections::BTreeSet;
use std::process::Command;

use super::{document, operations};
use crate::support::server::Server;

/// What a browser made of the page: its elements after loading, as text.
fn rendered(server: &Server) -> String {
    let profile = tempfile::tempdir().expect("there is room for a temporary directory");
    let mut browser = Command::new("chromium");
    browser.args(["--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking"]);
    // Its sandbox is not for root. The page is ours, and no name but this machine's leads anywhere.
    browser.args(["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]);
    browser.arg(format!("--user-data-dir={}", profile.path().display()));
    browser.args(["--dump-dom", &server.url("/v2/docs")]);
    let ended = browser.env("NO_PROXY", "*").output();
    let ended = ended.unwrap_or_else(|error| panic!("chromium: {error}. tests/prepare installs it"));
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8(ended.stdout).expect("the page is UTF-8")
}

/// The values of an attribute, in order.
fn values<'p>(page: &'p str, attribute: &str) -> Vec<&'p str> {
    let quoted = page.split(attribute).skip(1).filter_map(|rest| rest.strip_prefix("=\""));
    quoted.filter_map(|rest| rest.split('"').next()).collect()
}

#[test]
fn browser_shows_operations_and_links_resolve() {
    let data = tempfile::tempdir().expect("there is room for a temporary directory");
    let server = Server::start(data.path());
    let page = rendered(&server);
    let places: BTreeSet<&str> = values(&page, " id").into_iter().collect();
    let document = document();
    let missing: Vec<String> = operations(&document)
        .filter(|operation| !places.contains(operation.body["operationId"].as_str().unwrap_or_default()))
        .map(|operation| operation.name())
        .collect();
    assert!(missing.is_empty(), "the page does not show {missing:#?}");
    let links = values(&page, " href");
    assert!(links.len() > 2 * places.len() / 3, "{} links to {} places", links.len(), places.len());
    for link in links {
        let is_place = link.strip_prefix('#').is_some_and(|place| places.contains(place));
        assert!(is_place || ["data:,", "/v2/openapi.json"].contains(&link), "{link} leads nowhere");
    }
}

#[test]
fn the_page_may_load_nothing() {
    let data = tempfile::tempdir().expect("there is room for a temporary directory");
    let server = Server::start(data.path());
    let page = server.client().get("/v2/docs").expect("the server answers");
    let policy = page.headers["content-security-policy"].to_str().expect("it is text");
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    for word in ["<script", " src=", "url(", "@import", "=\"http", "=http"] {
        assert!(!page.text().contains(word), "the page has {word}");
    }
}

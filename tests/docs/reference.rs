//! The pages of `docs/reference` are those that the program prints.

use std::process::Command;

use super::page::read;

const PAGES: [&str; 4] = ["settings", "limits", "errors", "commands"];

fn printed(page: &str) -> String {
    let ended = Command::new(env!("CARGO_BIN_EXE_angarium"))
        .args(["docs", page])
        .env_clear()
        .output()
        .expect("the built program can be started");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8(ended.stdout).expect("a page is text")
}

#[test]
fn pages_of_the_reference_are_fresh() {
    for page in PAGES {
        assert!(
            read(&format!("docs/reference/{page}.md")) == printed(page),
            "docs/reference/{page}.md is stale. Refresh it: target/debug/angarium docs {page} > docs/reference/{page}.md"
        );
    }
}

#[test]
fn every_setting_and_code_is_in_the_reference() {
    let help = Command::new(env!("CARGO_BIN_EXE_angarium")).args(["serve", "--help"]).env_clear().output();
    let help = String::from_utf8(help.expect("it starts").stdout).expect("the help is text");
    let flags: Vec<&str> = help
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("--")?.split([' ', '[', '=']).next())
        .collect();
    assert!(flags.len() > 60, "{flags:?}");
    let settings = printed("settings");
    let missing: Vec<_> = flags.iter().filter(|flag| !settings.contains(&format!("`--{flag}"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let document: serde_json::Value =
        serde_json::from_str(&read("openapi/angarium.json")).expect("it is JSON");
    let codes = document["components"]["schemas"]["ErrorCode"]["enum"].as_array().expect("it has words");
    let errors = printed("errors");
    for code in codes {
        let begin = format!("| `{}` | ", code.as_str().expect("codes are words"));
        let status = errors.lines().find_map(|line| line.strip_prefix(&begin)?.split(' ').next());
        assert!(status.is_some_and(|status| status.starts_with(['4', '5'])), "{code}");
    }
}

//! Settings as an operator gives them: a file, the environment, flags, and what the program states of them.

use std::path::Path;
use std::process::{Command, Output};

use http::StatusCode;
use tempfile::TempDir;

use crate::support::server::ServerBuilder;

/// Runs the program with no settings but these.
fn angarium(args: &[&str], variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_angarium")).args(args).envs(variables.iter().copied()).output().unwrap()
}

/// What `angarium config` prints.
#[track_caller]
fn effective(args: &[&str], variables: &[(&str, &str)]) -> String {
    let output = angarium(&[&["config"], args].concat(), variables);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What is said of settings that are wrong.
#[track_caller]
fn refused(args: &[&str], variables: &[(&str, &str)]) -> String {
    let output = angarium(&[&["config"], args].concat(), variables);
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

fn file(text: &str) -> (TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("angarium.toml");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (directory, path)
}

#[track_caller]
fn assert_has(printed: &str, line: &str) {
    assert!(printed.lines().any(|printed| printed == line), "no line {line:?} in\n{printed}");
}

#[test]
fn flag_wins_over_environment_over_file_over_default() {
    let text = "listen = '127.0.0.1:1'\nlog_format = 'json'\nidle_timeout = '75s'\nmax_connections = 7";
    let (_directory, path) = file(text);
    let variables = [("ANGARIUM_LISTEN", "127.0.0.1:2"), ("ANGARIUM_IDLE_TIMEOUT", "80s")];
    let printed = effective(&["--config", &path, "--listen", "127.0.0.1:3"], &variables);
    assert_has(&printed, "listen = \"127.0.0.1:3\"  # flag");
    assert_has(&printed, "idle_timeout = \"80s\"  # environment");
    assert_has(&printed, &format!("log_format = \"json\"  # {path}"));
    assert_has(&printed, &format!("max_connections = 7  # {path}"));
    assert_has(&printed, "header_timeout = \"10s\"  # default");
    assert_has(&printed, "# tokens is not set");
}

#[test]
fn the_file_may_be_named_by_the_environment() {
    let (_directory, path) = file("insecure_no_auth = true");
    let printed = effective(&[], &[("ANGARIUM_CONFIG", &path)]);
    assert_has(&printed, &format!("insecure_no_auth = true  # {path}"));
}

#[test]
fn printed_settings_parse_again() {
    let printed = effective(&["--listen", "127.0.0.1:3", "--insecure-no-auth"], &[]);
    let (_directory, path) = file(&printed);
    let again = effective(&["--config", &path], &[]);
    let values = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split("  # ").next().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(values(&printed), values(&again));
}

#[test]
fn an_empty_variable_counts_as_not_set() {
    let printed =
        effective(&[], &[("ANGARIUM_LISTEN", ""), ("ANGARIUM_TOKENS", ""), ("ANGARIUM_CONFIG", "")]);
    assert_has(&printed, "listen = \"127.0.0.1:8888\"  # default");
    assert_has(&printed, "# tokens is not set");
}

#[test]
fn an_unknown_key_is_refused_by_its_name() {
    let (_directory, path) = file("listen = '127.0.0.1:1'\nlisten_adress = 'x'");
    let said = refused(&["--config", &path], &[]);
    assert!(said.contains(&path) && said.contains("listen_adress"), "{said}");
}

#[test]
fn a_missing_file_is_named() {
    let said = refused(&["--config", "/nowhere/angarium.toml"], &[]);
    assert!(said.contains("/nowhere/angarium.toml"), "{said}");
}

#[test]
fn conflicting_settings_are_refused() {
    let said = refused(&["--listen", "0.0.0.0:80"], &[]);
    assert!(said.contains("--insecure-no-auth"), "{said}");
}

#[test]
fn the_service_obeys_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens.toml");
    std::fs::write(&tokens, "").unwrap();
    let settings = directory.path().join("angarium.toml");
    std::fs::write(&settings, format!("tokens = '{}'\nlog = 'warn'", tokens.display())).unwrap();
    let data = directory.path().join("data");
    for server in [
        ServerBuilder::new(&data).arg("--config").arg(&settings).start(),
        ServerBuilder::new(Path::new(&data.with_extension("2"))).env("ANGARIUM_CONFIG", &settings).start(),
    ] {
        assert_eq!(server.client().stats("q").unwrap().status, StatusCode::UNAUTHORIZED);
    }
}

#[test]
fn client_limits_are_set_and_shown_like_settings() {
    let (_directory, path) = file("max_messages_per_page = 100\nmin_claim_ttl = 1");
    let printed = effective(
        &["--config", &path, "--max-message-delay", "1800"],
        &[("ANGARIUM_DEFAULT_CLAIM_TTL", "30")],
    );
    assert_has(&printed, &format!("max_messages_per_page = 100  # {path}"));
    assert_has(&printed, &format!("min_claim_ttl = 1  # {path}"));
    assert_has(&printed, "max_message_delay = 1800  # flag");
    assert_has(&printed, "default_claim_ttl = 30  # environment");
    assert_has(&printed, "max_messages_post_size = 1048576  # default");
}

#[test]
fn a_limit_below_its_default_is_refused_with_both_names() {
    let (_directory, path) = file("max_message_ttl = 600");
    let said = refused(&["--config", &path], &[]);
    assert!(said.contains("--default-message-ttl 3600") && said.contains("--max-message-ttl 600"), "{said}");
}

//! The unit of systemd: what it starts, with which settings, and how little it may do.

use super::launch::Launch;
use super::{settings, takes, text, words};

const FILE: &str = "packaging/angarium.service";

/// The values of a key.
fn values(key: &str) -> Vec<String> {
    let file = text(FILE);
    let lines = file.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='));
    lines.filter(|(name, _)| *name == key).map(|(_, value)| value.to_owned()).collect()
}

fn value(key: &str) -> String {
    let [value] = &values(key)[..] else { panic!("{key} stands there once") };
    value.clone()
}

/// The service as the unit starts it.
pub fn launch() -> Launch {
    let environment = values("Environment");
    let environment = environment.iter().map(|setting| setting.split_once('=').unwrap());
    Launch::new(
        &words(&value("ExecStart")),
        environment.map(|(name, value)| (name.to_owned(), value.to_owned())),
    )
}

#[test]
fn unit_starts_a_valid_command() {
    let command = words(&value("ExecStart"));
    assert!(takes(&command[1..]), "{command:?}");
    let install = text(FILE)
        .lines()
        .find_map(|line| line.split("target/release/angarium ").nth(1).map(ToOwned::to_owned));
    assert_eq!(install.as_deref(), Some(command[0].as_str()));
    assert_eq!(value("Type"), "notify");
    assert!(value("WatchdogSec").ends_with('s'), "a hanging service is restarted");
    assert!(value("RestrictAddressFamilies").contains("AF_UNIX"), "the socket of systemd is one");
}

#[test]
fn its_settings_are_settings_of_the_service() {
    let known = settings("serve");
    for setting in values("Environment") {
        let (name, _) = setting.split_once('=').unwrap();
        assert!(known.iter().any(|known| known == name), "{name} is none of {known:?}");
    }
}

#[test]
fn unit_data_is_in_its_one_writable_directory() {
    let data = values("Environment")
        .iter()
        .find_map(|setting| setting.strip_prefix("ANGARIUM_DATA=").map(ToOwned::to_owned));
    assert_eq!(data, Some(format!("/var/lib/{}", value("StateDirectory"))));
    assert_eq!(value("StateDirectoryMode"), "0700");
    assert_eq!(value("ProtectSystem"), "strict");
}

#[test]
fn unit_runs_unprivileged() {
    for key in ["DynamicUser", "NoNewPrivileges", "ProtectHome", "PrivateDevices", "MemoryDenyWriteExecute"] {
        assert_eq!(value(key), "yes", "{key}");
    }
    assert_eq!(value("CapabilityBoundingSet"), "");
}

#[test]
fn secrets_are_passed_as_credentials() {
    let loaded = value("LoadCredential");
    let (id, directory) = loaded.split_once(':').expect("it has an id and a path");
    let file = text(FILE);
    let made = file.lines().find_map(|line| line.strip_prefix("#   install -d -m 0700 "));
    assert_eq!(made, Some(directory), "systemd refuses the start without it");
    let handed_over = format!("/run/credentials/angarium.service/{id}_");
    let known = settings("serve");
    let named: Vec<_> = file.lines().filter_map(|line| line.strip_prefix("#   ")?.split_once('=')).collect();
    for wanted in ["ANGARIUM_TOKENS", "ANGARIUM_SQS_KEYS", "ANGARIUM_TLS_KEY"] {
        assert!(known.iter().any(|setting| setting == wanted), "{wanted} is none of {known:?}");
        let path = named.iter().find(|(name, _)| *name == wanted).map(|(_, path)| *path);
        assert!(path.is_some_and(|path| path.starts_with(&handed_over)), "{wanted}: {path:?}");
    }
}

//! `angarium tree seal` on the tree of one machine, and files of keys that are wrong.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;

use super::{CommandResult, Program};
use crate::support::server::ServerBuilder;
use angarium_testbed::held::wait_until;

const KEYS: &str = "2026-11 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";
const SIGNING: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A data directory and a file of keys.
struct Machine(TempDir);

impl Machine {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn keys(&self, text: &str) -> PathBuf {
        let path = self.path("keys");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    fn service(&self, keys: Option<&Path>) -> ServerBuilder {
        let builder = ServerBuilder::new(&self.path("data")).arg("--webhook-allow=127.0.0.0/8");
        keys.into_iter().fold(builder, |builder, keys| builder.arg("--secret-key-file").arg(keys))
    }

    fn run(&self, action: &[&str], keys: Option<&Path>) -> CommandResult {
        let data = self.path("data");
        let mut arguments = [&["tree"], action, &["--data", data.to_str().unwrap()]].concat();
        if let Some(keys) = keys {
            arguments.extend(["--secret-key-file", keys.to_str().unwrap()]);
        }
        Program::new(None).run(&arguments)
    }

    /// Whether a file of the data directory shows the secret of the webhook.
    fn disk_shows_secret(&self) -> bool {
        let (mut waiting, mut shows) = (vec![self.path("data")], false);
        while let Some(path) = waiting.pop() {
            if path.is_dir() {
                waiting.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
                continue;
            }
            // A file may be removed meanwhile.
            let bytes = fs::read(path).unwrap_or_default();
            shows |= bytes.windows(SIGNING.len()).any(|part| part == SIGNING.as_bytes());
        }
        shows
    }
}

fn subscribe(client: &crate::support::client::Client) {
    let hook = json!({"subscriber": "http://127.0.0.1:9/hook", "secrets": [SIGNING]});
    let made = client.post("/v2/queues/hooked/subscriptions", &hook).unwrap();
    assert_eq!(made.status, http::StatusCode::CREATED, "{}", made.text());
}

#[test]
fn tree_of_one_machine_is_sealed_between_two_starts() {
    let machine = Machine::new();
    let keys = machine.keys(KEYS);
    let nothing = machine.run(&["seal"], Some(&keys));
    assert!(nothing.code == 1 && nothing.err.contains("no service has used the tree"), "{nothing:?}");
    assert!(!machine.path("data").exists());
    let service = machine.service(None).start();
    subscribe(&service.client());
    assert!(machine.disk_shows_secret(), "the search finds a secret in the clear");
    assert!(service.terminate().success());
    let without = machine.run(&["seal"], None);
    assert!(without.code == 1 && without.err.contains("--secret-key-file"), "{without:?}");
    let file = machine.run(&["seal", "file"], Some(&keys));
    assert!(file.code == 1 && file.err.contains("'seal' takes no file"), "{file:?}");

    let service = machine.service(Some(&keys)).start();
    let warnings = service.client().get("/readyz").unwrap().json()["warnings"].to_string();
    assert!(warnings.contains("in the clear although --secret-key-file is set"), "{warnings}");
    let used = machine.run(&["seal"], Some(&keys));
    assert!(used.code == 1 && used.err.contains("in use by another process"), "{used:?}");
    assert!(service.terminate().success());
    let sealed = machine.run(&["seal"], Some(&keys));
    assert!(sealed.code == 0 && sealed.out.contains("sealed /meta/pools/default\n"), "{sealed:?}");
    assert!(sealed.out.contains("2 nodes are sealed, 2 of them now; the data key is made"), "{sealed:?}");
    let again = machine.run(&["seal"], Some(&keys));
    assert!(again.code == 0 && again.out.contains("2 nodes are sealed, 0 of them now"), "{again:?}");

    let exported = machine.run(&["export", machine.path("tree").to_str().unwrap()], None);
    assert_eq!(exported.code, 0, "{exported:?}");
    let text = fs::read_to_string(machine.path("tree")).unwrap();
    assert!(text.contains("/meta/seal") && !text.contains(SIGNING));
    let refused = machine.service(None).start_refused();
    assert!(refused.contains("sealed under the key '2026-11'"), "{refused}");
    let service = machine.service(Some(&keys)).start();
    let client = service.client();
    assert_eq!(client.get("/readyz").unwrap().json()["warnings"], json!([]));
    let found = client.get("/v2/queues/hooked/subscriptions").unwrap().text();
    assert!(found.contains("http://127.0.0.1:9/hook"), "{found}");
}

#[test]
fn disk_of_a_new_service_with_a_key_shows_no_secret() {
    let machine = Machine::new();
    let keys = machine.keys(KEYS);
    let service = machine.service(Some(&keys)).start();
    subscribe(&service.client());
    assert!(!machine.disk_shows_secret());
    service.kill9();
    let service = machine.service(Some(&keys)).start();
    let found = service.client().get("/v2/queues/hooked/subscriptions").unwrap().text();
    assert!(found.contains("http://127.0.0.1:9/hook"), "{found}");
    assert!(!machine.disk_shows_secret());
    assert!(service.terminate().success());
}

#[test]
fn bad_key_file_is_refused_without_its_text() {
    let machine = Machine::new();
    for (text, why) in [
        ("", "there is no key in it"),
        ("2026-11 hidden", "line 1: a key is 'NAME KEY'"),
        ("2026-11 aGlkZGVu", "the key of '2026-11' has 6 bytes, and a key has 32"),
    ] {
        let keys = machine.keys(text);
        let refused = machine.service(Some(&keys)).start_refused();
        assert!(refused.contains(why) && refused.contains("(--secret-key-file)"), "{refused}");
        assert!(!refused.contains("hidden") && !refused.contains("aGlkZGVu"), "{refused}");
    }
    let missing = machine.service(Some(&machine.path("none"))).start_refused();
    assert!(missing.contains("No such file"), "{missing}");
    let keys = machine.keys(KEYS);
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o644)).unwrap();
    let service = machine.service(Some(&keys)).start();
    wait_until("the mode is reported", || service.last_lines().contains("secret file open to others"));
}

//! `angarium tree`: a tree as a file, and what a service finds on the one that was made of it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use http::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{CommandResult, Program};
use crate::support::client::{Claim, Client};
use crate::support::server::{Server, ServerBuilder};
use angarium_testbed::postgres::Postgres;
use angarium_testbed::zookeeper::ZooKeeper;

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary directories have plain names")
}

/// Where files and data directories are.
struct TreeFiles(TempDir);

impl TreeFiles {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, action: &str, file: &str, settings: &[&str]) -> CommandResult {
        let file = self.path(file);
        Program::new(None).run(&[&["tree", action, text(&file)], settings].concat())
    }

    /// Runs it with the embedded tree of a data directory.
    fn on_data(&self, action: &str, file: &str, data: &str) -> CommandResult {
        let data = self.path(data);
        self.run(action, file, &["--data", text(&data)])
    }

    fn lines(&self, file: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path(file)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// A service with an embedded tree.
    fn service(&self, data: &str, pool: &str) -> Server {
        ServerBuilder::new(&self.path(data)).arg("--pool").arg(pool).start()
    }
}

/// Queues with messages, one of which is claimed; another pool, and a flavor.
fn fill(client: &Client) -> Claim {
    let made = client.put("/v2/queues/orders", Some(&json!({"_default_message_ttl": 7_200, "team": "a"})));
    assert_eq!(made.unwrap().status, StatusCode::CREATED);
    let pool = client.put("/v2/pools/spare", Some(&json!({"uri": "embedded:spare", "weight": 0}))).unwrap();
    assert_eq!(pool.status, StatusCode::CREATED, "{pool:?}");
    let flavor = client.put("/v2/flavors/slow", Some(&json!({"pool_list": ["spare"]}))).unwrap();
    assert_eq!(flavor.status, StatusCode::CREATED, "{flavor:?}");
    client.post_messages("orders", &[json!(1), json!(2), json!(3)]).unwrap();
    client.post_messages("dots.and.more", &[json!("x")]).unwrap();
    client.claim("orders", 1, 600).unwrap().granted().unwrap()
}

/// What [`fill`] left is there, and the service does all that a service does.
fn check(client: &Client, claim: &Claim) {
    let queue = client.get("/v2/queues/orders").unwrap().json();
    assert_eq!((&queue["_default_message_ttl"], &queue["team"]), (&json!(7_200), &json!("a")));
    assert_eq!(client.get("/v2/flavors/slow").unwrap().status, StatusCode::OK);
    // Its holder continues with it, and no other user gets what it holds.
    let held = &claim.messages[0];
    let others = client.claim("orders", 10, 60).unwrap().granted().unwrap();
    let bodies: Vec<_> = others.messages.iter().map(|message| message.body.clone()).collect();
    assert_eq!(bodies, [json!(2), json!(3)]);
    let gone = client.delete_message("orders", &held.id, Some(&claim.id)).unwrap();
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    assert_eq!(client.post_messages("orders", &[json!(4)]).unwrap().status, StatusCode::CREATED);
    assert_eq!(client.post_messages("new", &[json!(5)]).unwrap().status, StatusCode::CREATED);
    let last = client.claim("orders", 10, 60).unwrap().granted().unwrap();
    assert_eq!(last.messages[0].body, json!(4));
    let dots = client.claim("dots.and.more", 10, 60).unwrap().granted().unwrap();
    assert_eq!(dots.messages[0].body, json!("x"));
}

#[test]
fn installation_migrates_from_embedded_tree_to_zookeeper() {
    let place = TreeFiles::new();
    let service = place.service("data", "embedded:journal");
    let claim = fill(&service.client());
    assert!(service.terminate().success());
    let exported = place.on_data("export", "tree", "data");
    assert_eq!(exported.code, 0, "{exported:?}");
    let address = ZooKeeper::shared().fresh_tree().to_string();
    let imported = place.run("import", "tree", &["--coordination", &address]);
    assert_eq!(imported.code, 0, "{imported:?}");
    let on_zookeeper = ServerBuilder::new(&place.path("data")).arg("--coordination").arg(&address);
    let service = on_zookeeper.start();
    check(&service.client(), &claim);
    assert!(service.terminate().success());
    // The tree from before is there still, and its epochs are behind those of the new one: the pool refuses it.
    let service = place.service("data", "embedded:journal");
    let refused = service.client().post_messages("orders", &[json!(6)]).unwrap();
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    drop(service);
    // Nor does it harm the new one.
    let service = on_zookeeper.start();
    assert_eq!(service.client().post_messages("orders", &[json!(7)]).unwrap().status, StatusCode::CREATED);
}

#[test]
fn lost_tree_is_restored_from_file_repeatedly() {
    let place = TreeFiles::new();
    let pool = Postgres::shared().fresh_uri();
    let service = place.service("first", &pool);
    let claim = fill(&service.client());
    assert!(service.terminate().success());
    assert_eq!(place.on_data("export", "tree", "first").code, 0);
    // The same file twice: the second time is ahead of the first in the pool.
    for data in ["second", "third"] {
        let imported = place.on_data("import", "tree", data);
        assert_eq!(imported.code, 0, "{imported:?}");
        let service = place.service(data, &pool);
        let posted = service.client().post_messages("other", &[json!(1)]).unwrap();
        assert_eq!(posted.status, StatusCode::CREATED, "{posted:?}");
        assert!(service.terminate().success());
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
    assert_eq!(place.on_data("import", "tree", "last").code, 0);
    check(&place.service("last", &pool).client(), &claim);
}

#[test]
fn new_ensemble_continues_after_lost_one() {
    let place = TreeFiles::new();
    let pool = Postgres::shared().fresh_uri();
    let on = |address: &str| {
        let builder = ServerBuilder::new(&place.path("data")).arg("--coordination").arg(address);
        builder.arg("--pool").arg(&pool).start()
    };
    let mut lost = ZooKeeper::start();
    let address = lost.fresh_tree().to_string();
    let service = on(&address);
    let claim = fill(&service.client());
    // A backup, while the service continues.
    let exported = place.run("export", "tree", &["--coordination", &address]);
    assert_eq!(exported.code, 0, "{exported:?}");
    assert_eq!(service.client().post_messages("later", &[json!(1)]).unwrap().status, StatusCode::CREATED);
    assert!(service.terminate().success());
    // Its slots taken once more than the file knows.
    assert!(on(&address).terminate().success());
    lost.kill9();
    let new = ZooKeeper::start();
    let address = new.fresh_tree().to_string();
    let imported = place.run("import", "tree", &["--coordination", &address]);
    assert_eq!(imported.code, 0, "{imported:?}");
    let service = on(&address);
    check(&service.client(), &claim);
    assert!(service.terminate().success());
}

#[test]
fn a_file_holds_all_of_a_tree_and_is_for_its_owner_alone() {
    let place = TreeFiles::new();
    let service = place.service("data", "embedded:journal");
    fill(&service.client());
    // While a service has the tree no other user does.
    let refused = place.on_data("export", "early", "data");
    assert!(refused.code == 1 && refused.err.contains("in use by another process"), "{refused:?}");
    assert!(!place.path("early").exists());
    assert!(service.terminate().success());
    assert_eq!(place.on_data("export", "one", "data").code, 0);
    let mode = fs::metadata(place.path("one")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = place.on_data("export", "one", "data");
    assert!(again.code == 1 && again.err.contains("File exists"), "{again:?}");
    assert_eq!(place.on_data("import", "one", "other").code, 0);
    assert_eq!(place.on_data("export", "two", "other").code, 0);
    let (mut one, mut two) = (place.lines("one"), place.lines("two"));
    let generation =
        |lines: &mut Vec<Value>| lines[0]["tree"]["system"]["generation"].take().as_u64().unwrap();
    assert!(generation(&mut one) < generation(&mut two));
    assert_eq!(one[0], two[0]);
    let by_path = |line: &Value| line["node"]["path"].as_str().unwrap_or_default().to_owned();
    one.sort_by_key(by_path);
    two.sort_by_key(by_path);
    assert_eq!(one, two);
    assert!(
        one.iter().any(|line| by_path(line).starts_with("/queues/") && by_path(line).ends_with("/orders"))
    );
    assert!(!one.iter().any(|line| by_path(line).ends_with("/owner")));
}

#[test]
fn non_empty_tree_takes_no_file() {
    let place = TreeFiles::new();
    for data in ["data", "other"] {
        assert!(place.service(data, "embedded:journal").terminate().success());
    }
    assert_eq!(place.on_data("export", "tree", "data").code, 0);
    let refused = place.on_data("import", "tree", "other");
    assert!(refused.code == 1 && refused.err.contains("it holds installation"), "{refused:?}");
    let empty = place.on_data("export", "nothing", "nowhere");
    assert!(empty.code == 1 && empty.err.contains("the tree is empty"), "{empty:?}");
    assert!(!place.path("nowhere").exists() && !place.path("nothing").exists());
}

#[test]
fn interrupted_import_starts_no_service_and_repeats() {
    let place = TreeFiles::new();
    let service = place.service("data", "embedded:journal");
    fill(&service.client());
    assert!(service.terminate().success());
    assert_eq!(place.on_data("export", "tree", "data").code, 0);
    let whole = fs::read_to_string(place.path("tree")).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    let without = |gone: usize| {
        let left = lines.iter().enumerate().filter(|(place, _)| *place != gone);
        left.map(|(_, line)| format!("{line}\n")).collect::<String>()
    };
    let cases = [
        (lines[..lines.len() - 1].join("\n"), "the end is missing"),
        (whole[..whole.len() / 2].to_owned(), "line "),
        (without(lines.len() - 2), "lines are missing"),
        (whole.replace("\"/queues/00\"", "\"/meta/system\""), "no place here"),
        (format!("{whole}{}\n", lines[1]), "more than the end"),
    ];
    for (text, why) in cases {
        fs::write(place.path("bad"), text).unwrap();
        let refused = place.on_data("import", "bad", "other");
        assert!(refused.code == 1 && refused.err.contains(why), "{why}: {refused:?}");
        let said = ServerBuilder::new(&place.path("other")).start_refused();
        assert!(said.contains("cut short"), "{said}");
    }
    // What the last one left is not in the way, and not in the tree.
    assert_eq!(place.on_data("import", "tree", "other").code, 0);
    assert_eq!(place.on_data("export", "again", "other").code, 0);
    assert_eq!(place.lines("again").len(), lines.len());
}

#[test]
fn invalid_tree_file_is_refused_before_writing() {
    let place = TreeFiles::new();
    let system = |slots: u32| json!({"id": uuid::Uuid::nil(), "generation": 1, "schema": 1, "slots": slots});
    let cases = [
        (String::new(), "there is none"),
        ("{}\n".to_owned(), "line 1"),
        (json!({"end": {"nodes": 0}}).to_string(), "which installation"),
        (json!({"tree": {"form": 2, "system": system(256)}}).to_string(), "does not know"),
        (json!({"tree": {"form": 1, "system": system(16)}}).to_string(), "does not know"),
    ];
    for (text, why) in cases {
        fs::write(place.path("bad"), text).unwrap();
        let refused = place.on_data("import", "bad", "data");
        assert!(refused.code == 1 && refused.err.contains(why), "{why}: {refused:?}");
    }
    assert!(place.service("data", "embedded:journal").terminate().success());
}

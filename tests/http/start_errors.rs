//! A service that cannot start: one line that names the setting and the host, file or directory, and no advice to try again.

use std::fs;
use std::net::TcpListener;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::server::ServerBuilder;

fn directory() -> TempDir {
    tempfile::tempdir().expect("there is room for a temporary directory")
}

/// Asserts that the service ends with one line, which has all of these words.
#[track_caller]
fn assert_refused(builder: &ServerBuilder, words: &[&str]) {
    let said = builder.start_refused();
    let errors: Vec<&str> =
        said.lines().filter(|line| line.contains("angarium: ") || line.contains("ERROR")).collect();
    let [error] = errors[..] else { panic!("it is told {} times: {said}", errors.len()) };
    for word in words {
        assert_eq!(error.matches(word).count(), 1, "{word:?} once in: {error}");
    }
    assert!(!said.contains("try again"), "{said}");
}

fn with(data: &TempDir, arguments: &[&str]) -> ServerBuilder {
    arguments.iter().fold(ServerBuilder::new(data.path()), |builder, argument| builder.arg(*argument))
}

#[test]
fn address_in_use_is_named() {
    let (data, taken) = (directory(), TcpListener::bind("127.0.0.1:0").unwrap());
    let address = taken.local_addr().unwrap();
    assert_refused(
        &ServerBuilder::new(data.path()).listen(address),
        &[&address.to_string(), "--listen", "in use"],
    );
}

#[test]
fn unusable_data_directory_is_named() {
    let data = directory();
    let file = data.path().join("file");
    fs::write(&file, "").unwrap();
    assert_refused(&ServerBuilder::new(&file), &[&file.display().to_string(), "--data", "not a directory"]);
    assert_refused(&ServerBuilder::new("/proc/none".as_ref()), &["/proc/none", "--data"]);
    let running = ServerBuilder::new(&data.path().join("used")).start();
    assert_refused(&ServerBuilder::new(&data.path().join("used")), &["/used", "--data", "another process"]);
    drop(running);
}

#[test]
fn copied_data_directory_is_refused_unless_moved() {
    let data = directory();
    let [original, copy, elsewhere] = ["original", "copy", "elsewhere"].map(|name| data.path().join(name));
    let server = ServerBuilder::new(&original).start();
    server.client().post_messages("q", &[Value::from(1)]).unwrap();
    server.terminate();
    let mark: Value = serde_json::from_slice(&fs::read(original.join("location")).unwrap()).unwrap();
    assert!(mark["inode"].is_u64(), "this test needs a file system with stable inodes: {mark}");
    let copied = Command::new("cp").arg("-a").args([&original, &copy]).status().unwrap();
    assert!(copied.success());
    assert_refused(&ServerBuilder::new(&copy), &["/copy", "--moved", "inode"]);
    // Renamed, it is the same directory.
    fs::rename(&original, &elsewhere).unwrap();
    ServerBuilder::new(&elsewhere).start().terminate();
    ServerBuilder::new(&copy).arg("--moved").start().terminate();
    let server = ServerBuilder::new(&copy).start();
    assert_eq!(server.client().stats("q").unwrap().json()["messages"]["total"], 1);
}

#[test]
fn unusable_files_are_named_with_their_settings() {
    let data = directory();
    let bad = data.path().join("bad");
    fs::write(&bad, "nothing of use").unwrap();
    let bad = bad.display().to_string();
    for (setting, path, word) in [
        ("--tokens", "/none", "No such file"),
        ("--quotas", "/none", "No such file"),
        ("--sqs-keys", &bad, "bad"),
    ] {
        assert_refused(&with(&data, &[setting, path]), &[setting, word]);
    }
    assert_refused(&with(&data, &["--tls-cert", &bad, "--tls-key", &bad]), &["--tls-cert", &bad]);
}

#[test]
fn unusable_first_pool_is_named_without_its_password() {
    let data = directory();
    for (uri, shown, word) in [
        ("redis://:hidden@nohost.invalid:6379/0", "nohost.invalid:6379", "lookup"),
        ("postgres://u:hidden@nohost.invalid/db", "@nohost.invalid/db", "lookup"),
        ("redis://127.0.0.1:1/0", "127.0.0.1:1/0", "refused"),
        ("odd://place", "odd://place", "no driver"),
    ] {
        let refused = with(&data, &["--pool", uri]);
        assert_refused(&refused, &[shown, "--pool", word]);
        assert!(!refused.start_refused().contains("hidden"));
    }
}

#[test]
fn storage_of_another_installation_is_named() {
    let data = directory();
    let store = |name: &str| data.path().join(name).join("one");
    for name in ["first", "second"] {
        let server = ServerBuilder::new(&data.path().join(name)).arg("--pool=embedded:one").start();
        assert!(server.terminate().success());
    }
    fs::rename(store("second"), data.path().join("aside")).unwrap();
    fs::rename(store("first"), store("second")).unwrap();
    let refused = ServerBuilder::new(&data.path().join("second"));
    assert_refused(&refused, &["pool default", "embedded:one", "stamped"]);
}

#[test]
fn unreachable_zookeeper_is_named() {
    let data = directory();
    let refused = with(&data, &["--coordination", "zookeeper://nohost.invalid:2181,127.0.0.1:1/x"]);
    assert_refused(
        &refused,
        &["--coordination", "nohost.invalid:2181: failed", "127.0.0.1:1: Connection refused"],
    );
}

#[test]
fn start_errors_are_json_where_the_log_is() {
    let data = directory();
    for arguments in [
        ["--log-format=json", "--tokens=/none"],
        ["--log-format=json", "--reserve=odd"],
        ["--log-format=json", "--log=a=b=c"],
    ] {
        let said = with(&data, &arguments).start_refused();
        let lines: Vec<&str> = said.lines().skip(1).collect();
        let [line] = lines[..] else { panic!("{said}") };
        let event: Value = serde_json::from_str(line.trim_start().strip_prefix("err: ").unwrap()).unwrap();
        assert_eq!(
            (&event["message"], &event["level"]),
            (&"start failed".into(), &"ERROR".into()),
            "{event}"
        );
        assert!(event["error"].is_string(), "{event}");
    }
}

//! What the program says to wrong settings: which one it is, and what is allowed.

use std::process::{Command, Stdio};

/// What `angarium serve` says before it ends without success.
fn refused(args: &[&str]) -> String {
    let data = tempfile::tempdir().expect("there is room for a temporary directory");
    let data = data.path().to_str().expect("temporary paths are text");
    let mut command = Command::new(env!("CARGO_BIN_EXE_angarium"));
    command.arg("serve").args(args).stdin(Stdio::null());
    if !args.contains(&"--listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    if !args.contains(&"--data") {
        command.args(["--data", data]);
    }
    let ended = command.output().expect("the built program can be started");
    assert!(!ended.status.success(), "{args:?}");
    String::from_utf8(ended.stderr).expect("messages are text")
}

#[test]
fn a_wrong_setting_is_named_with_what_is_allowed() {
    for (args, parts) in [
        (["--listen", "localhost:8888"], ["--listen", "127.0.0.1:8888"]),
        (["--listen", "127.0.0.1"], ["--listen", "127.0.0.1:8888"]),
        (["--data", "/dev/full"], ["/dev/full", "is not a directory"]),
        (["--data", ""], ["--data", "path of a directory"]),
        (["--coordination", "etcd"], ["--coordination", "zookeeper://HOST:PORT"]),
        (["--coordination", "etcd://a:1"], ["--coordination", "zookeeper://"]),
        (["--log", "angarium=loud"], ["--log", "warn, info"]),
        (["--log-format", "xml"], ["--log-format", "text, json"]),
    ] {
        let said = refused(&args);
        assert!(parts.iter().all(|part| said.contains(part)), "{args:?}: {said}");
        assert!(said.lines().count() < 8, "{said}");
    }
}

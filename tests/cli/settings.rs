//! What the program states to wrong settings: which one it is, and what is allowed.

use std::process::{Command, Stdio};

use super::Program;

/// What `angarium serve` states before it ends without success.
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
fn wrong_setting_is_named_with_allowed_values() {
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

/// Sizes and times as people write them, and as plain numbers: flag, variable and file take both, and what is printed is taken
/// as a file again.
#[test]
fn sizes_and_times_have_units_wherever_they_are_set() {
    let program = Program::new(None).with_env("ANGARIUM_SESSION_TIMEOUT", "1m30s");
    let file = program.home.path().join("settings.toml");
    std::fs::write(
        &file,
        "max_message_ttl = '3d'\nidle_timeout = '1m 30s'\nmax_messages_post_size = '512KiB'\n",
    )
    .unwrap();
    let shown = program.say(&[
        "config",
        "--config",
        file.to_str().unwrap(),
        "--reserve",
        "1.5GiB",
        "--project-bytes=10MB",
    ]);
    for line in [
        "reserve = \"1.5GiB\"  # flag",
        "session_timeout = \"1m30s\"  # environment",
        "max_message_ttl = \"3d\"  # ",
        "idle_timeout = \"1m 30s\"  # ",
        "max_messages_post_size = \"512KiB\"  # ",
        "max_body_bytes = 268435456  # default",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    std::fs::write(&file, &shown).unwrap();
    let again = Program::new(None).say(&["config", "--config", file.to_str().unwrap()]);
    let values = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.split("  # ").next().unwrap().to_owned()).collect()
    };
    assert_eq!(values(&again), values(&shown));
}

#[test]
fn wrong_size_or_time_error_shows_an_example() {
    for (args, part) in [
        (["--reserve", "256Mb/s"], "a size is a number of bytes"),
        (["--idle-timeout", "soon"], "a duration is a number of seconds"),
        (["--session-timeout", "3m"], "between 2 and 120 seconds (2s to 2m)"),
        (["--max-body-bytes", "1KiB"], "(32MiB to 4GiB)"),
    ] {
        let said = refused(&args);
        assert!(said.contains(part), "{args:?}: {said}");
    }
}

#[test]
fn misspelt_setting_gets_a_hint() {
    let program =
        Program::new(None).with_env("ANGARIUM_LISTNE", "127.0.0.1:1").with_env("ANGARIUM_SOMETHING", "1");
    let shown = program.say(&["config"]);
    assert!(shown.contains("# ANGARIUM_LISTNE is not known; did you mean ANGARIUM_LISTEN?\n"), "{shown}");
    assert!(!shown.contains("ANGARIUM_SOMETHING"), "{shown}");
    let file = program.home.path().join("settings.toml");
    std::fs::write(&file, "max_conections = 5\n").unwrap();
    let refused = program.run(&["config", "--config", file.to_str().unwrap()]);
    assert!(refused.err.contains("`max_conections`; did you mean `max_connections`?"), "{}", refused.err);
}

//! Reads YAML, by a reader that is not ours.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use angarium_testbed::settings::test_tools;

/// The documents of a YAML file, by a reader that is not ours.
pub fn yaml(name: &str) -> Vec<Value> {
    let read = "import json, sys, yaml; json.dump(list(yaml.safe_load_all(open(sys.argv[1]))), sys.stdout)";
    let python = test_tools().join("bin/python");
    let ended = Command::new(&python)
        .args(["-c", read])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(name))
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}. Run the tests with tests/run", python.display()));
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    serde_json::from_slice(&ended.stdout).expect("it is JSON")
}

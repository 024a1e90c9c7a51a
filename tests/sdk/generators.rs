//! Generators of clients, and what they warn of: a document that makes one warn fails here.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{HOUSE, run};
use angarium_testbed::settings;

/// The forms of the document that the repository has.
pub const DOCUMENTS: [&str; 2] = ["openapi/angarium.json", "openapi/angarium-3.0.json"];
/// The one for openapi-generator, which calls its own support of 3.1 a beta in a warning.
const OLDER: &str = DOCUMENTS[1];

/// A document in which no generator has anything to object to: one operation, which answers a text.
const SMALLEST: &str = r#"{"openapi": "3.0.3", "info": {"title": "Smallest", "version": "1"}, "paths": {"/": {"get": {
    "operationId": "text_get", "responses": {"200": {"description": "A text.", "content": {
        "application/json": {"schema": {"type": "string"}}
    }}}
}}}}"#;

/// The lines of an output that warn.
fn warnings(output: &str) -> Vec<&str> {
    let warns = |line: &&str| {
        let line = line.to_lowercase();
        ["warn", "error", "⚠"].iter().any(|word| line.contains(word))
    };
    // openapi-generator names each file that it writes, and some are named after errors.
    output.lines().filter(warns).filter(|line| !line.contains("INFO")).collect()
}

/// Makes a client of the document in `into` with openapi-generator. What it warns of whatever the document states
/// (its Python generator does, once for every run) is not ours.
pub fn openapi_generator(generator: &str, options: &str, into: &Path) {
    let make = |document: &Path, into: &Path| {
        let mut command = Command::new(settings::test_tools().join("bin/openapi-generator-cli"));
        command.arg("generate").arg("-i").arg(document).args(["-g", generator, "-o"]).arg(into);
        command.args(["--git-host", "example.org", "--git-user-id", "angarium", "--git-repo-id", "sdk"]);
        run(command.arg(format!("--additional-properties={options}")), None)
    };
    let output = make(&Path::new(HOUSE).join(OLDER), into);
    let mut warnings = warnings(&output);
    if !warnings.is_empty() {
        let dir = tempfile::tempdir().expect("there is room for a temporary directory");
        let smallest = dir.path().join("smallest.json");
        std::fs::write(&smallest, SMALLEST).expect("there is room");
        let of_any = make(&smallest, &dir.path().join("client"));
        warnings.retain(|warning| !of_any.contains(warning));
    }
    assert!(warnings.is_empty(), "{generator}: {warnings:#?}");
}

/// Makes clients of all forms of the document in folders below `into` with openapi-python-client; answers the folder of one.
pub fn openapi_python_client(into: &Path) -> PathBuf {
    let tools = settings::test_tools().join("openapi-python-client");
    let path = settings::search_path();
    let mut made = into.to_owned();
    for (at, document) in DOCUMENTS.iter().enumerate() {
        made = into.join(at.to_string());
        std::fs::create_dir_all(&made).expect("there is room");
        let mut command = Command::new(settings::test_tools().join("bin/python"));
        command.args([
            "-m",
            "openapi_python_client",
            "generate",
            "--fail-on-warning",
            "--meta",
            "none",
            "--path",
        ]);
        command.arg(Path::new(HOUSE).join(document)).arg("--output-path").arg(made.join("angarium_sdk"));
        // It formats what it makes with a program that is beside it.
        command.env("PYTHONPATH", &tools).env("PATH", format!("{}:{path}", tools.join("bin").display()));
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("NO_COLOR", "1");
        let output = run(&mut command, None);
        assert_eq!(warnings(&output), Vec::<&str>::new(), "openapi-python-client, {document}: {output}");
    }
    made
}

/// Makes clients of all forms of the document with hey-api, the last of them in `into`.
pub fn hey_api(into: &Path) {
    let tools = settings::test_tools().join("hey-api/node_modules");
    for document in DOCUMENTS {
        let mut command = Command::new(tools.join(".bin/node"));
        command.arg(tools.join("@hey-api/openapi-ts/bin/run.js"));
        command.arg("-i").arg(Path::new(HOUSE).join(document)).arg("-o").arg(into);
        // It looks for its TypeScript where it runs.
        command.current_dir(settings::test_tools().join("hey-api")).env("NO_COLOR", "1");
        let output = run(&mut command, None);
        assert_eq!(warnings(&output), Vec::<&str>::new(), "hey-api, {document}: {output}");
    }
}

#[test]
fn warnings_in_generator_output_are_found() {
    for line in [
        "[main] WARN  o.o.codegen.DefaultCodegen - something",
        "WARNING parsing GET /v2/ within home.",
        "Warning(s) encountered while generating.",
        "⚠ duplicate operationId",
    ] {
        assert_eq!(warnings(&format!("INFO made Error.ts\n{line}\n")), [line]);
    }
}

//! The OpenAPI document: fresh, whole, and valid by a validator that is not ours. What single operations say is their
//! own matter; nothing here knows one by name.
#![allow(clippy::panic, reason = "a test fails by it")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::settings;

const CHECKED_IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi/angarium.json");
const CHECKED_IN_OLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi/angarium-3.0.json");

fn printed(args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_angarium"));
    let ended = command.arg("openapi").args(args).output().expect("it starts");
    assert!(ended.status.success(), "angarium openapi: {}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8(ended.stdout).expect("the document is UTF-8")
}

#[test]
fn checked_in_document_is_the_printed_one() {
    // Not assert_eq: two documents of a thousand lines would hide the remedy.
    assert!(
        printed(&[]) == text(CHECKED_IN),
        "openapi/angarium.json is stale. Refresh it: cargo run -- openapi > openapi/angarium.json"
    );
}

#[test]
fn checked_in_document_of_the_older_version_is_the_printed_one() {
    assert!(
        printed(&["--version", "3.0"]) == text(CHECKED_IN_OLDER),
        "openapi/angarium-3.0.json is stale. Refresh it: \
         cargo run -- openapi --version 3.0 > openapi/angarium-3.0.json"
    );
}

#[test]
fn every_reference_resolves() {
    let document = document();
    let mut references = BTreeSet::new();
    collect_references(&document, &mut references);
    assert!(!references.is_empty(), "the document has schemas, hence references");
    let dangling: Vec<_> = references.into_iter().filter(|r| resolve(&document, r).is_none()).collect();
    assert!(dangling.is_empty(), "nothing is at {dangling:#?}");
}

#[test]
fn operation_ids_are_unique() {
    let document = document();
    let mut seen = BTreeSet::new();
    for operation in operations(&document) {
        let id = operation.body["operationId"].as_str();
        let id = id.unwrap_or_else(|| panic!("{} has no operationId", operation.name()));
        assert!(seen.insert(id), "{} takes the operationId {id} again", operation.name());
    }
}

#[test]
fn operations_that_take_input_document_400_and_503() {
    let document = document();
    let silent: Vec<_> = operations(&document)
        .filter(|operation| operation.path.starts_with("/v2/") && operation.takes_input())
        // A HEAD answers as the GET of its path does, without a body: the GET documents it.
        .filter(|operation| operation.method != "head")
        .filter(|operation| ["400", "503"].iter().any(|status| operation.body["responses"][status].is_null()))
        .map(|operation| operation.name())
        .collect();
    assert!(silent.is_empty(), "these do not document 400 and 503: {silent:#?}");
}

#[test]
fn validator_finds_nothing() {
    let validator = settings::test_tools().join("bin/openapi-spec-validator");
    let ended =
        Command::new(&validator).args([CHECKED_IN, CHECKED_IN_OLDER]).output().unwrap_or_else(|error| {
            panic!(
                "{}: {error}. Run the tests with tests/run: it installs the validator",
                validator.display()
            )
        });
    let said =
        format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{said}");
}

struct Operation<'a> {
    method: &'a str,
    path: &'a str,
    body: &'a Value,
}

impl Operation<'_> {
    fn name(&self) -> String {
        format!("{} {}", self.method.to_uppercase(), self.path)
    }

    fn takes_input(&self) -> bool {
        let parameters = self.body["parameters"].as_array();
        self.body.get("requestBody").is_some() || parameters.is_some_and(|parameters| !parameters.is_empty())
    }
}

fn text(path: &str) -> String {
    std::fs::read_to_string(Path::new(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn document() -> Value {
    serde_json::from_str(&text(CHECKED_IN)).unwrap_or_else(|error| panic!("{CHECKED_IN}: {error}"))
}

fn operations(document: &Value) -> impl Iterator<Item = Operation<'_>> {
    const METHODS: [&str; 8] = ["delete", "get", "head", "options", "patch", "post", "put", "trace"];
    let paths = document["paths"].as_object().expect("the document has paths");
    paths.iter().flat_map(|(path, item)| {
        let item = item.as_object().expect("a path is an object").iter();
        // Beside its operations a path may have parameters and a summary.
        let operations = item.filter(|(key, _)| METHODS.contains(&key.as_str()));
        operations.map(move |(method, body)| Operation { method, path, body })
    })
}

fn collect_references(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get("$ref") {
                into.insert(reference.clone());
            }
            members.values().for_each(|member| collect_references(member, into));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_references(item, into)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// What a reference names. Every part of the document is in the document: other files do not count.
fn resolve<'a>(document: &'a Value, reference: &str) -> Option<&'a Value> {
    document.pointer(reference.strip_prefix('#')?)
}

#[test]
fn a_dangling_reference_is_caught() {
    let document =
        serde_json::json!({"a": [{"$ref": "#/b"}, {"$ref": "#/c"}, {"$ref": "other.json#/b"}], "b": 1});
    let mut references = BTreeSet::new();
    collect_references(&document, &mut references);
    let dangling: Vec<_> = references.into_iter().filter(|r| resolve(&document, r).is_none()).collect();
    assert_eq!(dangling, ["#/c", "other.json#/b"]);
}

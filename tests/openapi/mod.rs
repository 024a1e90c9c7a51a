//! The OpenAPI document: fresh, whole, and valid by a validator that is not ours. What single operations say is their
//! own matter; nothing here knows one by name.
#![allow(clippy::panic, reason = "a test fails by it")]

mod bounds;
mod names;
mod page;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use angarium_testbed::settings;

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
fn operations_with_input_document_400_and_503() {
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
fn every_body_has_an_example() {
    let document = document();
    let silent: Vec<_> = operations(&document)
        .filter(|operation| operation.bodies().any(|body| body.get("example").is_none()))
        .map(|operation| operation.name())
        .collect();
    assert!(silent.is_empty(), "these lack an example, see src/api/openapi/examples.rs: {silent:#?}");
}

#[test]
fn every_parameter_header_status_and_key_is_described() {
    let document = document();
    let mut silent: Vec<String> = Vec::new();
    for operation in operations(&document) {
        let parameters = operation.body["parameters"].as_array().into_iter().flatten();
        let named = parameters.map(|parameter| (parameter["name"].to_string(), parameter));
        let named = named.chain(operation.responses().map(|(status, answer)| (status.to_owned(), answer)));
        let headers = operation.responses().flat_map(|(_, answer)| members(&answer["headers"]));
        let named = named.chain(headers.map(|(name, header)| (name.to_owned(), header)));
        let named = named.filter(|(_, part)| !is_described(part));
        silent.extend(named.map(|(name, _)| format!("{}: {name}", operation.name())));
    }
    for (name, schema) in members(&document["components"]["schemas"]) {
        let keys = members(&schema["properties"]).filter(|(_, key)| !is_described(key));
        silent.extend(keys.map(|(key, _)| format!("{name}: {key}")));
    }
    assert!(silent.is_empty(), "these lack a description: {silent:#?}");
}

fn is_described(part: &Value) -> bool {
    part["description"].as_str().is_some_and(|text| !text.trim().is_empty())
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

    fn responses(&self) -> impl Iterator<Item = (&str, &Value)> {
        members(&self.body["responses"])
    }

    /// The body of the request and those of the answers that are no errors, in each of their media types.
    fn bodies(&self) -> impl Iterator<Item = &Value> {
        let answers = self.responses().filter(|(status, _)| status.starts_with(['2', '3']));
        let whole = std::iter::once(&self.body["requestBody"]).chain(answers.map(|(_, answer)| answer));
        whole.flat_map(|part| members(&part["content"])).map(|(_, body)| body)
    }
}

/// The members of an object; none when it is something else.
fn members(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flatten().map(|(key, value)| (key.as_str(), value))
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

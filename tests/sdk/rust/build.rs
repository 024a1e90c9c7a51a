//! Makes the client of `openapi/angarium-3.0.json`, after two things are taken out of it that progenitor 0.15 cannot read:
//! operations whose body has a media type of its own, and the empty answer of those that at other times have a body. Such an
//! empty answer reaches the caller as `Error::UnexpectedResponse`, with its status.

use std::path::Path;

use progenitor_impl::{GenerationSettings, Generator, InterfaceStyle};
use serde_json::Value;

const DOCUMENT: &str = "../../../openapi/angarium-3.0.json";

fn main() {
    println!("cargo:rerun-if-changed={DOCUMENT}");
    println!("cargo:rerun-if-changed=build.rs");
    let text = std::fs::read_to_string(DOCUMENT).expect("the document is in the tree");
    let mut document: Value = serde_json::from_str(&text).expect("the document is JSON");
    for path in document["paths"].as_object_mut().into_iter().flat_map(|paths| paths.values_mut()) {
        let operations = path.as_object_mut().expect("a path has operations");
        operations.retain(|_, operation| takes_json(operation));
        operations.values_mut().for_each(drop_empty_answer);
    }
    let document = serde_json::from_value(document).expect("the document is of version 3.0");
    let mut settings = GenerationSettings::default();
    settings.with_interface(InterfaceStyle::Builder);
    let client = Generator::new(&settings).generate_tokens(&document);
    let client = client.expect("progenitor reads the document").to_string();
    let out = std::env::var("OUT_DIR").expect("cargo says where to write");
    std::fs::write(Path::new(&out).join("client.rs"), client).expect("there is room");
}

fn takes_json(operation: &Value) -> bool {
    let content = operation["requestBody"]["content"].as_object();
    content.is_none_or(|content| content.contains_key("application/json"))
}

fn drop_empty_answer(operation: &mut Value) {
    let answers = operation["responses"].as_object_mut().expect("an operation has answers");
    if answers.iter().any(|(status, answer)| status.starts_with('2') && answer.get("content").is_some()) {
        answers.retain(|status, answer| !status.starts_with('2') || answer.get("content").is_some());
    }
}

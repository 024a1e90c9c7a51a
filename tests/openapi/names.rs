//! What users of the document see first: operation ids, summaries, names of schemas, codes of errors. Each follows one
//! convention, and a name that does not has to be weighed here.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use super::{CHECKED_IN, document, members, operations, text};
use angarium_testbed::settings;

/// What an operation id ends in.
const VERBS: &[&str] = &[
    "cancel", "create", "delete", "get", "head", "list", "peek", "post", "purge", "put", "release", "renew",
    "requeue", "settle", "start", "update",
];

/// The same in ids of SQS: the first word of the operation's name.
const SQS_VERBS: &[&str] = &[
    "add", "cancel", "change", "create", "delete", "get", "list", "purge", "receive", "remove", "send",
    "set", "start", "tag", "untag",
];

/// What a summary begins with.
const IMPERATIVES: &[&str] = &[
    "Allow", "Cancel", "Change", "Check", "Claim", "Confirm", "Create", "Delete", "Drain", "Explain",
    "Extend", "Get", "Hold", "List", "Migrate", "Move", "Peek", "Plan", "Post", "Purge", "Read", "Receive",
    "Release", "Remove", "Requeue", "Send", "Set", "Settle", "Start",
];

/// The words that names of schemas are made of: those of the field, of Zaqar and of HTTP. A new one is a word that a user
/// would search for.
const WORDS: &[&str] = &[
    "Api",
    "Attribute",
    "Attributes",
    "Backlog",
    "Backoff",
    "Balance",
    "Batch",
    "Bounds",
    "Claim",
    "Code",
    "Component",
    "Confirmation",
    "Context",
    "Counts",
    "Deduplication",
    "Defer",
    "Definition",
    "Delay",
    "Details",
    "Done",
    "Drain",
    "Durability",
    "Entry",
    "Error",
    "Event",
    "Explanation",
    "Fail",
    "Fifo",
    "Filter",
    "Flavor",
    "Forwarded",
    "Gap",
    "Group",
    "Health",
    "Hold",
    "Key",
    "Limit",
    "Link",
    "List",
    "Map",
    "Media",
    "Message",
    "Migration",
    "Move",
    "Operation",
    "Outcome",
    "Page",
    "Patch",
    "Peek",
    "Peeked",
    "Plan",
    "Pool",
    "Post",
    "Posted",
    "Purge",
    "Queue",
    "Quota",
    "Rates",
    "Readiness",
    "Receipt",
    "Received",
    "Reference",
    "Report",
    "Request",
    "Requeue",
    "Requeued",
    "Resource",
    "Result",
    "Results",
    "Rotation",
    "Scope",
    "Service",
    "Settle",
    "Space",
    "Sqs",
    "Started",
    "Stats",
    "Status",
    "Storage",
    "Subscription",
    "Target",
    "Task",
    "Terms",
    "Throughput",
    "Topic",
    "Total",
    "Totals",
    "Trace",
    "Transfer",
    "Type",
    "Update",
    "Usage",
    "Value",
    "Version",
    "Versions",
    "Visibility",
    "Volume",
    "Webhook",
];

/// What every user of a message queue looks for first.
const EXPECTED: &[&str] = &[
    "ApiError",
    "Claim",
    "ErrorCode",
    "Flavor",
    "Message",
    "MessagePage",
    "PostedMessage",
    "Pool",
    "Queue",
    "QueueAttributes",
    "QueuePage",
    "QueueStats",
];

/// The words of a name in camel case.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for letter in name.chars() {
        match words.last_mut() {
            Some(word) if !letter.is_uppercase() => word.push(letter),
            _ => words.push(letter.to_string()),
        }
    }
    words
}

#[test]
fn operation_ids_end_in_their_verb() {
    let document = document();
    for operation in operations(&document) {
        let id = operation.body["operationId"].as_str().unwrap_or_default();
        let (noun, verb) = id.rsplit_once('_').unwrap_or_default();
        if id.starts_with("sqs_") {
            assert!(operation.method == "post" && SQS_VERBS.contains(&verb), "{}: {id}", operation.name());
            continue;
        }
        assert!(VERBS.contains(&verb), "{}: {id} does not end in a verb", operation.name());
        let lower = |letter: char| letter.is_ascii_lowercase() || letter == '_';
        assert!(!noun.is_empty() && noun.chars().all(lower), "{}: {id}", operation.name());
        let lists = operation.method == "get" && verb == "list";
        assert!(!lists || noun.ends_with('s'), "{id} lists several, so its noun is a plural");
        let by_method = match operation.method {
            "get" => ["get", "list", "peek"].contains(&verb),
            "head" => verb == "head",
            "delete" => ["cancel", "delete", "release"].contains(&verb),
            "patch" => ["renew", "update"].contains(&verb),
            "put" => ["create", "put"].contains(&verb),
            _ => ["create", "post", "purge", "requeue", "settle", "start"].contains(&verb),
        };
        assert!(by_method, "{}: {id} has the verb of another method", operation.name());
    }
}

#[test]
fn summaries_are_short_imperatives() {
    let document = document();
    let mut seen = BTreeSet::new();
    for operation in operations(&document) {
        let summary = operation.body["summary"].as_str().unwrap_or_default();
        let words: Vec<&str> = summary.split(' ').collect();
        assert!(IMPERATIVES.contains(&words[0]), "{}: {summary:?} is no imperative", operation.name());
        assert!(
            (2..=8).contains(&words.len()),
            "{}: {summary:?} has {} words",
            operation.name(),
            words.len()
        );
        assert!(!summary.contains(['\n', '.', ',']), "{}: {summary:?} is no line", operation.name());
        assert!(seen.insert(summary), "{}: {summary:?} is of another operation too", operation.name());
    }
}

/// Of these the summary states all.
const SELF_EXPLAINING: &[&str] =
    &["flavor_get", "openapi_document_get", "ping_get", "pool_update", "queue_migration_get"];

#[test]
fn operations_have_descriptions_of_whole_sentences() {
    let document = document();
    for operation in operations(&document) {
        let id = operation.body["operationId"].as_str().unwrap_or_default();
        let description = operation.body["description"].as_str().unwrap_or_default();
        if SELF_EXPLAINING.contains(&id) {
            assert!(description.is_empty(), "{id} has a description: it needs no exception");
            continue;
        }
        assert!(description.ends_with('.'), "{id}: {description:?} is no sentence");
    }
}

#[test]
fn schemas_are_named_by_words_of_the_field() {
    let document = document();
    let schemas = &document["components"]["schemas"];
    let mut used = BTreeSet::new();
    // What SQS takes and answers has AWS's names.
    let targets =
        members(&document["paths"]).filter_map(|(path, _)| path.strip_prefix("/#X-Amz-Target=AmazonSQS."));
    let targets: Vec<&str> = targets.collect();
    assert!(targets.len() > 20, "the operations of SQS are in the document: {targets:?}");
    for (name, _) in members(schemas) {
        if targets.iter().any(|target| name.starts_with(target)) {
            continue;
        }
        for word in words(name) {
            assert!(
                WORDS.contains(&word.as_str()),
                "the schema {name}: {word} is no word that users search for"
            );
            used.insert(word);
        }
    }
    let unused: Vec<_> = WORDS.iter().filter(|word| !used.contains(**word)).collect();
    assert!(unused.is_empty(), "no schema is named with {unused:?} any more");
    let missing: Vec<_> = EXPECTED.iter().filter(|name| schemas.get(**name).is_none()).collect();
    assert!(missing.is_empty(), "there is no schema {missing:?}");
}

#[test]
fn error_codes_are_all_in_the_enum_with_their_meanings() {
    let document = document();
    let error = &document["components"]["schemas"]["ApiError"];
    assert_eq!(error["properties"]["code"]["$ref"], "#/components/schemas/ErrorCode");
    let schema = &document["components"]["schemas"]["ErrorCode"];
    let documented: BTreeSet<&str> = strings(&schema["enum"]).collect();
    // The one list of them, as it is in the source.
    let source = text(concat!(env!("CARGO_MANIFEST_DIR"), "/crates/core/src/error_code.rs"));
    let list = source.split_once("\ncodes! {\n").and_then(|(_, rest)| rest.split_once("\n}\n"));
    let list = list.expect("the codes are in one list").0;
    let written: BTreeSet<&str> = list.lines().filter_map(|line| line.split('"').nth(1)).collect();
    assert!(written.len() > 30, "the list was not read: {written:?}");
    assert_eq!(documented, written);
    let description = schema["description"].as_str().unwrap_or_default();
    for code in documented {
        assert!(description.contains(&format!("* `{code}`: ")), "{code} has no meaning");
    }
}

#[test]
fn queue_attributes_are_all_typed_and_described() {
    let document = document();
    let attributes = &document["components"]["schemas"]["QueueAttributes"];
    let documented: BTreeSet<&str> = members(&attributes["properties"]).map(|(name, _)| name).collect();
    let source = text(concat!(env!("CARGO_MANIFEST_DIR"), "/crates/core/src/attributes.rs"));
    let keys = source.lines().filter(|line| line.starts_with("pub const ") && line.contains(": &str = \"_"));
    let keys: BTreeSet<&str> = keys.filter_map(|line| line.split('"').nth(1)).collect();
    assert!(keys.len() > 20, "the keys were not read: {keys:?}");
    assert_eq!(documented, keys);
    assert!(attributes["additionalProperties"].is_object() || attributes["additionalProperties"] == true);
    for (name, schema) in members(&attributes["properties"]) {
        let is_typed = ["type", "$ref", "oneOf", "allOf"].iter().any(|key| !schema[key].is_null());
        assert!(is_typed, "{name} has no type: {schema}");
        let kinds: Vec<&str> = strings(&schema["type"]).collect();
        if kinds.contains(&"integer") {
            let is_bounded = !schema["minimum"].is_null() && !schema["maximum"].is_null();
            // A bound that a setting changes is in the text, which names the setting.
            let is_told = schema["description"].as_str().is_some_and(|text| text.contains("`--max-"));
            assert!(is_bounded || is_told, "{name} has no bounds");
        }
    }
    for (name, default) in [
        ("_max_messages_post_size", 262_144),
        ("_default_message_ttl", 3_600),
        ("_default_message_delay", 0),
        ("_default_visibility_timeout", 30),
    ] {
        // As text: generated clients that know a default send it, and then it is no default any more.
        let (schema, text) = (&attributes["properties"][name], format!("{default} when absent."));
        let description = schema["description"].as_str().unwrap_or_default().replace('\n', " ");
        assert!(description.ends_with(&text) && schema["default"].is_null(), "{name}: {description}");
    }
}

fn strings(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

#[test]
fn sqs_operations_have_the_members_of_the_model_of_aws() {
    let mut script = Command::new(settings::test_tools().join("bin/python"));
    script.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/openapi/sqs_members.py")).arg(CHECKED_IN);
    let ended = script.output().expect("tests/prepare installs Python");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}
